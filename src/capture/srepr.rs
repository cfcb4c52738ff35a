//! Symbolic sizes in sympy's srepr format (`Mul(Integer(2), Symbol('s27', positive=True))`), as
//! size computations in the IR.
use super::unsupported;
use kiln_dialects::{
    Result,
    algebra::Expr,
    ir::{Builder, Size, Value},
    ops::{Sym, SymExpr, SymKind},
};
use std::collections::HashMap;

/// A parsed expression over symbols' names.
pub type SizeExpr = Expr<String>;

/// Parses one expression.
pub fn parse(text: &str) -> Result<SizeExpr> {
    let mut p = Parser { rest: text, depth: 0 };
    let e = p.expr()?;
    if p.rest.trim().is_empty() {
        Ok(e)
    } else {
        Err(format!("the size expression {text} goes on after its end").into())
    }
}

/// The operation that a sympy function is.
fn kind(name: &str) -> Result<SymKind> {
    Ok(match name {
        "Add" => SymKind::Add,
        "Mul" => SymKind::Mul,
        "Pow" | "PowByNatural" => SymKind::Pow,
        "Min" => SymKind::Min,
        "Max" => SymKind::Max,
        "Mod" | "PythonMod" => SymKind::Mod,
        "FloorDiv" | "CleanDiv" | "IntTrueDiv" => SymKind::Floordiv,
        other => {
            return Err(unsupported(format!("size expressions with {other} are not supported")));
        }
    })
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn eat(&mut self, c: char) -> bool {
        let rest = self.rest.trim_start();
        let hit = rest.strip_prefix(c);
        self.rest = hit.unwrap_or(rest);
        hit.is_some()
    }
    fn word(&mut self) -> &'a str {
        let rest = self.rest.trim_start();
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-'))
            .unwrap_or(rest.len());
        self.rest = &rest[end..];
        &rest[..end]
    }
    fn expr(&mut self) -> Result<SizeExpr> {
        self.depth += 1;
        if self.depth > 64 {
            return Err("a size expression nests deeper than 64".into());
        }
        let name = self.word();
        if !self.eat('(') {
            return name
                .parse()
                .map(Expr::Const)
                .map_err(|_| format!("'{name}' is no size expression").into());
        }
        let mut args = vec![];
        while !self.eat(')') {
            if self.eat('\'') {
                let end = self.rest.find('\'').ok_or("a name that does not end")?;
                args.push(Expr::Leaf(self.rest[..end].to_string()));
                self.rest = &self.rest[end + 1..];
            } else {
                let before = self.rest;
                let key = self.word();
                if !key.is_empty() && self.eat('=') {
                    self.word();
                } else {
                    self.rest = before;
                    args.push(self.expr()?);
                }
            }
            if !self.eat(',') && !self.rest.trim_start().starts_with(')') {
                return Err("a size expression without its end".into());
            }
        }
        self.depth -= 1;
        match (name, args.as_slice()) {
            ("Integer", [e @ Expr::Const(_)]) | ("Symbol", [e @ Expr::Leaf(_)]) => Ok(e.clone()),
            _ => {
                let kind = kind(name)?;
                let apply = |a, b| Expr::Apply(kind, Box::new((a, b)));
                args.into_iter().reduce(apply).ok_or_else(|| format!("{name} of nothing").into())
            }
        }
    }
}

/// The least and the greatest value of a symbol, as far as they are declared.
pub type Range = (Option<i64>, Option<i64>);

/// Symbols bound so far.
#[derive(Default)]
pub struct Symbols {
    /// Values by name.
    pub values: HashMap<String, Value>,
    /// Ranges declared by the program.
    pub ranges: HashMap<String, Range>,
}

impl Symbols {
    /// Emits an expression; constants are folded.
    pub fn size(&mut self, b: &Builder, e: &SizeExpr) -> Result<Size> {
        match e {
            Expr::Const(n) => Ok(Size::Static(*n)),
            Expr::Leaf(name) => {
                if let Some(v) = self.values.get(name) {
                    return Ok(Size::Dynamic(*v));
                }
                let (least, max) = self.ranges.get(name).copied().unwrap_or_default();
                let min = least.unwrap_or(0).max(0);
                let here = b.at(b.loc.named(name));
                let op = here.create_with(
                    &Sym { name: name.clone(), min, max, divisor: 1 },
                    &[kiln_dialects::ir::Type::index(b.ctx)],
                    &mut [],
                )?;
                self.values.insert(name.clone(), op.result(0));
                Ok(Size::Dynamic(op.result(0)))
            }
            Expr::Apply(kind, both) => {
                let (x, y) = (self.size(b, &both.0)?, self.size(b, &both.1)?);
                size_op(b, *kind, x, y)
            }
        }
    }
}

/// Largest exponent of a power that is written as a product. Equal sizes are one symbol in a graph:
/// an image of `s` by `s` has `s**2` elements.
const MOST_FACTORS: i64 = 8;

/// `x kind y`, folded if both are static.
pub fn size_op(b: &Builder, kind: SymKind, x: Size, y: Size) -> Result<Size> {
    if let (Some(x), Some(y)) = (x.known(), y.known()) {
        let overflow = || format!("{} of {x} and {y} has no value", kind.keyword()).into();
        return kiln_dialects::sym::evaluate(kind, x, y).map(Size::Static).ok_or_else(overflow);
    }
    if let (SymKind::Pow, Some(n @ 1..=MOST_FACTORS)) = (kind, y.known()) {
        return (1..n).try_fold(x, |all, _| size_op(b, SymKind::Mul, all, x));
    }
    let value = |s: Size| match s {
        Size::Static(n) => b.index(n),
        Size::Dynamic(v) => Ok(v),
    };
    let node = SymExpr { kind, lhs: value(x)?, rhs: value(y)? };
    Ok(Size::Dynamic(
        b.create_with(&node, &[kiln_dialects::ir::Type::index(b.ctx)], &mut [])?.result(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sympy_expressions_parse() {
        let e = parse("Min(Integer(128), Mul(Integer(2), Pow(Symbol('s27', positive=True, integer=True), Integer(2))))").expect("parses");
        let apply = |kind, a, b| Expr::Apply(kind, Box::new((a, b)));
        let pow = apply(SymKind::Pow, Expr::Leaf("s27".into()), Expr::Const(2));
        let mul = apply(SymKind::Mul, Expr::Const(2), pow);
        assert_eq!(e, apply(SymKind::Min, Expr::Const(128), mul));
        assert_eq!(parse("Integer(-1)"), Ok(Expr::Const(-1)));
        for bad in ["", "Add(", "Add(Integer(1)", "Symbol('s", "Add(Integer(1)) x", "Add()"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}

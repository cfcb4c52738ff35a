//! The export's guards as `kiln.require`: Python expressions over input sizes, such as
//! `L['x'].size()[0] % 2 == 0`. Guards on anything else, such as a specialised number input, do not
//! apply to calls of the program.
use super::{
    aten::{Cx, Val},
    srepr::size_op,
};
use kiln_dialects::{
    Result,
    ir::Size,
    ops::{CompareKind, SymKind},
};

/// Emits the guards that compare sizes.
pub fn emit(cx: &mut Cx, guards: &[String]) -> Result<()> {
    cx.location = "a guard of the export".into();
    for guard in guards {
        for part in guard.split(" and ") {
            let mut p = Parser { cx, rest: part, depth: 0 };
            let Some((kind, x, y)) = p.comparison() else { continue };
            if x.known().is_none() || y.known().is_none() {
                cx.require(kind, x, y, part.trim())?;
            }
        }
    }
    Ok(())
}

struct Parser<'a> {
    cx: &'a mut Cx,
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn eat(&mut self, token: &str) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(token)?;
        Some(())
    }
    fn one_of<T: Copy>(&mut self, all: &[(&str, T)]) -> Option<T> {
        all.iter().find_map(|(token, t)| self.eat(token).map(|()| *t))
    }
    fn comparison(&mut self) -> Option<(CompareKind, Size, Size)> {
        use CompareKind::*;
        let x = self.sum()?;
        let kind =
            self.one_of(&[("==", Eq), ("!=", Ne), ("<=", Le), (">=", Ge), ("<", Lt), (">", Gt)])?;
        let y = self.sum()?;
        self.rest.trim().is_empty().then_some((kind, x, y))
    }
    fn apply(&self, kind: SymKind, x: Size, y: Size) -> Option<Size> {
        size_op(&self.cx.b, kind, x, y).ok()
    }
    fn sum(&mut self) -> Option<Size> {
        let mut sum = self.product()?;
        while let Some(sign) = self.one_of(&[("+", 1), ("-", -1)]) {
            let term = self.product()?;
            let term = self.apply(SymKind::Mul, term, Size::Static(sign))?;
            sum = self.apply(SymKind::Add, sum, term)?;
        }
        Some(sum)
    }
    fn product(&mut self) -> Option<Size> {
        let mut product = self.atom()?;
        while let Some(kind) = self.one_of(&[
            ("**", SymKind::Pow),
            ("*", SymKind::Mul),
            ("//", SymKind::Floordiv),
            ("%", SymKind::Mod),
        ]) {
            let factor = self.atom()?;
            product = self.apply(kind, product, factor)?;
        }
        Some(product)
    }
    fn atom(&mut self) -> Option<Size> {
        self.depth += 1;
        if self.depth > 200 {
            return None;
        }
        if self.eat("(").is_some() {
            let inner = self.sum()?;
            return self.eat(")").map(|()| inner);
        }
        if self.eat("-").is_some() {
            let inner = self.atom()?;
            return self.apply(SymKind::Mul, inner, Size::Static(-1));
        }
        if self.eat("L['").is_some() {
            let (name, rest) = self.rest.split_once("'].size()[")?;
            let (axis, rest) = rest.split_once(']')?;
            self.rest = rest;
            let Some(Val::Tensor(alias)) = self.cx.names.get(name).cloned() else { return None };
            let value = self.cx.get(alias).ok()?;
            return self.cx.b.size_of(value, axis.parse().ok()?).ok();
        }
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number = rest[..end].parse().ok()?;
        self.rest = &rest[end..];
        Some(Size::Static(number))
    }
}

//! Sizes that depend on data: bounded before a call, known once a step has read them.
use super::{Dim, Expr, Program, SizeError};
use crate::{CallError, call_error::tensor_error};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A size that a step of the control flow reads from memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unbacked {
    /// Its name in IR.
    pub name: String,
    /// Lower bound of the values that the code is valid for.
    pub min: i64,
    /// Upper bound, of sizes that are known before it.
    pub max: Dim,
    /// The output that has the value, a 0-d i64, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<usize>,
}

/// The sizes of a call so far. An expression of a symbol that has not been read has no value.
#[derive(Clone, Debug, Default)]
pub struct CallSizes {
    /// Values of the symbols, then of the unbacked ones that have been read.
    pub symbols: Vec<i64>,
    /// Values of the expressions.
    pub exprs: Vec<Option<i64>>,
}

/// The value of an expression, by its index, for two operands.
type Evaluate = fn(&Expr, usize, i64, i64) -> Result<i64, SizeError>;

impl CallSizes {
    /// Evaluates the expressions. Err: one of known sizes has no value.
    pub fn new(program: &Program, symbols: Vec<i64>) -> Result<CallSizes, SizeError> {
        CallSizes::evaluated(program, symbols, Expr::value)
    }
    fn evaluated(
        program: &Program,
        symbols: Vec<i64>,
        evaluate: Evaluate,
    ) -> Result<CallSizes, SizeError> {
        let mut sizes = CallSizes { symbols, exprs: Vec::with_capacity(program.exprs.len()) };
        for (index, e) in program.exprs.iter().enumerate() {
            let value = match (sizes.value(program, e.lhs)?, sizes.value(program, e.rhs)?) {
                (Some(lhs), Some(rhs)) => Some(evaluate(e, index, lhs, rhs)?),
                _ => None,
            };
            sizes.exprs.push(value);
        }
        Ok(sizes)
    }
    /// The value of a size; `None` if it has not been read. Err: the program does not have it.
    pub fn value(&self, program: &Program, d: Dim) -> Result<Option<i64>, SizeError> {
        match d {
            Dim::Known(n) => Ok(Some(n)),
            Dim::Symbol(i) if i < self.symbols.len() => Ok(Some(self.symbols[i])),
            Dim::Symbol(i) if i < program.symbols.len() + program.unbacked.len() => Ok(None),
            Dim::Expr(i) if i < self.exprs.len() => Ok(self.exprs[i]),
            d => Err(SizeError::Missing(d)),
        }
    }
    /// As [`CallSizes::value`], of a tensor's dimension.
    pub fn size(&self, program: &Program, d: Dim) -> Result<Option<usize>, SizeError> {
        let negative = |n| usize::try_from(n).map_err(|_| SizeError::Negative(d, n));
        self.value(program, d)?.map(negative).transpose()
    }
    /// Checks the program's conditions on sizes that are known.
    pub fn check(&self, program: &Program) -> Result<(), CallError> {
        for c in &program.conditions {
            let (lhs, rhs) = (self.value(program, c.lhs)?, self.value(program, c.rhs)?);
            if let (Some(lhs), Some(rhs)) = (lhs, rhs)
                && !c.kind.holds(lhs, rhs)
            {
                return Err(CallError::Condition { text: c.text.clone(), lhs, rhs });
            }
        }
        Ok(())
    }
    /// Adds the next unbacked size. Err: it is out of its bounds, or a condition does not hold.
    pub fn read(&mut self, program: &Program, value: i64) -> Result<(), CallError> {
        self.add(program, value)?;
        self.check(program)
    }
    /// Adds the next unbacked size. Err: it is out of its bounds.
    fn add(&mut self, program: &Program, value: i64) -> Result<(), CallError> {
        let next = self.symbols.len().checked_sub(program.symbols.len());
        let u = next.and_then(|i| program.unbacked.get(i));
        let u = u.ok_or(SizeError::Missing(Dim::Symbol(self.symbols.len())))?;
        let max = self.value(program, u.max)?.ok_or(SizeError::Missing(u.max))?;
        if !(u.min..=max).contains(&value) {
            let reason = format!("is {value} here, which is not in {}..={max}", u.min);
            return Err(tensor_error("size", &u.name, reason));
        }
        let symbols = [std::mem::take(&mut self.symbols), vec![value]].concat();
        *self = CallSizes::new(program, symbols)?;
        Ok(())
    }
    /// Adds the upper bound of the next unbacked size, which is no value: what exceeds 64 bits is
    /// as much as they hold.
    fn add_bound(&mut self, program: &Program, u: &Unbacked) -> Result<(), SizeError> {
        let max = self.value(program, u.max)?.ok_or(SizeError::Missing(u.max))?;
        let symbols = [std::mem::take(&mut self.symbols), vec![max]].concat();
        *self = CallSizes::evaluated(program, symbols, Expr::bound)?;
        Ok(())
    }
    /// Values of symbols and expressions with the sizes that have not been read at their upper
    /// bounds.
    pub fn at_bounds(&self, program: &Program) -> Result<(Vec<i64>, Vec<i64>), SizeError> {
        let mut sizes = Cow::Borrowed(self);
        let read = self.symbols.len().saturating_sub(program.symbols.len());
        for u in program.unbacked.iter().skip(read) {
            sizes.to_mut().add_bound(program, u)?;
        }
        let exprs = sizes.exprs.iter().enumerate();
        let exprs = exprs.map(|(i, e)| e.ok_or(SizeError::Missing(Dim::Expr(i))));
        Ok((sizes.symbols.clone(), exprs.collect::<Result<_, _>>()?))
    }
}

impl Program {
    /// The sizes of a call before any is read; `symbols` may go on with unbacked ones.
    pub(crate) fn before_reads(&self, symbols: &[i64]) -> Result<CallSizes, SizeError> {
        CallSizes::new(self, symbols.iter().take(self.symbols.len()).copied().collect())
    }
    /// Shapes of the outputs of a call for inputs of these shapes, given the values of the unbacked
    /// sizes in order, as far as outputs have them. [`Program::output_shapes`] has their upper
    /// bounds, by which a caller allocates; an output lies row-major at the beginning of its memory.
    pub fn output_shapes_of(
        &self,
        inputs: &[&[usize]],
        unbacked: &[Option<i64>],
    ) -> Result<Vec<Vec<usize>>, CallError> {
        let (bounds, _) = self.sizes(inputs)?;
        let mut sizes = self.before_reads(&bounds)?;
        // The call has checked the conditions, which say nothing about bounds.
        for (u, value) in self.unbacked.iter().zip(unbacked) {
            match value {
                Some(value) => sizes.add(self, *value)?,
                None => sizes.add_bound(self, u)?,
            }
        }
        let size = |d: &Dim| Ok(sizes.size(self, *d)?.ok_or(SizeError::Missing(*d))?);
        self.outputs.iter().map(|t| t.dims.iter().map(size).collect()).collect()
    }
    /// Whether an output tells the caller an unbacked size.
    pub fn is_size(&self, output: usize) -> bool {
        self.unbacked.iter().any(|u| u.output == Some(output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Condition, ExprKind, Relation, Symbol, Tensor};

    /// A vector of s elements to one of 2u: u is at most s, and not 3.
    fn program() -> Program {
        let vector =
            |d| Tensor { name: "x".into(), dtype: "f32".into(), dims: vec![d], order: vec![] };
        let symbol = Symbol { name: "s".into(), min: 0, max: None, divisor: 1, input: 0, dim: 0 };
        let bound = Unbacked { name: "u".into(), min: 1, max: Dim::Symbol(0), output: None };
        let not_three = Condition {
            kind: Relation::Ne,
            lhs: Dim::Symbol(1),
            rhs: Dim::Known(3),
            text: "u != 3".into(),
        };
        Program {
            inputs: vec![vector(Dim::Symbol(0))],
            outputs: vec![vector(Dim::Expr(0))],
            symbols: vec![symbol],
            unbacked: vec![bound],
            exprs: vec![Expr { kind: ExprKind::Mul, lhs: Dim::Symbol(1), rhs: Dim::Known(2) }],
            conditions: vec![not_three],
            ..Default::default()
        }
    }

    #[test]
    fn memory_is_of_the_bound_and_shapes_of_the_value() {
        let p = program();
        assert_eq!(p.output_shapes(&[&[5]]).expect("bounds"), [[10]]);
        assert_eq!(p.output_shapes_of(&[&[5]], &[Some(2)]).expect("sizes"), [[4]]);
        let sizes = CallSizes::new(&p, vec![5]).expect("sizes");
        assert_eq!(sizes.value(&p, Dim::Expr(0)), Ok(None));
        assert_eq!(sizes.value(&p, Dim::Symbol(2)), Err(SizeError::Missing(Dim::Symbol(2))));
        assert_eq!(p.size_text(Dim::Expr(0)), "(u * 2)");
    }

    /// Twice a bound of 64 bits is one of 64 bits, and no condition is asked for a bound.
    #[test]
    fn bounds_saturate_and_meet_no_condition() {
        let mut p = program();
        p.unbacked[0].max = Dim::Known(i64::MAX);
        let bounds = CallSizes::new(&p, vec![3]).expect("sizes").at_bounds(&p).expect("bounds");
        assert_eq!(bounds, (vec![3, i64::MAX], vec![i64::MAX]));
        p.unbacked[0].max = Dim::Symbol(0);
        assert_eq!(p.output_shapes_of(&[&[3]], &[None]).expect("bounds"), [[6]]);
    }

    #[test]
    fn values_out_of_bounds_and_against_conditions_are_errors() {
        let p = program();
        // The condition does not hold for the bound, and says nothing before the value is read.
        assert_eq!(p.output_shapes(&[&[3]]).expect("bounds"), [[6]]);
        for (value, said) in [(0, "1..=5"), (6, "1..=5"), (-1, "1..=5"), (3, "u != 3")] {
            let mut sizes = CallSizes::new(&p, vec![5]).expect("sizes");
            let e = sizes.read(&p, value).expect_err("an error").to_string();
            assert!(e.contains(said), "{value}: {e}");
        }
        let mut sizes = CallSizes::new(&p, vec![5]).expect("sizes");
        sizes.read(&p, 4).expect("a size");
        assert_eq!(sizes.value(&p, Dim::Expr(0)), Ok(Some(8)));
        assert!(sizes.read(&p, 1).is_err(), "there is one size only");
    }
}

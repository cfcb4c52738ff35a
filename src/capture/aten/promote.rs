//! PyTorch's type promotion (`torch.result_type`): tensors with dimensions take precedence over 0-d
//! tensors, and these over numbers; a lower class only raises the category.
use super::{Args, Cx, Val, tools::*};
use kiln_dialects::{ir::*, value::DType};

/// Category: 0 bool, 1 integer, 2 float.
fn category(d: DType) -> u8 {
    match d {
        DType::I1 => 0,
        _ if d.is_float() => 2,
        _ => 1,
    }
}

/// `torch.promote_types`.
pub(super) fn promote(a: DType, b: DType) -> DType {
    use DType::*;
    if a == b {
        return a;
    }
    match (category(a), category(b)) {
        (x, y) if x < y => b,
        (x, y) if x > y => a,
        (2, _) => match (a.bits().max(b.bits()), a.bits() == b.bits()) {
            // f16 and bf16 have no common 16-bit type, nor do the two 8-bit floats have a common
            // 8-bit type.
            (16, true) => F32,
            (8, true) => F32,
            _ if a.bits() > b.bits() => a,
            _ => b,
        },
        _ => match (a, b) {
            (UI8, I8) | (I8, UI8) => I16,
            (UI8, x) | (x, UI8) => x,
            _ if a.bits() > b.bits() => a,
            _ => b,
        },
    }
}

/// `torch.can_cast`: whether a result may be written to another dtype. Only the category matters.
pub(super) fn can_cast(from: DType, to: DType) -> bool {
    category(from) <= category(to)
}

fn combine(higher: Option<DType>, lower: Option<DType>) -> Option<DType> {
    match (higher, lower) {
        (Some(h), Some(l)) if category(h) < category(l) => {
            Some(if category(h) == 0 { l } else { promote(h, l) })
        }
        (Some(h), _) => Some(h),
        (None, l) => l,
    }
}

/// The result dtype of tensors and numbers.
pub(super) fn result_type(tensors: &[Value], numbers: &[&Val]) -> Result<DType> {
    let (mut dim, mut zero, mut wrapped) = (None, None, None);
    for t in tensors {
        let d = dtype_of(*t)?;
        let slot = if rank_of(*t) > 0 { &mut dim } else { &mut zero };
        *slot = Some(slot.map_or(d, |old| promote(old, d)));
    }
    for n in numbers {
        let d = match n {
            Val::Bool(_) | Val::Condition(..) => DType::I1,
            Val::Int(_) => DType::I64,
            // A float number has the default dtype, torch.get_default_dtype().
            Val::Float(_) | Val::Fraction(..) | Val::Number(_, DType::F64) => DType::F32,
            Val::Number(_, d) => *d,
            _ => return Err("wants a number".into()),
        };
        wrapped = Some(wrapped.map_or(d, |old| promote(old, d)));
    }
    combine(dim, combine(zero, wrapped)).ok_or_else(|| "has neither tensors nor numbers".into())
}

impl Cx {
    /// Two arguments, tensors or numbers, converted to their common dtype.
    pub(super) fn promoted(&mut self, a: &Args<'_>, x: &str, y: &str) -> Result<(Value, Value)> {
        let dtype = self.common_dtype(a, &[x, y])?;
        Ok((self.operand(a, x, dtype)?, self.operand(a, y, dtype)?))
    }
    /// The promoted dtype of arguments, tensors or numbers.
    pub(super) fn common_dtype(&mut self, a: &Args<'_>, names: &[&str]) -> Result<DType> {
        let (mut tensors, mut numbers) = (vec![], vec![]);
        for name in names {
            match a.values.get(name) {
                Some(Val::Tensor(t)) => tensors.push(self.get(*t)?),
                Some(v) => numbers.push(v),
                None => return Err(format!("argument {name} is missing").into()),
            }
        }
        result_type(&tensors, &numbers)
    }
    /// A tensor or number argument, as a tensor of this dtype.
    pub(super) fn operand(&mut self, a: &Args<'_>, name: &str, dtype: DType) -> Result<Value> {
        match a.values.get(name) {
            Some(Val::Tensor(t) | Val::Number(t, _)) => {
                let v = self.get(*t)?;
                self.convert(v, dtype)
            }
            // A number converts to bool as `x != 0`.
            Some(Val::Int(Size::Static(n))) if dtype == DType::I1 => {
                self.number(dtype, f64::from(*n != 0))
            }
            Some(Val::Float(x)) if dtype == DType::I1 => self.number(dtype, f64::from(*x != 0.0)),
            Some(Val::Int(Size::Static(n))) => self.integer(dtype, *n),
            Some(v @ (Val::Int(_) | Val::Fraction(..) | Val::Condition(..))) => {
                self.scalar(v, dtype)
            }
            Some(Val::Float(x)) => self.number(dtype, *x),
            Some(Val::Bool(b)) => self.number(dtype, f64::from(*b)),
            _ => Err(format!("argument {name} should be a tensor or a number").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::*;

    #[test]
    fn types_promote_as_in_pytorch() {
        for (a, b, want) in [
            (F16, BF16, F32),
            (I64, F16, F16),
            (UI8, I8, I16),
            (UI8, I32, I32),
            (I1, UI8, UI8),
            (F32, F64, F64),
            (I32, I16, I32),
            (F8E4M3FN, F32, F32),
        ] {
            assert_eq!((promote(a, b), promote(b, a)), (want, want));
        }
        // A higher class keeps its dtype against a lower class of the same category.
        assert_eq!(combine(Some(I16), combine(None, Some(I64))), Some(I16));
        assert_eq!(combine(Some(I16), combine(None, Some(F32))), Some(F32));
        assert_eq!(combine(Some(BF16), combine(Some(F64), None)), Some(BF16));
        assert_eq!(combine(Some(I1), combine(None, Some(I64))), Some(I64));
    }
}

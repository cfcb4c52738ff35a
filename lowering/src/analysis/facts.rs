//! Facts about a kernel's size parameters and what follows for polynomials of them: the one place
//! that decides whether a dynamic size or stride is a multiple of a number.
use crate::analysis::Poly;
use kiln_dialects::{ir::*, rules::param_attrs, sym::common_divisor};

/// Attribute of an `index` parameter of a kernel: a divisor of it greater than 1.
pub const DIVISOR: &str = "kiln.divisor";
/// Attribute of an `index` parameter: its lower bound.
pub const LEAST: &str = "kiln.least";

/// Attribute of a tensor parameter of a kernel, a unit: no launch of the program writes it.
pub const CONSTANT: &str = "kiln.constant";

/// Whether no launch of the program writes a parameter.
pub fn is_constant(v: Value) -> bool {
    param_attrs(v).is_some_and(|a| a.entry(CONSTANT).is_some())
}

fn number(v: Value, name: &str) -> Option<i64> {
    param_attrs(v)?.entry(name)?.as_i64()
}

/// A known divisor of an SSA size.
fn divisor(v: Value) -> i64 {
    let Some(op) = v.def() else { return number(v, DIVISOR).unwrap_or(1) };
    let of = |i: usize| divisor(op.operand(i));
    match op.name().as_str() {
        arith::Constant::NAME => {
            op.attr("value").and_then(Attr::as_i64).map_or(1, i64::saturating_abs)
        }
        arith::MulI::NAME => common_divisor([(1, vec![of(0), of(1)])]),
        arith::AddI::NAME | arith::MinSI::NAME | arith::MaxSI::NAME | arith::RemUI::NAME => {
            common_divisor([(1, vec![of(0)]), (1, vec![of(1)])])
        }
        arith::DivUI::NAME => {
            let by =
                op.operand(1).def_as::<arith::Constant>().and_then(|d| d.attr("value")?.as_i64());
            by.map(|k| (of(0), k)).filter(|(d, k)| *k > 0 && d % k == 0).map_or(1, |(d, k)| d / k)
        }
        _ => 1,
    }
}

/// Program order of a size: block arguments first, then ops. Handles compare by address, which is
/// not deterministic from run to run.
fn position(v: Value) -> (bool, usize) {
    match (v.block_arg(), v.def().and_then(Op::block)) {
        (Some((_, i)), _) => (false, i),
        (_, Some(block)) => {
            (true, block.ops().into_iter().position(|op| Some(op) == v.def()).unwrap_or(0))
        }
        _ => (true, 0),
    }
}

impl Poly {
    /// The terms in deterministic order.
    pub fn in_order(&self) -> Vec<(Vec<Value>, i64)> {
        let mut all: Vec<_> = self.terms().map(|(sizes, k)| (sizes.to_vec(), k)).collect();
        all.iter_mut().for_each(|(sizes, _)| sizes.sort_by_cached_key(|v| position(*v)));
        all.sort_by_cached_key(|(sizes, _)| sizes.iter().map(|v| position(*v)).collect::<Vec<_>>());
        all
    }
    /// Whether it is a multiple of `n` for all sizes; 0 is one of every number.
    pub fn multiple_of(&self, n: i64) -> bool {
        // Most are constants, or have a coefficient that settles it.
        if self.terms().all(|(_, k)| k % n == 0) {
            return true;
        }
        self.divisor(&|v| divisor(*v)) % n == 0
    }
    /// A lower bound, as far as one is known; sizes are not negative.
    pub fn at_least(&self) -> Option<i64> {
        self.terms().try_fold(0i64, |sum, (sizes, k)| {
            let least =
                sizes.iter().try_fold(k, |all, v| all.checked_mul(number(*v, LEAST).unwrap_or(0)));
            // Without a size a constant may be negative.
            least.filter(|_| k >= 0 || sizes.is_empty()).and_then(|least| sum.checked_add(least))
        })
    }
}

//! Which reductions can be split into partial results.
use crate::analysis::{Body, Init, Output, Stage};
use kiln_dialects::{ir::*, value::DType};

/// Attribute of a `linalg.generic` that reduces. Its block takes as many new elements as
/// accumulators, of the same types, and also combines two partial results; its outputs' initial
/// values are identities. It is a variadic `linalg.reduce`.
pub const MERGES: &str = "kiln.merges";

impl Stage {
    /// Whether partial results of all its reductions can be combined.
    pub fn combines(&self) -> bool {
        let alone = |o: &Output| o.combine.as_ref().is_some_and(|c| c.identity().is_some());
        self.merges || self.outputs.iter().filter(|o| o.reduces).all(alone)
    }

    /// Checks what [`MERGES`] promises, as far as the IR shows it.
    pub(crate) fn merge_is_sound(&self) -> Result<()> {
        let Body::Block(block) = self.body else { return Err("has no block that merges".into()) };
        let types: Vec<_> = block.args().iter().map(|v| v.ty()).collect();
        let (new, running) = types.split_at(self.inputs.len().min(types.len()));
        let starts = self.outputs.iter().all(|o| o.reduces && matches!(o.init, Init::Fill(_)));
        let pure = self.captured.is_empty() && self.indexed.is_empty();
        let sound = new == running && starts && pure;
        if sound {
            Ok(())
        } else {
            Err(format!(
                "has {MERGES}, but takes more than an element for each of its running values, or starts from none"
            ).into())
        }
    }
}

/// Combination of two partial results.
#[derive(Clone, Copy, Debug)]
pub struct Combine {
    /// The op of the body that takes the loop-carried value.
    pub op: Op,
    /// Its other operand.
    pub other: Value,
    /// Its kind in `vector.reduction`.
    pub kind: CombiningKind,
}

impl Combine {
    /// The combination of the output whose loop-carried value is `running` and whose next value is
    /// `next`.
    pub fn of(block: Block, running: Value, next: Value) -> Option<Combine> {
        let op = next.def().filter(|o| o.block() == Some(block) && o.operand_count() == 2)?;
        let kind = KINDS.iter().find(|(name, _)| op.is(name))?.1;
        let other = if op.operand(0) == running { op.operand(1) } else { op.operand(0) };
        let once = running.uses().len() == 1
            && other != running
            && op.operands().contains(&running)
            && next.uses().len() == 1;
        once.then_some(Combine { op, other, kind })
    }
    /// The identity, a scalar.
    pub fn identity(&self) -> Option<Attr> {
        use CombiningKind as K;
        let ty = self.op.result(0).ty();
        let dtype = ty.dtype().ok()?;
        let bits = dtype.byte_size() as u32 * 8;
        let least = if bits == 64 { i64::MIN } else { -(1i64 << (bits - 1)) };
        let infinite = matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16);
        let float = |x: f64| Attr::number(ty, x).ok();
        let integer = |n: i64| Attr::integer(ty, n).ok();
        match (self.kind, dtype.is_float()) {
            (K::Add, true) => float(-0.0),
            (K::Mul, true) => float(1.0),
            (K::Maximumf | K::Maxnumf, true) if infinite => float(f64::NEG_INFINITY),
            (K::Minimumf | K::Minnumf, true) if infinite => float(f64::INFINITY),
            (K::Add | K::Or | K::Xor | K::Maxui, false) => integer(0),
            (K::Mul, false) => integer(1),
            (K::And | K::Minui, false) => integer(-1),
            (K::Maxsi, false) => integer(least),
            (K::Minsi, false) => integer(-(least + 1)),
            _ => None,
        }
    }
}

const KINDS: &[(&str, CombiningKind)] = &[
    (arith::AddF::NAME, CombiningKind::Add),
    (arith::MulF::NAME, CombiningKind::Mul),
    (arith::MaximumF::NAME, CombiningKind::Maximumf),
    (arith::MinimumF::NAME, CombiningKind::Minimumf),
    (arith::MaxNumF::NAME, CombiningKind::Maxnumf),
    (arith::MinNumF::NAME, CombiningKind::Minnumf),
    (arith::AddI::NAME, CombiningKind::Add),
    (arith::MulI::NAME, CombiningKind::Mul),
    (arith::AndI::NAME, CombiningKind::And),
    (arith::OrI::NAME, CombiningKind::Or),
    (arith::XOrI::NAME, CombiningKind::Xor),
    (arith::MaxSI::NAME, CombiningKind::Maxsi),
    (arith::MinSI::NAME, CombiningKind::Minsi),
    (arith::MaxUI::NAME, CombiningKind::Maxui),
    (arith::MinUI::NAME, CombiningKind::Minui),
];

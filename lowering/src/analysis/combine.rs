//! Which reductions can be split into partial results.
use crate::analysis::{Body, Init, Output, Stage};
use kiln_dialects::{
    Result,
    ir::{Block, Op, Value},
    value::DType,
};

/// Attribute of a `linalg.generic` that reduces. Its block takes as many new elements as
/// accumulators, of the same types, and also combines two partial results; its outputs' initial
/// values are identities. It is a variadic `linalg.reduce`.
pub const MERGES: &str = "kiln.merges";

impl Stage {
    /// Whether partial results of all its reductions can be combined.
    pub fn combines(&self) -> bool {
        let alone = |o: &Output| {
            o.combine
                .as_ref()
                .is_some_and(|c| c.op.result(0).ty().dtype().is_ok_and(|d| c.identity(d).is_some()))
        };
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
    pub kind: &'static str,
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
    /// The text of the identity.
    pub fn identity(&self, dtype: DType) -> Option<String> {
        let bits = dtype.byte_size() as u32 * 8;
        let least = if bits == 64 { i64::MIN } else { -(1i64 << (bits - 1)) };
        Some(match (self.kind, dtype.is_float()) {
            ("add", true) => "-0.0".into(),
            ("mul", true) => "1.0".into(),
            ("maximumf" | "maxnumf", true) => infinity(dtype, true)?,
            ("minimumf" | "minnumf", true) => infinity(dtype, false)?,
            ("add" | "or" | "xor" | "maxui", false) => "0".into(),
            ("mul", false) => "1".into(),
            ("and" | "minui", false) => "-1".into(),
            ("maxsi", false) => least.to_string(),
            ("minsi", false) => (-(least + 1)).to_string(),
            _ => return None,
        })
    }
}

fn infinity(dtype: DType, negative: bool) -> Option<String> {
    let bits = match dtype {
        DType::F64 => "7FF0000000000000",
        DType::F32 => "7F800000",
        DType::F16 => "7C00",
        DType::BF16 => "7F80",
        _ => return None,
    };
    // The bits of every positive infinity begin with a 7; the sign bit makes it an F.
    Some(if negative { format!("0xF{}", &bits[1..]) } else { format!("0x{bits}") })
}

const KINDS: &[(&str, &str)] = &[
    ("arith.addf", "add"),
    ("arith.mulf", "mul"),
    ("arith.maximumf", "maximumf"),
    ("arith.minimumf", "minimumf"),
    ("arith.maxnumf", "maxnumf"),
    ("arith.minnumf", "minnumf"),
    ("arith.addi", "add"),
    ("arith.muli", "mul"),
    ("arith.andi", "and"),
    ("arith.ori", "or"),
    ("arith.xori", "xor"),
    ("arith.maxsi", "maxsi"),
    ("arith.minsi", "minsi"),
    ("arith.maxui", "maxui"),
    ("arith.minui", "minui"),
];

//! `kiln-decompose`: expands composite ops into prims.
//!
//! Why: passes below level `graph` handle 85 ops instead of 110. `keep` names the composites that
//! stay because one kernel beats their expansion (softmax, normalisations, attention, …).
//!
//! Numerics: reassociates. A composite rounds once, its prims round after each op; accumulators and
//! statistics of 16-bit floats are f32 in both.
//!
//! ```text
//! before:  %0 = kiln.silu %x : tensor<4xf32>
//! after:   %0 = kiln.neg %x …  %1 = kiln.exp %0 …  %2 = kiln.add %1, %one …  %3 = kiln.div %one, %2 …  %4 = kiln.mul %x, %3 : tensor<4xf32>
//! ```
mod activation;
pub(crate) mod attention;
pub(crate) mod attention_gradient;
mod contract;
mod image;
mod loss;
mod norm;
mod region;
pub(crate) mod tools;

use crate::{
    names::hint,
    pass::{Numerics, Pass},
};
use kiln_dialects::{
    ir::*,
    ops::OpKind,
    rules::{GRAPH_LEVELS, Level},
};
use std::collections::{HashMap, HashSet};
use tools::Math;

/// Unit of explanation on the matmuls of a decomposed attention: why no fused kernel computes it.
pub const NOT_FUSED: &str = "kiln.not_fused";

crate::pass_options! {
    /// The pass.
    pub struct Decompose {
        /// Mnemonics of composites to keep, such as attention,softmax; `strategies`: all that have
        /// a kernel strategy; `kernels`: those whose form such a strategy supports; `none`: none
        pub keep: Vec<String> = vec!["attention".into(), "attention_gradient".into()],
        /// The GPU that `kernels` asks for support, such as sm_90a; none: the host CPU
        pub chip: String = "none".into(),
    }
}

impl Pass for Decompose {
    const FLAG: &'static str = "kiln-decompose";
    const SUMMARY: &'static str = "Expands composite ops into prims";
    const LEVELS: &'static [Level] = GRAPH_LEVELS;
    const LOWERS_TO: Option<Level> = Some(Level::Prims);
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Reassociates;

    fn run(&self, root: Op) -> Result<()> {
        let keep = self.kept()?;
        // Innermost ops first, so that a region holds only prims when its op is expanded.
        for op in walk(root).into_iter().rev() {
            let Some(kind) = op.kind().filter(|k| k.is_composite()) else { continue };
            let why = match kind {
                _ if self.keep != ["kernels"] => None,
                OpKind::Attention => attention::unsupported(op, &self.chip),
                OpKind::AttentionGradient => attention_gradient::unsupported(op, &self.chip),
                _ => None,
            };
            if keep.contains(&kind) && why.is_none() {
                continue;
            }
            let said = why.map(|why| format!("{} not fused: {why}", kind.mnemonic()));
            let said = said.or_else(|| op.attr(NOT_FUSED).and_then(Attr::as_string));
            let old: HashSet<Op> = if said.is_some() {
                op.block().iter().flat_map(|b| b.ops()).collect()
            } else {
                HashSet::new()
            };
            let builder = Builder::before(op).ok_or_at(op, "is in no block")?;
            let values = expand(kind, op, &builder).at(op)?;
            if values.len() != op.result_count() {
                return Err(Error::at(op, format!("decomposes to {} values", values.len())));
            }
            for (old, new) in op.results().into_iter().zip(values) {
                // The composite's type may have more or fewer static dimensions than its expansion.
                let new = Math { b: &builder }.retype(new, old.ty()).at(op)?;
                old.replace_uses(new);
            }
            if let Some(said) = said {
                let why = Attr::string(op.ctx(), &said);
                let all = op.block().map(|b| b.ops()).unwrap_or_default();
                let new = all
                    .into_iter()
                    .filter(|o| !old.contains(o) && o.kind() == Some(OpKind::DotGeneral));
                new.for_each(|o| o.set_attr(NOT_FUSED, why));
            }
            op.erase();
        }
        root.set_attr("kiln.level", Attr::string(root.ctx(), Level::Prims.name()));
        Ok(())
    }
}

impl Decompose {
    fn kept(&self) -> Result<Vec<OpKind>> {
        let able: Vec<OpKind> = OpKind::ALL.iter().copied().filter(|k| k.has_strategy()).collect();
        if self.keep == ["kernels"] {
            return Ok(vec![OpKind::Attention, OpKind::AttentionGradient]);
        }
        if self.keep == ["none"] {
            return Ok(vec![]);
        }
        if self.keep.iter().any(|k| k == "strategies") {
            return Ok(able);
        }
        let find = |name: &String| {
            let found = able.iter().copied().find(|k| k.mnemonic() == name);
            let names = able.iter().map(|k| k.mnemonic());
            found.ok_or_else(|| {
                Error::from(format!(
                    "keep names '{name}', which has no kernel strategy{}",
                    hint(name, names)
                ))
            })
        };
        self.keep.iter().map(find).collect()
    }
}

const PRIM: &str = "is a prim and has no decomposition";

/// Builds the expansion before `op`, with the same results (column "decomposition" of the op
/// table).
pub(crate) fn expand(kind: OpKind, op: Op, b: &Builder) -> Result<Vec<Value>> {
    use OpKind::*;
    let one = match kind {
        Sigmoid | Silu | Relu | Hardtanh | Hardsigmoid | Hardswish | Gelu | Softplus => {
            activation::expand(kind, op, b)
        }
        Linear | Matmul | Embedding => contract::expand(kind, op, b),
        LayerNorm | GroupNorm | BatchNorm | RmsNorm | Softmax | LogSoftmax | Mean | Var | Std => {
            norm::expand(kind, op, b)
        }
        CrossEntropy | Dropout => loss::expand(kind, op, b),
        StopGradient => Ok(op.operand(0)),
        Checkpoint => return inlined(op, b),
        Interpolate | MaxPool | AvgPool | AdaptiveAvgPool => image::expand(kind, op, b),
        Attention => return attention::expand(op, b),
        AttentionGradient => return attention_gradient::expand(op, b),
        StructuredAttentionGradient => Err(PRIM.into()),
        StructuredIndex
        | StructuredContract
        | StructuredScan
        | StructuredFft
        | StructuredAttention
        | TileWarpSpecialize
        | TilePipeline
        | TileFirstStage
        | TileNextStage
        | TileAcquire
        | TileWait
        | TileRelease
        | TileTmaLoad
        | TileView
        | TileZeroRows
        | TileMma
        | TileMmaWait
        | TileIota
        | TileBroadcast
        | TileMap
        | TileReduce
        | TileConvert
        | TileStore
        | TileLocalLoad
        | TileLoad
        | TileSplit
        | TileClusterReduce
        | TileEpilogue
        | OptimizationBarrier
        | Sym
        | SymExpr
        | Dim
        | BindShape
        | Require
        | RequireIndex
        | AdvanceRng
        | Global
        | GetGlobal
        | Launch
        | Arena
        | ArenaSize
        | Reuse
        | Output
        | Neg
        | Abs
        | Sign
        | Exp
        | Exp2
        | Expm1
        | Log
        | Log1p
        | Log2
        | Sqrt
        | Rsqrt
        | Sin
        | Cos
        | Tan
        | Asin
        | Acos
        | Atan
        | Sinh
        | Cosh
        | Tanh
        | Erf
        | Ceil
        | Floor
        | RoundEven
        | Trunc
        | Not
        | IsFinite
        | IsNan
        | Add
        | Sub
        | Mul
        | Div
        | Rem
        | FloorDiv
        | Pow
        | Max
        | Min
        | Atan2
        | And
        | Or
        | Xor
        | Shl
        | Shr
        | Compare
        | Select
        | Clamp
        | Convert
        | Bitcast
        | Constant
        | Splat
        | Iota
        | BroadcastInDim
        | Reshape
        | Transpose
        | Slice
        | Pad
        | Concat
        | InsertSlice
        | Reverse
        | Gather
        | Scatter
        | DynamicSlice
        | DynamicUpdateSlice
        | Reduce
        | ArgMax
        | ArgMin
        | Cumulative
        | Sort
        | TopK
        | Fft
        | DotGeneral
        | Convolution
        | ReduceWindow
        | ConvolutionWeightGradient
        | WinogradInput
        | WinogradOutput
        | Philox
        | RandomBits
        | RandomUniform
        | RandomNormal
        | If
        | While
        | Scan
        | Yield
        | CustomCall
        | UnbackedSize
        | PtxCall => Err(PRIM.into()),
    };
    one.map(|v| vec![v])
}

/// The values that a region without arguments yields, whose ops move in front of its op.
fn inlined(op: Op, b: &Builder) -> Result<Vec<Value>> {
    let block = op.regions().first().and_then(|r| r.first()).ok_or("has no body")?;
    let mut map = HashMap::new();
    for inner in block.ops() {
        let now = |v: Value| *map.get(&v).unwrap_or(&v);
        if inner.kind() == Some(OpKind::Yield) {
            return Ok(inner.operands().into_iter().map(now).collect());
        }
        let copy = b.clone_op(inner, &now)?;
        map.extend(inner.results().into_iter().zip(copy.results()));
    }
    Err("has a body without a terminator".into())
}

//! Column "batching" of the op table.
use super::{Batch, rules};
use kiln_dialects::{
    Result,
    ir::{Op, Value},
    ops::OpKind,
};

/// How an op computes a batch.
#[derive(Clone, Copy)]
pub enum Batching {
    /// By a rule of its own.
    Own(Rule),
    /// By itself: leading dimensions make no difference.
    Same,
    /// It is a size, which is the same for all examples.
    Size,
    /// It states sizes, which are the same for all examples.
    Fact,
    /// By the rules of the ops that `kiln-decompose` expands it into.
    Decomposed,
    /// By a scan over the examples.
    Repeated,
    /// Not at all; why.
    Refused(&'static str),
}

/// Emits the batches of an op's results; `None`: these operands take the rules of the op's
/// decomposition, or a scan.
pub type Rule = fn(&Batch, Op) -> Result<Option<Vec<Value>>>;

impl Batching {
    /// The note in the op reference.
    pub fn note(self) -> String {
        match self {
            Batching::Own(_) => "own rule".into(),
            Batching::Same => "the op itself".into(),
            Batching::Size | Batching::Fact => "does not depend on it".into(),
            Batching::Decomposed => "that of its decomposition".into(),
            Batching::Repeated => "a scan".into(),
            Batching::Refused(why) => format!("none: it {why}"),
        }
    }
}

/// How ops of this kind compute a batch.
pub fn batching(kind: OpKind) -> Batching {
    use Batching::{Decomposed, Fact, Own, Refused, Repeated, Same, Size};
    use OpKind::*;
    const BELOW: &str = "is an op of kernels, below level graph";
    match kind {
        Neg | Abs | Sign | Exp | Exp2 | Expm1 | Log | Log1p | Log2 | Sqrt | Rsqrt | Sin | Cos
        | Tan | Asin | Acos | Atan | Sinh | Cosh | Tanh | Erf | Ceil | Floor | RoundEven
        | Trunc | Not | IsFinite | IsNan => Same,
        Add | Sub | Mul | Div | Rem | FloorDiv | Pow | Max | Min | Atan2 | And | Or | Xor | Shl
        | Shr | Compare | Select | Clamp | Convert | Bitcast => Own(rules::elementwise),
        Sigmoid | Silu | Relu | Hardtanh | Hardsigmoid | Hardswish | Gelu | Softplus
        | StopGradient | OptimizationBarrier => Same,

        BroadcastInDim => Own(rules::broadcast_in_dim),
        Reshape => Own(rules::reshape),
        Transpose => Own(rules::transpose),
        Slice => Own(rules::slice),
        Pad => Own(rules::pad),
        Concat => Own(rules::concat),
        Reverse => Own(rules::reverse),
        Gather => Own(rules::gather),
        Scatter => Own(rules::scatter),
        DynamicSlice => Own(rules::dynamic_slice),
        DynamicUpdateSlice => Own(rules::dynamic_update_slice),
        Reduce => Own(rules::reduce),
        ArgMax | ArgMin => Own(rules::arg_max),
        Fft => Own(rules::fft),
        Cumulative => Own(rules::cumulative),
        Sort | TopK => Own(rules::sort),
        ReduceWindow => Own(rules::reduce_window),
        Convolution => Own(rules::convolution),
        DotGeneral => Own(rules::dot_general),
        Softmax | LogSoftmax => Own(rules::softmax),
        Linear | LayerNorm | RmsNorm => Own(rules::weighted),
        Attention => Own(rules::attention),

        Matmul | Embedding | GroupNorm | BatchNorm | CrossEntropy | Mean | Var | Std
        | Interpolate | AvgPool | AdaptiveAvgPool | MaxPool | AttentionGradient => Decomposed,
        Checkpoint => Own(Batch::checkpoint),

        Dropout | Philox | RandomBits | RandomUniform | RandomNormal | If | While | Scan
        | CustomCall | PtxCall => Repeated,

        Dim => Size,
        BindShape => Fact,
        // Without batched operands these are computed once.
        Sym | SymExpr | Global | GetGlobal | Constant | Splat | Iota | Yield => {
            Refused("has no operand that differs between examples")
        }
        Require | RequireIndex => Refused("is a condition on each example"),
        AdvanceRng => Refused("states how far the generator moves, of one example"),
        UnbackedSize => Refused("binds a size for each example"),
        ConvolutionWeightGradient | WinogradInput | WinogradOutput => Refused(BELOW),
        InsertSlice => Refused("writes into the buffer of another value"),
        Launch | Arena | ArenaSize | Reuse | Output => Refused(BELOW),
        StructuredIndex
        | StructuredContract
        | StructuredScan
        | StructuredFft
        | StructuredAttention
        | StructuredAttentionGradient => Refused(BELOW),
        TileWarpSpecialize | TilePipeline | TileFirstStage | TileNextStage | TileAcquire
        | TileWait | TileRelease | TileTmaLoad | TileView | TileZeroRows | TileMma
        | TileMmaWait | TileIota | TileBroadcast | TileMap | TileReduce | TileConvert
        | TileStore | TileLocalLoad | TileLoad | TileSplit | TileClusterReduce | TileEpilogue => {
            Refused(BELOW)
        }
    }
}

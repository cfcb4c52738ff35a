//! Column "derivative" of the op table.
use super::{
    activation, attention, contract, control, convolution, cumulative, elementwise, fourier,
    indexed, loss, movement, norm, reduce, rule::Rule, window,
};
use kiln_dialects::{Result, ops::OpKind};

/// How an op is differentiated.
#[derive(Clone, Copy)]
pub enum Derivative {
    /// Its results are no floats, or do not change with small changes of its operands.
    Zero,
    /// By a rule of its own.
    Own(fn(&mut Rule<'_>) -> Result<()>),
    /// By the rules of the ops that `kiln-decompose` expands it into.
    Decomposed,
    /// Not at all; why.
    Refused(&'static str),
}

impl Derivative {
    /// The note in the op reference.
    pub fn note(self) -> String {
        match self {
            Derivative::Zero => "zero".into(),
            Derivative::Own(_) => "own rule".into(),
            Derivative::Decomposed => "that of its decomposition".into(),
            Derivative::Refused(why) => format!("none: it {why}"),
        }
    }
}

/// How ops of this kind are differentiated.
pub fn derivative(kind: OpKind) -> Derivative {
    use Derivative::{Decomposed, Own, Refused, Zero};
    use OpKind::*;
    const BELOW: &str = "is an op of kernels, below level graph";
    match kind {
        Sign | Ceil | Floor | RoundEven | Trunc | FloorDiv => Zero,
        Not | IsFinite | IsNan | And | Or | Xor | Shl | Shr | Compare | ArgMax | ArgMin => Zero,
        Sym | SymExpr | Dim | BindShape | Require | RequireIndex | AdvanceRng | Global
        | GetGlobal | UnbackedSize => Zero,
        Constant | Splat | Iota | Philox | RandomBits | RandomUniform | RandomNormal | Yield => {
            Zero
        }
        StopGradient => Zero,

        Neg | Abs | Exp | Exp2 | Expm1 | Log | Log1p | Log2 | Sqrt | Rsqrt | Sin | Cos | Tan
        | Asin | Acos | Atan | Sinh | Cosh | Tanh | Erf => Own(elementwise::unary),
        Add | Sub | Mul | Div | Rem | Pow | Max | Min | Atan2 => Own(elementwise::binary),
        Select => Own(elementwise::select),
        Clamp => Own(elementwise::clamp),
        Convert => Own(elementwise::convert),

        BroadcastInDim => Own(movement::broadcast_in_dim),
        Reshape => Own(movement::reshape),
        Transpose => Own(movement::transpose),
        Slice => Own(movement::slice),
        Pad => Own(movement::pad),
        Concat => Own(movement::concat),
        Reverse => Own(movement::reverse),
        Gather => Own(indexed::gather),
        Scatter => Own(indexed::scatter),
        DynamicSlice => Own(indexed::dynamic_slice),
        DynamicUpdateSlice => Own(indexed::dynamic_update_slice),

        Reduce => Own(reduce::reduce),
        Sort => Own(reduce::sort),
        TopK => Own(reduce::top_k),
        Fft => Own(fourier::fft),
        Cumulative => Own(cumulative::cumulative),
        ReduceWindow => Own(window::reduce_window),
        DotGeneral => Own(contract::dot_general),
        Convolution => Own(convolution::convolution),

        Sigmoid | Silu | Relu | Hardtanh | Hardsigmoid | Hardswish | Gelu | Softplus => {
            Own(activation::activation)
        }
        Linear => Own(contract::linear),
        Embedding => Own(indexed::embedding),
        LayerNorm => Own(norm::layer_norm),
        RmsNorm => Own(norm::rms_norm),
        BatchNorm => Own(norm::batch_norm),
        Var => Own(norm::variance),
        Softmax => Own(norm::softmax),
        LogSoftmax => Own(norm::log_softmax),
        CrossEntropy => Own(loss::cross_entropy),
        Attention => Own(attention::attention),
        Matmul | GroupNorm | Mean | Std | Dropout | Interpolate | MaxPool | AvgPool
        | AdaptiveAvgPool | AttentionGradient => Decomposed,

        OptimizationBarrier => Own(control::barrier),
        Checkpoint => Own(control::checkpoint),
        If => Own(control::branch),
        Scan => Own(control::scan),
        While => Refused("repeats an unknown number of times; a kiln.scan can be differentiated"),
        CustomCall => Refused("calls a function outside of the graph"),
        PtxCall => Refused("calls an external kernel"),
        Bitcast => Refused("reads the bits of a number"),
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

//! The allowed error of a compiled op, in words; the tests have the tolerances.
use crate::ops::OpKind;

/// The note in the op reference.
pub fn numerics(kind: OpKind) -> &'static str {
    const EXACT: &str = "exact";
    const ROUNDED: &str = "correctly rounded";
    const ULP: &str = "a few ulp of the dtype";
    const SUM: &str = "reassociates: sums in any order, f32 accumulation for 16-bit floats";
    match kind {
        OpKind::Add | OpKind::Sub | OpKind::Mul | OpKind::Div | OpKind::Sqrt | OpKind::Convert => {
            ROUNDED
        }
        OpKind::Neg
        | OpKind::Abs
        | OpKind::Sign
        | OpKind::Ceil
        | OpKind::Floor
        | OpKind::RoundEven
        | OpKind::Trunc => EXACT,
        OpKind::Not
        | OpKind::IsFinite
        | OpKind::IsNan
        | OpKind::Max
        | OpKind::Min
        | OpKind::Rem => EXACT,
        OpKind::And | OpKind::Or | OpKind::Xor | OpKind::Shl | OpKind::Shr => EXACT,
        OpKind::Exp
        | OpKind::Exp2
        | OpKind::Expm1
        | OpKind::Log
        | OpKind::Log1p
        | OpKind::Log2
        | OpKind::Rsqrt
        | OpKind::Erf => ULP,
        OpKind::Sin
        | OpKind::Cos
        | OpKind::Tan
        | OpKind::Asin
        | OpKind::Acos
        | OpKind::Atan
        | OpKind::Atan2 => ULP,
        OpKind::Sinh | OpKind::Cosh | OpKind::Tanh | OpKind::Pow => ULP,
        OpKind::FloorDiv => EXACT,
        OpKind::Compare | OpKind::Select | OpKind::Clamp | OpKind::Bitcast => EXACT,
        OpKind::Sym
        | OpKind::SymExpr
        | OpKind::Dim
        | OpKind::BindShape
        | OpKind::Require
        | OpKind::AdvanceRng
        | OpKind::RequireIndex
        | OpKind::Global
        | OpKind::GetGlobal
        | OpKind::Launch
        | OpKind::Arena
        | OpKind::ArenaSize
        | OpKind::Reuse
        | OpKind::Output
        | OpKind::UnbackedSize => EXACT,
        OpKind::Constant
        | OpKind::Splat
        | OpKind::Iota
        | OpKind::BroadcastInDim
        | OpKind::Reshape
        | OpKind::Transpose => EXACT,
        OpKind::Slice
        | OpKind::Pad
        | OpKind::Concat
        | OpKind::InsertSlice
        | OpKind::Reverse
        | OpKind::Gather => EXACT,
        OpKind::DynamicSlice
        | OpKind::DynamicUpdateSlice
        | OpKind::ArgMax
        | OpKind::ArgMin
        | OpKind::Sort
        | OpKind::TopK => EXACT,
        OpKind::Interpolate | OpKind::MaxPool | OpKind::Embedding | OpKind::Dropout => EXACT,
        OpKind::StopGradient | OpKind::OptimizationBarrier => EXACT,
        OpKind::Scatter => {
            "exact for assign, max and min; add and mul reassociate where indices repeat"
        }
        OpKind::Fft => "reassociates, and roots of unity within 1 ulp",
        OpKind::Reduce | OpKind::Cumulative | OpKind::ReduceWindow => {
            "exact for max, min, any, all and for integers; sum and prod reassociate"
        }
        OpKind::DotGeneral | OpKind::Convolution | OpKind::Linear | OpKind::Matmul => SUM,
        OpKind::ConvolutionWeightGradient => SUM,
        OpKind::WinogradInput | OpKind::WinogradOutput => SUM,
        OpKind::AvgPool | OpKind::AdaptiveAvgPool | OpKind::Mean | OpKind::Var | OpKind::Std => SUM,
        OpKind::LayerNorm | OpKind::GroupNorm | OpKind::RmsNorm => SUM,
        OpKind::BatchNorm => {
            "reassociates: the statistics may be folded into one scale and one shift"
        }
        OpKind::Softmax
        | OpKind::LogSoftmax
        | OpKind::CrossEntropy
        | OpKind::Attention
        | OpKind::AttentionGradient
        | OpKind::StructuredAttention
        | OpKind::StructuredAttentionGradient => "reassociates, and exponentials within a few ulp",
        OpKind::StructuredIndex => EXACT,
        OpKind::StructuredContract => SUM,
        OpKind::StructuredScan => "exact for max, min and integers; sum and prod reassociate",
        OpKind::StructuredFft => "reassociates, and roots of unity within 1 ulp",
        tile!() => "products and sums reassociate; of a body that of the ops inside",
        OpKind::Sigmoid | OpKind::Silu | OpKind::Gelu | OpKind::Softplus => ULP,
        OpKind::Hardsigmoid | OpKind::Hardswish => ULP,
        OpKind::Relu | OpKind::Hardtanh => EXACT,
        OpKind::Philox | OpKind::RandomBits | OpKind::RandomUniform => EXACT,
        OpKind::RandomNormal => ULP,
        OpKind::Checkpoint
        | OpKind::If
        | OpKind::While
        | OpKind::Scan
        | OpKind::Yield
        | OpKind::CustomCall
        | OpKind::PtxCall => "that of the ops inside",
    }
}

//! What happens to the operands of each op.
use kiln_dialects::{
    ir::{Node, Op},
    ops::*,
};

/// What happens to operands that were f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// So many operands, at most, take the lower type, and so do the results.
    Lower(usize),
    /// All are f32.
    Single,
    /// All but the first are f32, of which the result has the type.
    First,
    /// All have the widest type among them, and so do the results.
    Widest,
    /// The op takes any type, and its results do not depend on it.
    Any,
    /// All are as they were.
    Keep,
}

/// The policy of an op; `None` for ops of other dialects. Ops with functions of their elements, such
/// as scores of attention, keep their types.
pub fn policy(op: Op) -> Option<Policy> {
    use OpKind::*;
    if op.regions().iter().any(|r| r.first().is_some()) {
        return Some(Policy::Keep);
    }
    Some(match op.kind()? {
        Linear | Matmul | DotGeneral | Convolution => Policy::Lower(3),
        Attention => Policy::Lower(4),
        AttentionGradient => Policy::Lower(4),
        Exp | Exp2 | Expm1 | Log | Log1p | Log2 | Rsqrt | Tan | Asin | Acos | Sinh | Cosh | Pow
        | Softplus | Softmax | LogSoftmax | CrossEntropy | LayerNorm | GroupNorm | RmsNorm
        | Var | Std | Cumulative | Interpolate => Policy::Single,
        Reduce => match kiln_dialects::ops::Reduce::of(op)?.kind {
            ReduceKind::Sum | ReduceKind::Prod => Policy::Single,
            _ => Policy::Widest,
        },
        BatchNorm => Policy::First,
        Neg | Abs | Sqrt | Sin | Cos | Atan | Tanh | Erf | Sign | Ceil | Floor | RoundEven
        | Trunc | IsFinite | IsNan | Add | Sub | Mul | Div | Rem | Max | Min | Atan2 | Compare
        | Select | Clamp | Sigmoid | Silu | Relu | Hardtanh | Hardsigmoid | Hardswish | Gelu
        | BroadcastInDim | Reshape | Transpose | Slice | Pad | Concat | Reverse | Gather
        | DynamicSlice | DynamicUpdateSlice | Mean | ReduceWindow | MaxPool | AvgPool
        | AdaptiveAvgPool | ArgMax | ArgMin | Dropout | StopGradient | OptimizationBarrier => {
            Policy::Widest
        }
        Convert | BindShape | Dim => Policy::Any,
        _ => Policy::Keep,
    })
}

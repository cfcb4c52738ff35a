//! Clipping by the global norm, and averages of weights.
use super::{error, lerp};
use crate::{
    compile::Tree,
    tensor::{FlatTree, Tensor, TraceError},
};
use kiln_dialects::value::DType;

/// The 2-norm of all tensors of a structure as one vector: 0-d, in f32, or f64 if the first is. Err:
/// there are none.
pub fn global_norm<P: Tree>(tensors: &P) -> Result<Tensor, TraceError> {
    let all = FlatTree::of(tensors).tensors;
    let first = all.first().ok_or_else(|| error("the norm is of no tensors"))?;
    let dtype = if first.dtype()? == DType::F64 { DType::F64 } else { DType::F32 };
    let squares = all.iter().map(|t| t.to(dtype).square().sum(.., false));
    let sum = squares.reduce(|a, b| a + b).ok_or_else(|| error("the norm is of no tensors"))?;
    sum.sqrt().check()
}

/// Scales gradients so that their global norm is at most `max`; returns them and the norm that they
/// had: `g *= min(1, max / (norm + 1e-6))`. As `torch.nn.utils.clip_grad_norm_`. Err: as for
/// [`global_norm`].
pub fn clip_by_global_norm<P: Tree>(gradients: P, max: f64) -> Result<(P, Tensor), TraceError> {
    let norm = global_norm(&gradients)?;
    let scale = (max / (&norm + 1e-6)).clamp_max(1.0);
    let all = FlatTree::of(&gradients);
    let scaled = all.tensors.iter().map(|g| (g * scale.to(g.dtype()?)).check());
    let scaled = scaled.collect::<Result<Vec<_>, TraceError>>()?;
    Ok((all.rebuild(scaled)?, norm))
}

/// An exponential moving average of weights: `decay average + (1 - decay) weight`. As
/// `torch.optim.swa_utils.get_ema_multi_avg_fn`, whose decay is 0.999 by default; it begins with the
/// weights themselves. Err: structures that differ.
pub fn ema<P: Tree>(average: P, weights: &P, decay: f64) -> Result<P, TraceError> {
    let (old, new) = (FlatTree::of(&average), FlatTree::of(weights));
    old.same(&new)?;
    let each = old.tensors.iter().zip(&new.tensors).map(|(a, w)| lerp(a, w, 1.0 - decay).check());
    let each = each.collect::<Result<Vec<_>, _>>()?;
    old.rebuild(each)
}

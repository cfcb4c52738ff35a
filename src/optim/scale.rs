//! Dynamic loss scaling, for gradients of f16.
use super::{Optimizer, State, error};
use crate::{
    compile::{Leaf, Leaves, Tree, TreeError},
    tensor::{FlatTree, Tensor, TraceError},
};

/// `torch.amp.GradScaler`: the loss is multiplied by a scale, so that small gradients are no zeros
/// in f16. A step with an infinite gradient or NaN changes no weight and lowers the scale. All of it
/// is tensor ops, so that a compiled step decides without the host.
///
/// ```
/// use kiln::{Tensor, optim::{LossScale, Optimizer, Sgd}};
/// let (scaler, sgd) = (LossScale::default(), Sgd { rate: 1.0.into(), ..Sgd::default() });
/// let (w, state, scale) = (Tensor::scalar(3.0f32)?, sgd.init(&Tensor::scalar(3.0f32)?)?, scaler.init()?);
/// let by = Tensor::scalar(65536.0f32)?; // of the scaled loss
/// let (by, finite) = scaler.unscale(by, &scale)?;
/// let (w, state, scale) = scaler.apply(&sgd, w, by, &finite, state, scale)?;
/// assert_eq!((w.item::<f64>()?, scale.scale.item::<f64>()?), (2.0, 65536.0));
/// # Ok::<(), kiln::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScale {
    /// The scale of the first step.
    pub initial: f64,
    /// What the scale is multiplied by after `interval` steps with finite gradients.
    pub growth: f64,
    /// What it is multiplied by after a step without.
    pub backoff: f64,
    /// Steps from one growth to the next.
    pub interval: u32,
}

impl Default for LossScale {
    fn default() -> LossScale {
        LossScale { initial: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000 }
    }
}

/// The scale, and what has become of it: a structure of tensors.
#[derive(Clone, Debug)]
pub struct Scale {
    /// What the loss is multiplied by: f32, 0-d.
    pub scale: Tensor,
    /// Steps with finite gradients since the scale changed: f32, 0-d.
    pub steps: Tensor,
}

impl Tree for Scale {
    fn leaves(&self, out: &mut Vec<Leaf>) {
        self.scale.leaves(out);
        self.steps.leaves(out);
    }
    fn rebuild(leaves: &mut Leaves) -> Result<Scale, TreeError> {
        Ok(Scale { scale: Tensor::rebuild(leaves)?, steps: Tensor::rebuild(leaves)? })
    }
    fn names(&self, path: &str, out: &mut Vec<String>) {
        self.scale.names(&format!("{path}.scale"), out);
        self.steps.names(&format!("{path}.steps"), out);
    }
}

impl LossScale {
    /// The scale of the first step, on the host.
    pub fn init(&self) -> Result<Scale, TraceError> {
        let (scale, steps) = (Tensor::scalar(self.initial as f32)?, Tensor::scalar(0.0f32)?);
        Ok(Scale { scale, steps })
    }
    /// The loss whose gradients [`LossScale::unscale`] takes.
    pub fn scale(&self, loss: &Tensor, scale: &Scale) -> Result<Tensor, TraceError> {
        (loss * scale.scale.to(loss.dtype()?)).check()
    }
    /// The gradients of the loss itself, and whether all of them are finite (0-d bool). Err: there
    /// are none.
    pub fn unscale<P: Tree>(&self, gradients: P, scale: &Scale) -> Result<(P, Tensor), TraceError> {
        let all = FlatTree::of(&gradients);
        let by: Tensor = 1.0 / &scale.scale;
        // A maximum is NaN if an element is, and NaN is not below infinity.
        let finite = all.tensors.iter().map(|g| g.abs().amax(.., false).lt(f64::INFINITY));
        let finite = finite.reduce(|a, b| a.logical_and(b));
        let finite = finite.ok_or_else(|| error("a loss scale is of no gradients"))?.check()?;
        let each = all.tensors.iter().map(|g| (g * by.to(g.dtype()?)).check());
        let each = each.collect::<Result<Vec<_>, TraceError>>()?;
        Ok((all.rebuild(each)?, finite))
    }
    /// One update by gradients that are no longer scaled: new weights, state and scale. If `finite`
    /// is false, weights and state are the old ones. Err: as for [`Optimizer::apply`].
    pub fn apply<O: Optimizer, P: Tree>(
        &self,
        optimizer: &O,
        weights: P,
        gradients: P,
        finite: &Tensor,
        state: State,
        scale: Scale,
    ) -> Result<(P, State, Scale), TraceError> {
        let (old, kept) = (FlatTree::of(&weights), FlatTree::of(&state));
        let (new, next) = optimizer.apply(weights, gradients, state)?;
        let choose = |new: FlatTree, old: &FlatTree| {
            let each = new.tensors.iter().zip(&old.tensors);
            each.map(|(n, o)| finite.where_(n, o).check()).collect::<Result<Vec<_>, _>>()
        };
        let weights = old.rebuild(choose(FlatTree::of(&new), &old)?)?;
        let state = kept.rebuild(choose(FlatTree::of(&next), &kept)?)?;
        Ok((weights, state, self.next(finite, &scale)?))
    }
    /// The scale of the next step, as `torch._amp_update_scale_` computes it.
    fn next(&self, finite: &Tensor, last: &Scale) -> Result<Scale, TraceError> {
        let steps = &last.steps + 1.0;
        let grows = steps.ge(f64::from(self.interval));
        let grown = &last.scale * self.growth;
        // The scale does not grow out of f32.
        let grown = grown.lt(f64::INFINITY).where_(&grown, &last.scale);
        let (zero, lower) = (steps.zeros_like(), &last.scale * self.backoff);
        let scale = finite.where_(grows.where_(grown, &last.scale), lower).check()?;
        let steps = finite.where_(grows.where_(&zero, &steps), &zero).check()?;
        Ok(Scale { scale, steps })
    }
}

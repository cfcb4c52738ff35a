//! `torch.nn.Conv2d`.
use super::{Module, Parameter, Scope, linear::bound};
use crate::tensor::{Convolution, Tensor};
use std::panic::Location;

/// 2-D convolution over [N, C, H, W].
#[derive(Debug)]
pub struct Conv2d {
    weight: Parameter,
    bias: Option<Parameter>,
    options: Convolution<2>,
}

impl Conv2d {
    /// `inputs` to `outputs` channels with this kernel size, with a bias.
    pub fn new(
        scope: &Scope,
        inputs: usize,
        outputs: usize,
        window: [usize; 2],
        options: Convolution<2>,
    ) -> Conv2d {
        let bare = Conv2d::without_bias(scope, inputs, outputs, window, options);
        let n: usize = bare.weight.shape().iter().skip(1).product();
        Conv2d { bias: Some(scope.parameter("bias", &[outputs], bound(n))), ..bare }
    }
    /// Same, without a bias.
    pub fn without_bias(
        scope: &Scope,
        inputs: usize,
        outputs: usize,
        window: [usize; 2],
        options: Convolution<2>,
    ) -> Conv2d {
        let groups = usize::try_from(options.groups).unwrap_or(1).max(1);
        let shape = [outputs, inputs / groups, window[0], window[1]];
        let n = shape.iter().skip(1).product();
        Conv2d { weight: scope.parameter("weight", &shape, bound(n)), bias: None, options }
    }
}

impl Module for Conv2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let _frame = x.graph().frame(Location::caller());
        x.conv2d(
            self.weight.on(&x.graph()),
            self.bias.as_ref().map(|b| b.on(&x.graph())),
            self.options,
        )
    }
    fn parameters(&self) -> Vec<&Parameter> {
        [Some(&self.weight), self.bias.as_ref()].into_iter().flatten().collect()
    }
}

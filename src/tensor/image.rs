//! Convolution, pooling and resizing of [N, C, spatial...]; N may be absent.
use super::{Shape, Tensor, arg::Arg};

/// How a convolution goes over its input. The default moves by 1, without padding, in one group.
#[derive(Clone, Copy, Debug)]
pub struct Convolution<const N: usize> {
    /// Elements between windows.
    pub stride: [i64; N],
    /// Zeros at both ends.
    pub padding: [i64; N],
    /// Elements between those of one window.
    pub dilation: [i64; N],
    /// Into how many independent parts the channels fall.
    pub groups: i64,
}

impl<const N: usize> Default for Convolution<N> {
    fn default() -> Self {
        Convolution { stride: [1; N], padding: [0; N], dilation: [1; N], groups: 1 }
    }
}

/// The windows of a pooling.
#[derive(Clone, Copy, Debug)]
pub struct Pool<const N: usize> {
    /// Sizes of a window.
    pub window: [i64; N],
    /// Elements between windows.
    pub stride: [i64; N],
    /// At both ends: zeros of a mean, nothing of a maximum.
    pub padding: [i64; N],
    /// Whether the number of windows is rounded up.
    pub ceil_mode: bool,
}

impl<const N: usize> Pool<N> {
    /// Windows behind one another, without padding.
    pub fn new(window: [i64; N]) -> Pool<N> {
        Pool { window, stride: window, padding: [0; N], ceil_mode: false }
    }
}

impl Tensor {
    /// The convolution of [N, C, L] with a weight [M, C / groups, K] and a bias `[M]`.
    #[track_caller]
    pub fn conv1d(
        &self,
        weight: impl Into<Tensor>,
        bias: Option<Tensor>,
        options: Convolution<1>,
    ) -> Tensor {
        self.convolution("conv1d", "aten.conv1d.default", weight, bias, options)
    }
    /// The convolution of [N, C, H, W] with a weight [M, C / groups, K, L] and a bias `[M]`.
    #[track_caller]
    pub fn conv2d(
        &self,
        weight: impl Into<Tensor>,
        bias: Option<Tensor>,
        options: Convolution<2>,
    ) -> Tensor {
        self.convolution("conv2d", "aten.conv2d.default", weight, bias, options)
    }
    #[track_caller]
    fn convolution<const N: usize>(
        &self,
        op: &'static str,
        target: &'static str,
        weight: impl Into<Tensor>,
        bias: Option<Tensor>,
        o: Convolution<N>,
    ) -> Tensor {
        let args = vec![
            ("weight", Arg::tensor(weight)),
            ("bias", bias.into()),
            ("stride", Arg::from(o.stride.as_slice())),
            ("padding", o.padding.as_slice().into()),
            ("dilation", o.dilation.as_slice().into()),
            ("groups", o.groups.into()),
        ];
        self.input_row(op, target, args)
    }
    /// The maximum of each window.
    #[track_caller]
    pub fn max_pool2d(&self, o: Pool<2>) -> Tensor {
        let args = [
            ("kernel_size", Arg::from(o.window.as_slice())),
            ("stride", o.stride.as_slice().into()),
            ("padding", o.padding.as_slice().into()),
            ("ceil_mode", o.ceil_mode.into()),
        ];
        self.call("max_pool2d", "aten.max_pool2d.default", args)
    }
    /// The mean of each window; padding counts in the divisor if `count_include_pad`.
    #[track_caller]
    pub fn avg_pool2d(&self, o: Pool<2>, count_include_pad: bool) -> Tensor {
        let args = [
            ("kernel_size", Arg::from(o.window.as_slice())),
            ("stride", o.stride.as_slice().into()),
            ("padding", o.padding.as_slice().into()),
            ("ceil_mode", o.ceil_mode.into()),
            ("count_include_pad", count_include_pad.into()),
        ];
        self.call("avg_pool2d", "aten.avg_pool2d.default", args)
    }
    /// The means of windows that are chosen so that the result has these sizes.
    #[track_caller]
    pub fn adaptive_avg_pool2d(&self, sizes: [i64; 2]) -> Tensor {
        self.call(
            "adaptive_avg_pool2d",
            "aten.adaptive_avg_pool2d.default",
            [("output_size", sizes.as_slice().into())],
        )
    }
    /// Resized to these spatial sizes, each element from the nearest one. Error: a number of sizes
    /// that is not that of spatial dimensions.
    #[track_caller]
    pub fn interpolate_nearest(&self, sizes: impl Shape) -> Tensor {
        let args = vec![("output_size", sizes.dims().into())];
        self.input_row("interpolate", "aten.upsample_nearest2d.vec", args)
    }
}

//! Convolution, pooling and resizing over [N, C, spatial...]; N is optional.
use super::{Shape, Tensor, arg::Arg};

/// Convolution parameters. Default: stride 1, no padding, dilation 1, one group.
#[derive(Clone, Copy, Debug)]
pub struct Convolution<const N: usize> {
    /// Stride per spatial dimension.
    pub stride: [i64; N],
    /// Zero padding at both ends, per spatial dimension.
    pub padding: [i64; N],
    /// Dilation: spacing of the kernel's elements.
    pub dilation: [i64; N],
    /// Number of channel groups.
    pub groups: i64,
}

impl<const N: usize> Default for Convolution<N> {
    fn default() -> Self {
        Convolution { stride: [1; N], padding: [0; N], dilation: [1; N], groups: 1 }
    }
}

/// Pooling parameters.
#[derive(Clone, Copy, Debug)]
pub struct Pool<const N: usize> {
    /// Window size.
    pub window: [i64; N],
    /// Stride between windows.
    pub stride: [i64; N],
    /// Padding at both ends: zeros for average pooling, ignored by max pooling.
    pub padding: [i64; N],
    /// Whether the output size is rounded up.
    pub ceil_mode: bool,
}

impl<const N: usize> Pool<N> {
    /// Non-overlapping windows (stride = window), without padding.
    pub fn new(window: [i64; N]) -> Pool<N> {
        Pool { window, stride: window, padding: [0; N], ceil_mode: false }
    }
}

impl Tensor {
    /// 1-D convolution of [N, C, L] with weight [M, C / groups, K] and bias `[M]`.
    #[track_caller]
    pub fn conv1d(
        &self,
        weight: impl Into<Tensor>,
        bias: Option<Tensor>,
        options: Convolution<1>,
    ) -> Tensor {
        self.convolution("conv1d", "aten.conv1d.default", weight, bias, options)
    }
    /// 2-D convolution of [N, C, H, W] with weight [M, C / groups, K, L] and bias `[M]`.
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
    /// Max pooling.
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
    /// Average pooling; padding counts in the divisor if `count_include_pad`.
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
    /// Adaptive average pooling to this output size.
    #[track_caller]
    pub fn adaptive_avg_pool2d(&self, sizes: [i64; 2]) -> Tensor {
        self.call(
            "adaptive_avg_pool2d",
            "aten.adaptive_avg_pool2d.default",
            [("output_size", sizes.as_slice().into())],
        )
    }
    /// Nearest-neighbour resizing to these spatial sizes. Error: their number is not the number of
    /// spatial dimensions.
    #[track_caller]
    pub fn interpolate_nearest(&self, sizes: impl Shape) -> Tensor {
        let args = vec![("output_size", sizes.dims().into())];
        self.input_row("interpolate", "aten.upsample_nearest2d.vec", args)
    }
}

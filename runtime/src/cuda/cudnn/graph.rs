//! The cuDNN operation graph of a convolution and its epilogue.
use super::descriptor::Descriptor;
use crate::{
    convolution::{Convolution, Volume},
    cuda::CudaError,
    gemm::Activation,
};
use cudarc::cudnn::sys;
use sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind,
    cudnnDataType_t as Element, cudnnPointwiseMode_t as Mode,
};

/// Least alignment of device pointers, in bytes; the program guarantees it.
const ALIGNMENT: u64 = 16;

/// The operands with their tensor UIDs.
pub fn operands(c: &Convolution) -> Vec<(i64, &Volume)> {
    let some = [
        (1, Some(&c.image)),
        (2, Some(&c.weight)),
        (3, Some(&c.result)),
        (4, c.bias.as_ref()),
        (5, c.residual.as_ref()),
    ];
    some.into_iter().filter_map(|(id, v)| Some((id, v?))).collect()
}

fn element(dtype: &str) -> Result<Element, CudaError> {
    match dtype {
        "bf16" => Ok(Element::CUDNN_DATA_BFLOAT16),
        "f16" => Ok(Element::CUDNN_DATA_HALF),
        "f32" => Ok(Element::CUDNN_DATA_FLOAT),
        other => Err(CudaError::Driver {
            what: "describing a tensor to cuDNN",
            reason: format!("the library does not support the element type {other}"),
        }),
    }
}

fn signed<const N: usize>(all: [u64; N]) -> [i64; N] {
    all.map(|n| i64::try_from(n).unwrap_or(i64::MAX))
}

/// Alignment of the first element, whose offset the program chooses.
fn aligned(v: &Volume) -> i64 {
    let bytes = v.offset * crate::view::byte_size(&v.dtype).unwrap_or(1) as u64;
    let least =
        if bytes == 0 { ALIGNMENT } else { (1 << bytes.trailing_zeros().min(4)).min(ALIGNMENT) };
    least as i64
}

fn tensor(id: i64, dtype: Element, like: &Volume, within: bool) -> Result<Descriptor, CudaError> {
    let d = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?
        .with(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[dtype])?
        .with(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &signed(like.sizes))?
        .with(Name::CUDNN_ATTR_TENSOR_STRIDES, &signed(like.strides))?
        .with(
            Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT,
            &[if within { ALIGNMENT as i64 } else { aligned(like) }],
        )?;
    let d = if within { d.with(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[true])? } else { d };
    d.finalize()
}

/// The operations in order, and the tensor descriptors that they refer to.
#[derive(Default)]
pub struct Operations {
    pub all: Vec<Descriptor>,
    _parts: Vec<Descriptor>,
}

/// The operations: convolution, then additions, then activation. Intermediates are virtual f32
/// tensors.
pub fn operations(c: &Convolution) -> Result<Operations, CudaError> {
    let mut made = Operations::default();
    let named = |id: i64| {
        operands(c)
            .into_iter()
            .find(|(n, _)| *n == id)
            .map(|(id, v)| tensor(id, element(&v.dtype)?, v, false))
    };
    let named = |id: i64| {
        named(id).unwrap_or_else(|| {
            Err(CudaError::Driver {
                what: "describing a tensor to cuDNN",
                reason: format!("there is no operand {id}"),
            })
        })
    };
    let function = match c.activation {
        Activation::None => None,
        Activation::Relu => Some(Mode::CUDNN_POINTWISE_RELU_FWD),
        Activation::GeluTanh => Some(Mode::CUDNN_POINTWISE_GELU_APPROX_TANH_FWD),
    };
    // The residual is added first: cuDNN has more engines for that order.
    let added = [c.residual.as_ref().map(|_| 5), c.bias.as_ref().map(|_| 4)].into_iter().flatten();
    let steps: Vec<(Mode, Option<i64>)> = added
        .map(|id| (Mode::CUDNN_POINTWISE_ADD, Some(id)))
        .chain(function.map(|mode| (mode, None)))
        .collect();
    let between = |i: usize| match i == steps.len() {
        true => named(3),
        false => tensor(10 + i as i64, Element::CUDNN_DATA_FLOAT, &c.result, true),
    };
    let window = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[Element::CUDNN_DATA_FLOAT])?
        .with(
            Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE,
            &[sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION],
        )?
        .with(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2i64])?
        .with(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &signed(c.strides))?
        .with(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &signed(c.dilation))?
        .with(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &signed(c.low))?
        .with(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &signed(c.high))?
        .finalize()?;
    let (image, weight, mut last) = (named(1)?, named(2)?, between(0)?);
    made.all.push(
        Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)?
            .with_descriptor(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, &image)?
            .with_descriptor(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, &weight)?
            .with_descriptor(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, &last)?
            .with_descriptor(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, &window)?
            .with(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, &[1f32])?
            .with(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, &[0f32])?
            .finalize()?,
    );
    made._parts.extend([image, weight, window]);
    for (i, (mode, with)) in steps.iter().enumerate() {
        let how = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_POINTWISE_MODE, &[*mode])?
            .with(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[Element::CUDNN_DATA_FLOAT])?
            .finalize()?;
        let next = between(i + 1)?;
        let mut op = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
            .with_descriptor(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &how)?
            .with_descriptor(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &last)?
            .with_descriptor(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &next)?;
        if let Some(id) = with {
            let other = named(*id)?;
            op = op.with_descriptor(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &other)?;
            made._parts.push(other);
        }
        made.all.push(op.finalize()?);
        made._parts.extend([how, std::mem::replace(&mut last, next)]);
    }
    made._parts.push(last);
    Ok(made)
}

//! Fast path for programs with static shapes: one comparison checks all arguments, and no size is
//! computed.
use crate::{
    DeviceId, View, ViewMut,
    guards::dtype_word,
    program::{Dim, Program, Tensor},
    view::{byte_size, product},
};

/// The arguments of a static-shape program.
pub(super) struct StaticShapes {
    inputs: TensorTypes,
    outputs: TensorTypes,
    /// Shapes and bytes of the outputs.
    pub output_shapes: Vec<(Vec<usize>, usize)>,
    /// Bytes of the arena.
    pub arena: usize,
}

/// Dtypes and shapes of several tensors, all sizes in one list.
#[derive(Default)]
struct TensorTypes {
    /// Dtype and rank.
    heads: Vec<(u64, usize)>,
    sizes: Vec<usize>,
}

impl StaticShapes {
    /// `None`: a size is dynamic, or an input is not row-major.
    pub fn of(p: &Program) -> Option<StaticShapes> {
        let known = |d: &Dim| if let Dim::Known(n) = d { usize::try_from(*n).ok() } else { None };
        let shape = |t: &Tensor| t.dims.iter().map(known).collect::<Option<Vec<usize>>>();
        let types = |all: &[Tensor]| -> Option<TensorTypes> {
            let mut types = TensorTypes::default();
            for t in all {
                byte_size(&t.dtype)?;
                types.heads.push((dtype_word(&t.dtype), t.dims.len()));
                types.sizes.extend(shape(t)?);
            }
            Some(types)
        };
        if !(p.symbols.is_empty()
            && p.conditions.is_empty()
            && p.inputs.iter().all(|t| t.order.is_empty()))
        {
            return None;
        }
        let made = |t: &Tensor| {
            let shape = shape(t)?;
            let bytes = product(&shape, byte_size(&t.dtype)?)?;
            Some((shape, bytes))
        };
        let made = p.outputs.iter().map(made).collect::<Option<_>>()?;
        Some(StaticShapes {
            inputs: types(&p.inputs)?,
            outputs: types(&p.outputs)?,
            output_shapes: made,
            arena: known(&p.arena)?,
        })
    }
    /// Whether all arguments match, and are row-major in host memory.
    pub fn matches(&self, inputs: &[View], outputs: &[ViewMut]) -> bool {
        let inputs = inputs.iter().map(|v| (v.dtype(), v.shape, v.device(), v.is_dense(&[])));
        let outputs =
            outputs.iter().map(|v| (v.dtype(), v.shape, v.device(), v.check_order("").is_ok()));
        self.inputs.are(inputs) && self.outputs.are(outputs)
    }
}

impl TensorTypes {
    fn are<'a>(
        &self,
        all: impl ExactSizeIterator<Item = (&'a str, &'a [usize], DeviceId, bool)>,
    ) -> bool {
        let mut sizes = &self.sizes[..];
        all.len() == self.heads.len()
            && all.zip(&self.heads).all(|((have, shape, device, rows), (dtype, rank))| {
                let (want, rest) = sizes.split_at((*rank).min(sizes.len()));
                sizes = rest;
                rows && device == DeviceId::Host && dtype_word(have) == *dtype && shape == want
            })
    }
}

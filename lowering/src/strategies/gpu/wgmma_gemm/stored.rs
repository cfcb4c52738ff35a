//! Results of which warps put tiles together in shared memory: the copy engine writes them from
//! there, or the warps do, row by row.
use crate::{
    analysis::{Access, Init, Kernel, Nest, Output, Poly, Role},
    strategies::gpu::wgmma_gemm::{Operand, Product},
};
use kiln_dialects::value::DType;

/// A result whose tiles go through shared memory.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The elements as a stage writes them.
    pub access: Access,
    /// Their type: bf16, f16 or f32.
    pub element: DType,
    /// The matrices, with neighbours in a row side by side, if the copy engine can write them.
    pub tensor: Option<Operand>,
}

impl Stored {
    /// Columns that are 128 bytes.
    pub fn columns(&self) -> usize {
        crate::strategies::gpu::wgmma_gemm::ROW / self.element.byte_size()
    }
}

/// The results of a product's stages that lie as the copy engine wants it: neighbours of a row side
/// by side, and all else 16 bytes apart or a multiple. Those of 16 bits also where the rest lies
/// otherwise: threads would write single elements in eight rows at once.
pub fn stored(k: &Kernel, nest: &Nest, p: &Product) -> Vec<Stored> {
    let stages = nest.all().filter_map(|s| k.stages.get(s));
    stages.flat_map(|s| &s.outputs).filter_map(|o| one(k, nest, p, o)).collect()
}

fn one(k: &Kernel, nest: &Nest, p: &Product, o: &Output) -> Option<Stored> {
    let [over] = p.roles.columns.as_slice() else { return None };
    let (a, buffer) = (&o.access, k.buffers.get(o.access.buffer)?);
    let Role::Output(number) = buffer.role else { return None };
    let element = buffer
        .element
        .dtype()
        .ok()
        .filter(|d| [DType::BF16, DType::F16, DType::F32].contains(d))?;
    if matches!(&o.init, Init::Load(from) if from.buffer == a.buffer) {
        return None;
    }
    let tensor = tensor(k, nest, p, a, number, element);
    let rows = element.byte_size() == 2
        && a.at.coefficient(*over).known() == Some(1)
        && a.at.rest.is_empty();
    (tensor.is_some() || rows).then(|| Stored { access: a.clone(), element, tensor })
}

/// The matrices of the result of that number as the copy engine wants them.
fn tensor(
    k: &Kernel,
    nest: &Nest,
    p: &Product,
    a: &Access,
    number: usize,
    element: DType,
) -> Option<Operand> {
    let (rows, over) = (p.roles.rows.as_slice(), p.roles.columns.first()?);
    let tensors = crate::strategies::gpu::wgmma_gemm::im2col::tensors(k)?;
    let dims: Vec<usize> = [*over]
        .into_iter()
        .chain(rows.iter().rev().copied())
        .chain(p.roles.batch.iter().copied())
        .collect();
    let mut strides = crate::strategies::gpu::wgmma_gemm::tensor(
        &nest.extents,
        a,
        &dims,
        16 / element.byte_size() as i64,
    )?;
    // Several dimensions of rows are one if each goes on where the next one ends.
    let joined = rows
        .windows(2)
        .all(|d| a.at.coefficient(d[0]) == a.at.coefficient(d[1]).times(&nest.extents[d[1]]));
    strides.drain(1..rows.len());
    let size = |dims: &[usize]| Poly::product(dims.iter().map(|d| &nest.extents[*d]));
    let sizes = [size(&[*over]), size(rows)]
        .into_iter()
        .chain(p.roles.batch.iter().map(|d| size(&[*d])))
        .collect();
    let tensor = Operand {
        buffer: a.buffer,
        argument: tensors + number,
        offset: a.at.constant.clone(),
        deep: false,
        dims: vec![],
        sizes,
        strides,
    };
    joined.then_some(tensor)
}

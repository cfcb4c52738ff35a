//! Results that the epilogue stages in shared memory: TMA stores them from there, or the warps do,
//! row by row.
use crate::{
    analysis::{Access, Init, Kernel, Nest, Output, Poly, Role},
    strategies::gpu::wgmma_gemm::{MatrixOperand, TensorCoreProduct, operand::TENSOR_RANK},
};
use kiln_dialects::value::DType;

/// A result that is staged in shared memory.
#[derive(Clone, Debug)]
pub struct StagedResult {
    /// The store's access.
    pub access: Access,
    /// The element type: bf16, f16 or f32.
    pub element: DType,
    /// The N-major result as TMA addresses it, if it can.
    pub tensor: Option<MatrixOperand>,
}

impl StagedResult {
    /// Columns of a slice: 128 bytes.
    pub fn columns(&self) -> usize {
        crate::strategies::gpu::wgmma_gemm::ROW / self.element.byte_size()
    }
}

/// The staged results of a product. TMA stores those whose rows are contiguous and whose other
/// strides are multiples of 16 bytes. Those of other strides are staged as well: otherwise a warp's
/// threads would store single elements of eight rows at once.
pub fn staged_results(k: &Kernel, nest: &Nest, p: &TensorCoreProduct) -> Vec<StagedResult> {
    let stages = nest.all().filter_map(|s| k.stages.get(s));
    stages.flat_map(|s| &s.outputs).filter_map(|o| one(k, nest, p, o)).collect()
}

fn one(k: &Kernel, nest: &Nest, p: &TensorCoreProduct, o: &Output) -> Option<StagedResult> {
    let over = p.roles.columns.last()?;
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
    let rows = a.at.coefficient(*over).known() == Some(1)
        && a.at.divisions.is_empty()
        && are_joined(nest, a, &p.roles.columns);
    (tensor.is_some() || rows).then(|| StagedResult { access: a.clone(), element, tensor })
}

/// Whether dimensions are one in memory: each is contiguous with the next.
fn are_joined(nest: &Nest, a: &Access, dims: &[usize]) -> bool {
    let next = |d: &[usize]| a.at.coefficient(d[1]).times(&nest.extents[d[1]]);
    dims.windows(2).all(|d| a.at.coefficient(d[0]) == next(d))
}

/// Result `number` as TMA addresses it: N contiguous, then rows, then batch. TMA stores whole units
/// of 16 bytes: behind a slice's row that ends within one it would overwrite other elements.
fn tensor(
    k: &Kernel,
    nest: &Nest,
    p: &TensorCoreProduct,
    a: &Access,
    number: usize,
    element: DType,
) -> Option<MatrixOperand> {
    let (rows, columns) = (p.roles.rows.as_slice(), p.roles.columns.as_slice());
    let tensors = crate::strategies::gpu::wgmma_gemm::im2col::tensors(k)?;
    let dims: Vec<usize> = columns
        .iter()
        .rev()
        .copied()
        .chain(rows.iter().rev().copied())
        .chain(p.roles.batch.iter().copied())
        .collect();
    let unit = 16 / element.byte_size() as i64;
    let mut strides = crate::strategies::gpu::wgmma_gemm::tensor(&nest.extents, a, &dims, unit)?;
    let size = |dims: &[usize]| Poly::product(dims.iter().map(|d| &nest.extents[*d]));
    let joined = size(columns).multiple_of(unit)
        && are_joined(nest, a, rows)
        && are_joined(nest, a, columns)
        && 2 + p.roles.batch.len() <= TENSOR_RANK;
    strides.drain(..columns.len() - 1);
    strides.drain(1..rows.len());
    let sizes = [size(columns), size(rows)]
        .into_iter()
        .chain(p.roles.batch.iter().map(|d| size(&[*d])))
        .collect();
    let tensor = MatrixOperand {
        buffer: a.buffer,
        argument: tensors + number,
        offset: a.at.constant.clone(),
        k_major: false,
        dims: vec![],
        batch: vec![],
        sizes,
        strides,
    };
    joined.then_some(tensor)
}

//! Matches products that cuBLASLt has: with or without a bias per column and a relu or a tanh gelu.
use crate::{
    analysis::{Kernel, NestPlan},
    strategies::gpu::{
        library::{activation, activation_entry, element, epilogue::ReductionStage, numbers, role},
        wgmma_gemm::{self, MatrixOperand},
    },
};
use kiln_dialects::{ir::*, value::DType};
use kiln_runtime::gemm::{Gemm, Matrix, Vector};

/// The `kiln.library` entries of a kernel that is a product.
pub fn describe(k: &Kernel, plan: &NestPlan, tf32: bool) -> Option<Vec<(&'static str, Attr)>> {
    let [nest] = plan.nests.as_slice() else { return None };
    let c = k.func.ctx();
    let plain =
        |p: &wgmma_gemm::TensorCoreProduct| p.prologue.is_none() && p.element.byte_size() > 1;
    let p = wgmma_gemm::product(k, plan).filter(plain)?;
    let r = &p.roles;
    let plain = p.rights.len() == 1
        && p.window.is_none()
        && p.depth.is_none()
        && r.rows.len() == 1
        && r.columns.len() == 1
        && r.k.len() == 1
        && r.batch.len() < 2;
    let outputs: Vec<_> = k
        .stages
        .iter()
        .flat_map(|s| &s.outputs)
        .filter(|o| role(k, o.access.buffer) == Some(None))
        .collect();
    let ([out], [stage], true) =
        (outputs.as_slice(), p.stages.as_slice(), plain && k.pads.is_empty())
    else {
        return None;
    };
    let made =
        ReductionStage { k, nest, stage: *stage, bias_loops: &[(r.columns[0], 1)], elements: &[] }
            .terms(out.access.buffer)?;
    // The layout of the result: rows contiguous.
    let dims: Vec<usize> =
        [r.columns[0], r.rows[0]].into_iter().chain(r.batch.iter().copied()).collect();
    let size = |d: usize| nest.extents.get(d)?.known();
    let to = &out.access.at;
    let known = |d: usize| to.coefficient(d).known();
    if known(dims[0]) != Some(1)
        || !to.divisions.is_empty()
        || to.dims.keys().any(|d| !dims.contains(d))
    {
        return None;
    }
    let apart = |d: Option<&usize>| d.map_or(Some(0), |d| known(*d));
    let tensors = wgmma_gemm::im2col::tensors(k)?;
    let place = [
        tensors as i64,
        to.constant.known()?,
        size(dims[1])?,
        size(dims[0])?,
        known(dims[1])?,
        apart(dims.get(2))?,
        0,
    ];
    let matrix = |place: &[i64], element: Type| {
        Attr::dictionary(c, &[("element", Attr::ty(element)), ("place", Attr::i64s(c, place))])
    };
    let factor = Type::scalar(c, p.element);
    let result = k.buffers.get(out.access.buffer)?.element;
    let batch = r.batch.first().map_or(Some(1), |d| size(*d))?;
    // Empty products: a library rejects them, and there is nothing to gain.
    if place[2] < 1
        || place[3] < 1
        || batch < 1
        || ![p.element, DType::F32].contains(&result.dtype().ok()?)
    {
        return None;
    }
    let mut entries = vec![
        ("batch", Attr::i64(c, batch)),
        ("left", matrix(&operand(&p.left, p.left.k_major)?, factor)),
        ("result", matrix(&place, result)),
        // The right operand's K dimension is its rows.
        ("right", matrix(&operand(&p.rights[0], !p.rights[0].k_major)?, factor)),
    ];
    if let Some((buffer, offset)) = made.bias {
        let Some(Some(number)) = role(k, buffer) else { return None };
        let same = k.buffers.get(buffer)?.element == result;
        entries.push((
            "bias",
            Attr::i64s(
                c,
                &[same.then(|| wgmma_gemm::im2col::argument(k, number)).flatten()? as i64, offset],
            ),
        ));
    }
    entries.extend(activation_entry(c, made.activation));
    if tf32 && p.element == DType::F32 {
        entries.push(("tf32", Attr::i64(c, 1)));
    }
    Some(entries)
}

/// The layout of an operand: argument, first element, lines, elements per line, line stride, matrix
/// stride, whether lines are columns.
fn operand(o: &MatrixOperand, lines_are_rows: bool) -> Option<[i64; 7]> {
    let (size, stride) = (
        |i: usize| o.sizes.get(i)?.known(),
        |i: usize| o.strides.get(i).map_or(Some(0), |s| s.known()),
    );
    Some([
        o.argument as i64,
        o.offset.known()?,
        size(1)?,
        size(0)?,
        stride(0)?,
        stride(1)?,
        i64::from(!lines_are_rows),
    ])
}

/// Decodes the attribute.
pub fn read(a: Attr) -> Option<Gemm> {
    let matrix = |name: &str| {
        let m = a.entry(name)?;
        let [arg, offset, lines, each, stride, apart, transposed] = numbers(m.entry("place")?)?[..]
        else {
            return None;
        };
        Some(Matrix {
            arg: arg as usize,
            offset,
            dtype: element(m)?,
            lines: [lines, each],
            stride,
            apart,
            transposed: transposed != 0,
        })
    };
    let number = |name: &str| a.entry(name).and_then(Attr::as_i64);
    let bias = match a.entry("bias").map(|b| b.as_i64s()) {
        None => None,
        Some(Some(n)) if n.len() == 2 && n.iter().all(|n| *n >= 0) => {
            Some(Vector { arg: n[0] as usize, offset: n[1] as u64 })
        }
        Some(_) => return None,
    };
    Some(Gemm {
        batch: number("batch").and_then(|n| u32::try_from(n).ok())?,
        left: matrix("left")?,
        right: matrix("right")?,
        result: matrix("result")?,
        bias,
        activation: activation(a)?,
        tf32: number("tf32") == Some(1),
    })
}

//! TMA descriptors (tensor maps) of operands and results: `kiln.tensor_maps`, which the runtime
//! encodes.
use crate::{
    analysis::{Kernel, Nest},
    strategies::gpu::{
        common::grid,
        wgmma_gemm::{
            DEPTH, MatrixOperand, Params, STORED, TensorCoreProduct, im2col::Window,
            staged_results::staged_results,
        },
    },
};
use kiln_dialects::{ir::*, value::DType};

/// One descriptor: `map` yields the first element, the sizes and the strides. `extent` is the box.
/// An im2col operand also has a `window`: its lower and upper pixel-box corners in height and
/// width, and its traversal strides.
pub fn map(
    k: &Kernel,
    o: &MatrixOperand,
    element: Type,
    extent: &[usize],
    window: Option<&Window>,
) -> Result<Attr> {
    let c = k.func.ctx();
    let sizes: Vec<Value> = k.block.args().into_iter().filter(|a| a.ty().is_index()).collect();
    let all = std::iter::once(&o.offset).chain(&o.sizes).chain(&o.strides);
    let all = all
        .map(|p| grid::poly(p, &sizes))
        .collect::<Option<Vec<_>>>()
        .ok_or("has a size that is no map")?;
    let mut extent: Vec<i64> = extent.iter().map(|n| *n as i64).collect();
    if window.is_none() {
        extent.resize(o.sizes.len(), 1);
    }
    let mut entries = vec![
        ("argument", Attr::i64(c, o.argument as i64)),
        ("box", Attr::i64s(c, &extent)),
        ("element", Attr::ty(element)),
        ("map", grid::map(c, &all, sizes.len())?),
    ];
    if let Some(w) = window {
        let behind = |i: usize| w.high[i] - w.reach(i);
        let (low, high) =
            (Attr::i64s(c, &w.low.map(|n| -n)), Attr::i64s(c, &[behind(0), behind(1)]));
        entries.push((
            "window",
            Attr::dictionary(
                c,
                &[("high", high), ("low", low), ("strides", Attr::i64s(c, &w.strides))],
            ),
        ));
    }
    Ok(Attr::dictionary(c, &entries))
}

/// Descriptors of the operands, then of the results.
pub fn maps(k: &Kernel, nest: &Nest, p: &TensorCoreProduct, s: &Params) -> Result<Attr> {
    let (m, n, c) = (s.block_m, s.block_n / p.rights.len(), k.func.ctx());
    // TMA rounds f32 to tf32 when it loads.
    let element = if p.element == DType::F32 { Type::tf32(c) } else { Type::scalar(c, p.element) };
    let side = |o: &MatrixOperand, across: usize| match o.is_single_load(across) {
        true => map(k, &o.with_slices(), element, &[DEPTH, DEPTH, across / DEPTH], None),
        false => {
            map(k, o, element, &[p.k_per_stage(), if o.k_major { across } else { DEPTH }], None)
        }
    };
    // The prologue's operand is loaded unrounded, in slices of 128 bytes per row.
    let raw = || map(k, &p.left, Type::scalar(c, p.raw), &[p.k_per_stage() / p.slices(), m], None);
    let mut all = vec![];
    match (&p.window, &p.depth) {
        (Some(w), _) => {
            let right = &p.rights[0];
            let weight: &[usize] =
                if right.sizes.len() == 2 { &[DEPTH, n] } else { &[DEPTH, 1, n] };
            all.extend([
                map(k, &p.left, element, &[DEPTH, m], Some(w))?,
                map(k, right, element, weight, None)?,
            ]);
        }
        (None, Some(d)) => {
            let pixels = [DEPTH, p.k_per_stage()];
            all.extend([
                side(&p.left, m)?,
                map(k, &p.rights[0], element, &pixels, Some(&d.window))?,
            ]);
        }
        (None, None) => {
            all.push(if p.prologue.is_some() { raw()? } else { side(&p.left, m)? });
            for right in &p.rights {
                all.push(side(right, n)?);
            }
        }
    }
    for r in staged_results(k, nest, p) {
        if let Some(tensor) = &r.tensor {
            all.push(map(k, tensor, Type::scalar(c, r.element), &[r.columns(), STORED], None)?);
        }
    }
    Ok(Attr::array(k.func.ctx(), &all))
}

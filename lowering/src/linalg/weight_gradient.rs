//! Gradients of convolutions by their weights.
use crate::{
    analysis::index_expr::IndexExpr,
    linalg::{
        common::Tensors,
        contract::{Contraction, contract, with_padding},
        kernel::Kernel,
    },
};
use kiln_dialects::{ir::*, ops::*, value::DType};

/// Lowers `kiln.convolution_weight_gradient`. The rows are filters, the columns window positions and
/// channels; K are images and pixels. Groups are a batch. Of a depthwise convolution there are no
/// rows.
pub fn weight_gradient(k: &Kernel, o: &ConvolutionWeightGradient) -> Tensors {
    let tensor = k.stored(o.input).ok_or("has an input that is not in memory")?;
    match o.pad_low.iter().chain(&o.pad_high).all(|p| *p == 0) {
        true => products(k, o),
        false => {
            let pads = [o.pad_low.as_slice(), &o.pad_high];
            with_padding(k, (o.input, tensor), pads, &mut || products(k, o))
        }
    }
}

fn products(k: &Kernel, o: &ConvolutionWeightGradient) -> Tensors {
    let (x, g) = (k.sizes_of(o.input)?, k.sizes_of(o.gradient)?);
    // The rule knows that splits divide the images, whose number is dynamic for one split only.
    let each = g[0].known().map_or(g[0], |images| Size::Static(images / o.splits));
    let [kh, kw] = [o.window[0], o.window[1]].map(Size::Static);
    let of = |all: Size| match (all.known(), o.groups) {
        (Some(n), groups) if groups > 1 => Size::Static(n / groups),
        _ => all,
    };
    let filters = if o.depthwise { Size::Static(1) } else { of(g[3]) };
    let [splits, groups] = [o.splits, o.groups].map(Size::Static);
    let all = [splits, groups, filters, kh, kw, of(x[3]), each, g[1], g[2]];
    let parallel = 6;
    // A sum over one image, or one row of pixels, needs no loop.
    let kept: Vec<usize> = (0..all.len())
        .filter(|d| match *d {
            1 => o.groups > 1,
            2 => !o.depthwise,
            d => d < parallel || all[d].known() != Some(1),
        })
        .collect();
    let parallel = kept.iter().filter(|d| **d < parallel).count();
    let at = |d: usize| {
        let place = kept.iter().position(|e| *e == d);
        place.map_or(IndexExpr::number(0), IndexExpr::dim)
    };
    let image = match each {
        Size::Static(each) => at(0).times(IndexExpr::number(each)).plus(at(6)),
        Size::Dynamic(_) => at(6),
    };
    let pixel = |i: usize| {
        let start = at(7 + i).times(IndexExpr::number(o.strides[i]));
        start.plus(at(3 + i).times(IndexExpr::number(o.dilation[i])))
    };
    let of_group = |own: usize| match (o.groups, all[own]) {
        (2.., Size::Static(each)) => at(1).times(IndexExpr::number(each)).plus(at(own)),
        _ => at(own),
    };
    let (filter, channel) = (of_group(if o.depthwise { 5 } else { 2 }), of_group(5));
    let c = Contraction {
        sizes: kept.iter().map(|d| all[*d]).collect(),
        parallel,
        order: (0..parallel).collect(),
        lhs: vec![image.clone(), at(7), at(8), filter],
        rhs: vec![image, pixel(0), pixel(1), channel],
    };
    contract(k, o.gradient, o.input, DType::F32, &c)
}

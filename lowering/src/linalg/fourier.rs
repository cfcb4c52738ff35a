//! Fourier transforms, as `kiln.structured.fft`.
use crate::linalg::{
    common::{Tensors, id, start},
    expr::dtype,
    kernel::{Kernel, Nest, region},
};
use kiln_dialects::{ir::*, ops::*};

/// Lowers a transform.
pub fn fft(k: &Kernel, op: Op, o: &Fft) -> Tensors {
    if o.interleaved_input || o.interleaved_result {
        return Err("takes or gives interleaved numbers, which only the host's library does".into());
    }
    let d = dtype(o.re)?;
    let (from, to) = (k.sizes_of(o.re)?, k.sizes_of(op.result(0))?);
    let outer = to.len() - 1;
    let inits = op
        .results()
        .iter()
        .map(|_| start(k, ReduceKind::Sum, d, &to))
        .collect::<Result<Vec<_>, _>>()?;
    // The last loop is the index in the operand.
    let mut at = id(outer + 2);
    at.remove(outer);
    let parts: Vec<Value> = [Some(o.re), o.im].into_iter().flatten().collect();
    let nest = Nest {
        reduction: (0..outer + 2).map(|d| d > outer).collect(),
        sizes: [&to[..], &from[outer..]].concat(),
        outs: inits.iter().map(|init| (*init, (0..=outer).collect())).collect(),
        reads: parts.iter().map(|v| (*v, at.clone())).collect(),
        body: &mut |body, _| parts.iter().map(|v| body.element(*v, &at)).collect(),
    };
    if nest.is_empty() {
        return Ok(inits);
    }
    let operands = k.operands(&nest)?;
    let node = StructuredFft {
        inputs: operands.values[..operands.ins].to_vec(),
        init: *inits.first().ok_or("has no result")?,
        im_init: inits.get(1).copied(),
        kind: o.kind,
        length: o.length,
        inverse: o.inverse,
        indexing_maps: operands.maps,
    };
    let types = &operands.types[..operands.ins];
    let results: Vec<Type> = inits.iter().map(|v| v.ty()).collect();
    let mut body = region(k, &operands, 0, nest.body);
    Ok(k.b.create_with(&node, &results, &mut [(types, &mut body)])?.results())
}

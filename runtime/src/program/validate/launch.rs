//! Validates kernels and their launch configurations.
use super::{At, Invalid};
use crate::{
    convolution::Volume,
    library_call::LibraryCall,
    program::{Arg, Dim, Kernel, Launch, Program, Tensor, TensorMap},
    view::byte_size,
};

/// CUDA's limit on threads of a CTA (thread block).
const MAX_THREADS: u32 = 1024;
/// Largest shared memory of a CTA on any supported chip, in bytes: 227 KiB on sm_90.
const MAX_SHARED: u32 = 227 << 10;
/// TMA's limit on dimensions.
const MAX_MAP_RANK: usize = 5;

pub(super) fn check(p: &Program, at: &At) -> Result<(), Invalid> {
    for (i, k) in p.kernels.iter().enumerate() {
        let place = at.field("kernels").item(i);
        for (j, r) in k.reads.iter().enumerate() {
            let reads = place.field("reads").item(j);
            reads.wants(*r < i, || format!("is launch {r}, which does not come before {i}"))?;
        }
        for (name, d) in [("bytes", k.bytes), ("flops", k.flops)] {
            if let Some(d) = d {
                p.check_dim(d, p.exprs.len(), &place.field(name))?;
            }
        }
        let target = &p.target.arch;
        let launch = place.field("launch");
        launch.wants(k.launch.is_some() == p.target.is_cuda(), || {
            format!("does not go with the target {target}: it is there for GPUs alone")
        })?;
        if let Some(l) = &k.launch {
            check_launch(p, k, l, &launch)?;
        }
    }
    Ok(())
}

fn check_launch(p: &Program, k: &Kernel, l: &Launch, at: &At) -> Result<(), Invalid> {
    place_in_code(&k.symbol, &at.field("symbol"))?;
    for (i, a) in l.args.iter().enumerate() {
        let place = at.field("args").item(i);
        match a {
            Arg::Input(i) => place.index(*i, p.inputs.len(), "inputs")?,
            Arg::Output(i) => place.index(*i, p.outputs.len(), "outputs")?,
            Arg::Global(i) => place.index(*i, p.globals.len(), "globals")?,
            Arg::InputAt(i, d) => {
                place.index(*i, p.inputs.len(), "inputs")?;
                place.wants(p.overwrites.contains(i), || {
                    format!("writes to input {i}, which is not among those that are overwritten")
                })?;
                inside(p, &p.inputs[*i], *d, &place)?;
            }
            Arg::OutputAt(i, d) => {
                place.index(*i, p.outputs.len(), "outputs")?;
                inside(p, &p.outputs[*i], *d, &place)?;
            }
            Arg::Size(d) => p.check_dim(*d, p.exprs.len(), &place)?,
            Arg::Arena(d) => {
                p.check_size(*d, &place)?;
                if let (Dim::Known(offset), Dim::Known(arena)) = (d, p.arena) {
                    place.wants(*offset <= arena, || {
                        format!("is at byte {offset} of the arena, which has {arena}")
                    })?;
                }
            }
        }
    }
    p.check_dim(l.grid, p.exprs.len(), &at.field("grid"))?;
    at.field("threads").wants((1..=MAX_THREADS).contains(&l.threads), || {
        format!("is {}, not between 1 and {MAX_THREADS}", l.threads)
    })?;
    at.field("shared")
        .wants(l.shared <= MAX_SHARED, || format!("is {}, above {MAX_SHARED}", l.shared))?;
    for (i, m) in l.maps.iter().enumerate() {
        check_map(p, l, m, &at.field("maps").item(i))?;
    }
    match &l.library {
        None => Ok(()),
        Some(call) => check_library(l, call, &at.field("library")),
    }
}

/// Err: an offset is not within a tensor of static sizes.
fn inside(p: &Program, t: &Tensor, offset: Dim, at: &At) -> Result<(), Invalid> {
    p.check_size(offset, at)?;
    let width = super::check_dtype(&t.dtype, at)? as i64;
    let bytes = t.dims.iter().try_fold(width, |n, d| match d {
        Dim::Known(d) => n.checked_mul(*d),
        _ => None,
    });
    match (offset, bytes) {
        (Dim::Known(offset), Some(bytes)) => at.wants(offset < bytes, || {
            format!("is at byte {offset} of '{}', which has {bytes}", t.name)
        }),
        _ => at.wants(false, || format!("is in '{}', where sizes are not static", t.name)),
    }
}

/// Symbols are passed to the driver as C strings.
fn place_in_code(name: &str, at: &At) -> Result<(), Invalid> {
    at.wants(!name.is_empty() && !name.contains('\0'), || format!("is {name:?}, which is no name"))
}

/// Err: a parameter that must be a pointer is a size.
fn memory(l: &Launch, arg: usize, at: &At) -> Result<(), Invalid> {
    let at = at.field("arg");
    at.index(arg, l.args.len(), "args")?;
    at.wants(!matches!(l.args[arg], Arg::Size(_)), || format!("is {arg}, which is a size"))
}

fn check_map(p: &Program, l: &Launch, m: &TensorMap, at: &At) -> Result<(), Invalid> {
    memory(l, m.arg, at)?;
    let dtype = m.dtype == "tf32" || byte_size(&m.dtype).is_some();
    at.field("dtype").wants(dtype, || format!("is '{}', which is no element type", m.dtype))?;
    let rank = m.sizes.len();
    at.field("sizes").wants((1..=MAX_MAP_RANK).contains(&rank), || {
        format!("are {rank}, not 1 to {MAX_MAP_RANK}")
    })?;
    at.field("strides").wants(m.strides.len() + 1 == rank, || {
        format!("are {}, one fewer than the {rank} sizes is right", m.strides.len())
    })?;
    let boxed = match m.window {
        Some(_) => m.extent.len() == 2 && rank == 4,
        None => m.extent.len() == rank,
    };
    at.field("extent")
        .wants(boxed, || format!("has {} sizes for a tensor of rank {rank}", m.extent.len()))?;
    p.check_size(m.offset, &at.field("offset"))?;
    for (name, all) in [("sizes", &m.sizes), ("strides", &m.strides)] {
        for (i, d) in all.iter().enumerate() {
            p.check_size(*d, &at.field(name).item(i))?;
        }
    }
    Ok(())
}

fn check_library(l: &Launch, call: &LibraryCall, at: &At) -> Result<(), Invalid> {
    match call {
        LibraryCall::Gemm(g) => {
            let all = [("left", &g.left), ("right", &g.right), ("result", &g.result)];
            for (name, m) in all {
                let place = at.field(name);
                memory(l, m.arg, &place)?;
                reach(&m.dtype, m.offset, [(m.lines[0], m.stride), (m.lines[1], 1)], &place)?;
            }
            g.bias.as_ref().map_or(Ok(()), |b| memory(l, b.arg, &at.field("bias")))
        }
        LibraryCall::Convolution(c) => {
            let known = [("image", &c.image), ("weight", &c.weight), ("result", &c.result)];
            let added = [("bias", c.bias.as_ref()), ("residual", c.residual.as_ref())];
            let all = known.into_iter().map(|(n, v)| (n, Some(v))).chain(added);
            for (name, v) in all {
                let Some(v): Option<&Volume> = v else { continue };
                let place = at.field(name);
                memory(l, v.arg, &place)?;
                reach(&v.dtype, v.offset, v.sizes.into_iter().zip(v.strides), &place)?;
            }
            Ok(())
        }
    }
}

/// Err: the last element's offset overflows 64 bits, or the dtype is unknown.
fn reach(
    dtype: &str,
    offset: u64,
    dims: impl IntoIterator<Item = (u64, u64)>,
    at: &At,
) -> Result<(), Invalid> {
    let width = super::check_dtype(dtype, at)? as u64;
    let last = dims.into_iter().try_fold(offset, |at, (n, stride)| {
        at.checked_add(n.saturating_sub(1).checked_mul(stride)?)
    });
    let fits = last.and_then(|n| n.checked_mul(width)).is_some_and(|n| n <= i64::MAX as u64);
    at.wants(fits, || "reaches beyond any memory".into())
}

//! What the launch of a kernel on a GPU needs: grid, arguments, TMA descriptors.
use crate::{
    analysis::sizes::SizeBuilder,
    program::{
        external_ptx::PtxEntry,
        slots::{Sizes, Slots},
    },
    strategies::gpu::library,
    target::launch::{DEPENDENT, GRID, LIBRARY, PERSISTENT, SHARED_BYTES, TENSOR_MAPS, THREADS},
};
use kiln_dialects::{
    algebra::Expr,
    ir::*,
    ops::{self, GetGlobal, Launch, OpKind},
    sym::Dim as SymDim,
};
use kiln_passes::refine_shapes::Facts;
use kiln_runtime::program as p;
use std::collections::HashMap;

/// Launch parameters for a GPU; `None` if the kernel does not state them.
pub fn launch(
    symbols: &HashMap<String, Op>,
    op: Op,
    slots: &Slots,
    args: &[Value],
    sizes: &mut Sizes,
    facts: &Facts,
) -> Result<Option<p::Launch>> {
    let launch = Launch::of(op).ok_or_malformed(op)?;
    let kernel = symbols.get(&launch.kernel).copied();
    let about = kernel.and_then(|m| m.attr("kiln.kernel"));
    let func = kernel.and_then(|m| crate::analysis::kernels_of(m).first().copied());
    // For a kernel that is compiled elsewhere, its module holds the function's attributes.
    let stated = |name: &str| func.and_then(|f| f.attr(name)).or_else(|| about?.entry(name));
    let (Some(threads), Some(grid)) =
        (stated(THREADS).and_then(Attr::as_i64), stated(GRID).and_then(Attr::as_affine_map))
    else {
        return Ok(None);
    };
    let memory = |v: Value, sizes: &mut Sizes| -> Result<p::Arg> {
        let mut v = v;
        loop {
            let Some(op) = v.def() else {
                return args
                    .iter()
                    .position(|a| *a == v)
                    .map(p::Arg::Input)
                    .ok_or_else(|| "reads a value without a definition".into());
            };
            match op.kind() {
                Some(OpKind::Reshape) => v = op.operand(0),
                Some(OpKind::Launch) => {
                    let writer = Launch::of(op).ok_or_malformed(op)?;
                    let i = op
                        .results()
                        .iter()
                        .position(|r| *r == v)
                        .ok_or("is no result of its launch")?;
                    v = *writer.outs.get(i).ok_or("has fewer destinations than results")?;
                }
                Some(OpKind::GetGlobal) => {
                    let name = GetGlobal::of(op).ok_or_malformed(op)?.global;
                    let found = slots.globals.iter().position(|g| *g == name);
                    return found
                        .map(p::Arg::Global)
                        .ok_or_else(|| "reads a global without a slot".into());
                }
                Some(OpKind::Output) => {
                    return Ok(p::Arg::Output(
                        ops::Output::of(op).ok_or_malformed(op)?.index as usize,
                    ));
                }
                Some(OpKind::Arena) => {
                    let offset = ops::Arena::of(op).ok_or_malformed(op)?.offset;
                    return Ok(p::Arg::Arena(sizes.build(&facts.size_value(offset))?));
                }
                Some(OpKind::Reuse) => {
                    let reuse = ops::Reuse::of(op).ok_or_malformed(op)?;
                    let offset = sizes.build(&facts.size_value(reuse.offset))?;
                    let output = reuse.memory.def().and_then(ops::Output::of);
                    let input = args.iter().position(|a| *a == reuse.memory);
                    return match (output, input) {
                        (Some(o), _) => Ok(p::Arg::OutputAt(o.index as usize, offset)),
                        (None, Some(i)) => Ok(p::Arg::InputAt(i, offset)),
                        (None, None) => Err("reuses what is no argument and no result".into()),
                    };
                }
                _ => return Err(format!("has memory made by {}", op.name()).into()),
            }
        }
    };
    let mut all = vec![];
    let given: Vec<SymDim> = launch.sizes.iter().map(|v| facts.size_value(*v)).collect();
    // External PTX takes its parameters in the order that its op states.
    let own = kernel.and_then(PtxEntry::of);
    let (tensors, numbers): (Vec<Option<&Value>>, Vec<SymDim>) = match &own {
        Some(own) => (
            own.operands
                .iter()
                .map(|i| launch.inputs.get(*i))
                .chain(own.results.iter().map(|i| launch.outs.get(*i)))
                .collect(),
            own.sizes.iter().map(|e| size(e, &given)).collect(),
        ),
        None => (launch.inputs.iter().chain(&launch.outs).map(Some).collect(), given.clone()),
    };
    for v in tensors {
        all.push(memory(*v.ok_or("has fewer tensors than its kernel")?, sizes)?);
    }
    for d in &numbers {
        all.push(p::Arg::Size(sizes.build(d)?));
    }
    let blocks = grid.1.first().map_or(SymDim::Known(1), |e| size(e, &given));
    let grid = sizes.build(&blocks)?;
    let number = |n: i64| u32::try_from(n).map_err(|_| format!("has a launch with {n}"));
    let mut maps = vec![];
    for m in stated(TENSOR_MAPS).and_then(Attr::as_array).unwrap_or_default() {
        maps.push(tensor_map(m, &given, sizes)?);
    }
    let shared = number(stated(SHARED_BYTES).and_then(Attr::as_i64).unwrap_or(0))?;
    let resident = number(stated(PERSISTENT).and_then(Attr::as_i64).unwrap_or(0))?;
    let library = stated(LIBRARY).map(library::read).transpose()?;
    Ok(Some(p::Launch {
        args: all,
        grid,
        resident,
        threads: number(threads)?,
        shared,
        maps,
        library,
        dependent: stated(DEPENDENT).is_some(),
        entry: own.map(|own| own.entry),
    }))
}

/// An entry of `kiln.tensor_maps` (a TMA descriptor), with its sizes as expressions.
fn tensor_map(m: Attr, given: &[SymDim], sizes: &mut Sizes) -> Result<p::TensorMap> {
    let bad = || format!("has a bad tensor map {m}");
    let extent: Vec<u32> = m
        .entry("box")
        .and_then(Attr::as_i64s)
        .ok_or_else(bad)?
        .iter()
        .filter_map(|n| u32::try_from(*n).ok())
        .collect();
    let (_, values) = m.entry("map").and_then(Attr::as_affine_map).ok_or_else(bad)?;
    let element = m.entry("element").and_then(Attr::as_type).ok_or_else(bad)?;
    // No tensor has tf32 elements; TMA converts f32 on load.
    let dtype = if element == Type::tf32(element.ctx()) { "tf32" } else { element.dtype()?.name() }
        .to_string();
    let arg = m
        .entry("argument")
        .and_then(Attr::as_i64)
        .and_then(|n| usize::try_from(n).ok())
        .ok_or_else(bad)?;
    let values: Vec<p::Dim> =
        values.iter().map(|e| sizes.build(&size(e, given))).collect::<Result<_, _>>()?;
    let window = match m.entry("window") {
        Some(w) => {
            let pair = |name: &str| {
                w.entry(name)
                    .and_then(Attr::as_i64s)
                    .and_then(|all| <[i64; 2]>::try_from(all).ok())
                    .ok_or_else(bad)
            };
            let number = |n: i64| i32::try_from(n).map_err(|_| bad());
            let both = |[a, b]: [i64; 2]| Ok::<_, String>([number(a)?, number(b)?]);
            let strides = both(pair("strides")?)?.map(i32::unsigned_abs);
            Some(p::Window { low: both(pair("low")?)?, high: both(pair("high")?)?, strides })
        }
        None => None,
    };
    let rank = if window.is_some() { 4 } else { extent.len() };
    let (offset, rest) =
        values.split_first().filter(|(_, rest)| rest.len() + 1 == 2 * rank).ok_or_else(bad)?;
    let (shape, strides) = rest.split_at(rank);
    Ok(p::TensorMap {
        arg,
        dtype,
        offset: *offset,
        sizes: shape.to_vec(),
        strides: strides.to_vec(),
        extent,
        window,
    })
}

/// An affine expression with the given sizes substituted.
fn size(e: &Affine, given: &[SymDim]) -> SymDim {
    match e {
        Expr::Const(n) => SymDim::Known(*n),
        Expr::Leaf(MapInput::Dim(_)) => SymDim::Unknown,
        Expr::Leaf(MapInput::Symbol(i)) => given.get(*i).cloned().unwrap_or(SymDim::Unknown),
        Expr::Apply(kind, both) => {
            SymDim::apply(*kind, &size(&both.0, given), &size(&both.1, given))
        }
    }
}

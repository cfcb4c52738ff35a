//! Extracts each kernel of a module as a program of its own, for every tool that takes a model: to
//! inspect, benchmark or run.
use crate::driver::compile::CompileError;
use kiln_dialects::{
    ir::*,
    ops::{BindShape, Launch, Sym},
    value::DType,
};
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

/// A file name for a kernel's name.
pub fn file_name(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' })
        .collect();
    plain.chars().take(100).collect()
}

/// Writes `<kernel>.mlir` for every kernel that has a body: a module on the same level, whose
/// `@main` takes the inputs of the kernel's first launch and returns its results.
pub fn write(module: &Module, dir: &Path) -> Result<(), CompileError> {
    let io =
        |path: &Path, e: std::io::Error| CompileError::Module(format!("{}: {e}", path.display()));
    std::fs::create_dir_all(dir).map_err(|e| io(dir, e))?;
    let mut seen = BTreeSet::new();
    for op in walk(module.op()) {
        let Some(launch) = Launch::of(op) else { continue };
        let Some(kernel) = module.find(&launch.kernel) else { continue };
        // A kernel that is only declared is a runtime function.
        if !seen.insert(launch.kernel.clone()) || crate::analysis::kernels_of(kernel).is_empty() {
            continue;
        }
        let own = match program(module, op, &launch, kernel) {
            Ok((own, _)) => own,
            Err(why) => {
                tracing::info!(target: "kiln::passes", kernel = launch.kernel, "is not written as a program of its own: {why}");
                continue;
            }
        };
        let path = dir.join(format!("{}.mlir", file_name(&launch.kernel)));
        let text = own.print(PrintOptions { names_from_locations: true, ..Default::default() });
        std::fs::write(&path, text).map_err(|e| io(&path, e))?;
    }
    Ok(())
}

/// A module with one launch. `@main` takes its inputs, then one i8 tensor for each free symbol,
/// only for its size. Err: why the launch cannot be extracted.
pub fn program(
    module: &Module,
    op: Op,
    launch: &Launch,
    kernel: Op,
) -> Result<(Module, Vec<String>)> {
    let ctx = op.ctx();
    let own = Module::new(op.loc());
    module
        .op()
        .attrs()
        .iter()
        .filter(|(n, _)| n != "sym_name")
        .for_each(|(n, a)| own.op().set_attr(n, *a));
    let top = Builder::at_end(ctx, own.body(), op.loc());
    let mut inputs: Vec<Type> = launch.inputs.iter().map(|v| v.ty()).collect();
    let results: Vec<Type> = op.results().iter().map(|v| v.ty()).collect();
    // Free symbols are the sizes of additional inputs.
    let mut only = vec![];
    for v in launch.sizes.iter().chain(
        launch
            .outs
            .iter()
            .flat_map(|o| o.def())
            .flat_map(|e| e.operands())
            .collect::<Vec<_>>()
            .iter(),
    ) {
        symbols(*v, &mut only)?;
    }
    let stated: Vec<Option<Vec<Size>>> = launch.inputs.iter().map(|v| sizes(*v)).collect();
    for size in stated.iter().flatten().flatten() {
        if let Size::Dynamic(v) = size {
            symbols(*v, &mut only)?;
        }
    }
    only.retain(|s| !stated.iter().flatten().flatten().any(|d| *d == Size::Dynamic(*s)));
    inputs.extend(
        only.iter().map(|_| Type::tensor(ctx, DType::I8, &[kiln_dialects::sym::Dim::Unknown])),
    );
    top.function("main", &inputs, &results, &mut |b, args| {
        let mut map: HashMap<Value, Value> = HashMap::new();
        for (sizes, arg) in stated.iter().zip(&args) {
            let Some(sizes) = sizes else { continue };
            let sizes =
                sizes.iter().map(|s| size(&b, s, &mut map)).collect::<Result<Vec<_>, _>>()?;
            b.create_with(&BindShape { value: *arg, sizes }, &[], &mut [])?;
        }
        for (symbol, arg) in only.iter().zip(&args[launch.inputs.len()..]) {
            let sizes = vec![size(&b, &Size::Dynamic(*symbol), &mut map)?];
            b.create_with(&BindShape { value: *arg, sizes }, &[], &mut [])?;
        }
        let sizes =
            launch.sizes.iter().map(|v| index(&b, *v, &mut map)).collect::<Result<Vec<_>, _>>()?;
        let mut outs = vec![];
        for out in &launch.outs {
            let empty =
                out.def_as::<tensor::Empty>().ok_or("a result's memory is not made for it")?;
            let dynamic = empty
                .operands()
                .iter()
                .map(|v| index(&b, *v, &mut map))
                .collect::<Result<Vec<_>, _>>()?;
            outs.push(tensor::empty(b, &dynamic, out.ty())?);
        }
        let inputs = args[..launch.inputs.len()].to_vec();
        let node = Launch {
            kernel: launch.kernel.clone(),
            inputs,
            sizes,
            outs,
            flops_per_element: launch.flops_per_element,
        };
        let made = b.create_with(&node, &results, &mut [])?;
        b.ret(&made.results()).map(drop)
    })?;
    top.clone_op(kernel, &|v| v)?;
    Ok((own, only.iter().filter_map(|v| Some(Sym::of(v.def()?)?.name)).collect()))
}

/// The sizes of a value with a dynamic dimension: as bound, or those of a launch's result.
fn sizes(v: Value) -> Option<Vec<Size>> {
    if let Some(bound) =
        v.uses().into_iter().find_map(|(op, at)| BindShape::of(op).filter(|_| at == 0))
    {
        return Some(bound.sizes);
    }
    let op = v.def()?;
    let at = op.results().iter().position(|r| *r == v)?;
    let out = *Launch::of(op)?.outs.get(at)?;
    let mut dynamic = out.def()?.operands().into_iter();
    let dims = v.ty().dims();
    dims.iter()
        .map(|d| d.known().map(Size::Static).or_else(|| dynamic.next().map(Size::Dynamic)))
        .collect()
}

/// Collects the symbols that an index value depends on.
fn symbols(v: Value, all: &mut Vec<Value>) -> Result<()> {
    let op = v.def().ok_or("a size is an argument of its function")?;
    if Sym::of(op).is_some() {
        if !all.contains(&v) {
            all.push(v);
        }
        return Ok(());
    }
    op.operands().into_iter().try_for_each(|v| symbols(v, all))
}

fn size(b: &Builder, s: &Size, map: &mut HashMap<Value, Value>) -> Result<Size> {
    match s {
        Size::Static(n) => Ok(Size::Static(*n)),
        Size::Dynamic(v) => Ok(Size::Dynamic(index(b, *v, map)?)),
    }
}

/// Clones an index value with its backward slice.
fn index(b: &Builder, v: Value, map: &mut HashMap<Value, Value>) -> Result<Value> {
    if let Some(made) = map.get(&v) {
        return Ok(*made);
    }
    let op = v.def().ok_or("a size is an argument of its function")?;
    for operand in op.operands() {
        if !operand.ty().is_index() {
            return Err("a size is read off a tensor".into());
        }
        index(b, operand, map)?;
    }
    let copy = b.clone_op(op, &|v| map.get(&v).copied().unwrap_or(v))?;
    map.extend(op.results().into_iter().zip(copy.results()));
    map.get(&v).copied().ok_or_else(|| "a size has been lost".into())
}

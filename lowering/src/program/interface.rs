//! The calling convention of a host function: the slots of its argument array, and the plain-data
//! [`Program`] that describes them.
use crate::{
    analysis::sizes::SizeBuilder,
    program::{
        control::control,
        launch::launch,
        plan::{host_functions, is_written},
        slots::{Sizes, Slots, dim_name, relation},
        unbacked,
    },
    target::kernel_attrs::{ALIASES, NOT_ALIASED, READS, SLICES},
};
use kiln_dialects::{
    ir::*,
    ops::{self, ArenaSize, Launch, OpKind},
    rules::{STATE, is_driver, state_result, tensor_type},
    sym::Dim as SymDim,
    value::DType,
};
use kiln_passes::refine_shapes::Facts;
use kiln_runtime::{
    program as p,
    program::{Dim, Program},
};
use std::collections::HashMap;

/// The symbol of a kernel's function, in its object or in the runtime.
pub fn kernel_symbol(kernel: Op) -> String {
    let about = kernel.attr("kiln.kernel");
    let stated = about
        .and_then(|k| k.entry("callee").or_else(|| k.entry("symbol")))
        .and_then(Attr::as_string);
    stated.unwrap_or_else(|| format!("kiln_{}", kernel.symbol().unwrap_or_default()))
}

/// Facts of a host function; an argument's dynamic size that only `kiln.dim` names becomes a
/// symbol.
pub fn facts(func: Op) -> Result<Facts> {
    Facts::of(func, 2)
}

/// The functions of a module that [`describe`] takes: host functions and drivers.
fn programs(module: Op) -> Vec<Op> {
    let drivers = blocks(module).into_iter().flat_map(|b| b.ops()).filter(|o| is_driver(*o));
    host_functions(module).into_iter().chain(drivers).collect()
}

/// The names of the functions that [`describe`] takes.
pub fn described(module: Op) -> Vec<String> {
    programs(module).into_iter().filter_map(Op::symbol).collect()
}

/// Describes a module on level `program`, without its objects.
pub fn describe(module: Op, function: &str) -> Result<Program> {
    let func = programs(module).into_iter().find(|f| f.symbol().as_deref() == Some(function));
    let func = func.ok_or_else(|| Error::at(module, format!("has no function @{function}")))?;
    let slots = Slots::of(func)?;
    let facts = facts(func)?;
    let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
    let end = block.terminator().ok_or_at(func, "has no return")?;
    let names = block.ops().into_iter().filter_map(ops::UnbackedSize::of).map(|u| u.name);
    let mut sizes =
        Sizes { slots: &slots, unbacked: names.collect(), exprs: vec![], known: HashMap::new() };
    for op in block.ops() {
        if let Some(d) = ops::Dim::of(op) {
            let input = block.args().iter().position(|a| *a == d.input).unwrap_or(0);
            let name = dim_name(input, d.axis as usize);
            let found = slots.symbols.iter().position(|(n, ..)| *n == name);
            found.map(|i| sizes.known.insert(facts.size_value(op.result(0)), Dim::Symbol(i)));
        }
    }
    let mut program = Program { format: p::FORMAT, name: function.into(), ..Default::default() };
    for (i, v) in block.args().into_iter().enumerate() {
        program.inputs.push(
            tensor(&mut sizes, &facts, v, name_of(v).unwrap_or_else(|| format!("input_{i}")))
                .at(func)?,
        );
    }
    // Callers pass a plain tensor, whatever dimension order the function uses.
    let listed = func.attr("arg_attrs").and_then(Attr::as_array).unwrap_or_default();
    let orders: Vec<Option<Vec<usize>>> = (0..program.inputs.len())
        .map(|i| {
            Some(
                listed
                    .get(i)?
                    .entry("kiln.order")?
                    .as_i64s()?
                    .into_iter()
                    .map(|d| d as usize)
                    .collect(),
            )
        })
        .collect();
    for (input, about) in listed.iter().enumerate() {
        if let Some(output) = about.entry(ALIASES).and_then(Attr::as_i64) {
            let output = usize::try_from(output).ok().filter(|n| *n < end.operand_count());
            let output = output.ok_or_at(func, "has no result of the number in kiln.aliases")?;
            program.aliases.push(p::Alias { input, output });
        }
        if let Some(state) = about.entry(STATE) {
            let output = state_result(*about).filter(|n| *n < end.operand_count());
            let output = output.ok_or_at(func, "has no result of the number in kiln.state")?;
            let source = state.entry("source").and_then(Attr::as_string).unwrap_or_default();
            let in_place = is_written(block.args()[input]);
            program.states.push(p::State { input, output, source, in_place });
        }
        if let Some(reason) = about.entry(NOT_ALIASED).and_then(Attr::as_string) {
            program.not_aliased.push(p::NotAliased { input, reason });
        }
    }
    for (input, order) in program.inputs.iter_mut().zip(&orders) {
        let Some(order) = order else { continue };
        let lying = input.dims.clone();
        order.iter().zip(lying).for_each(|(d, size)| input.dims[*d] = size);
        input.order = order.clone();
    }
    let symbols: HashMap<String, ops::Sym> =
        block.ops().into_iter().filter_map(ops::Sym::of).map(|s| (s.name.clone(), s)).collect();
    for (name, input, dim) in &slots.symbols {
        let (min, max, divisor) =
            symbols.get(name).map_or((0, None, 1), |s| (s.min, s.max, s.divisor));
        let dim = orders[*input].as_ref().map_or(*dim, |order| order[*dim]);
        program.symbols.push(p::Symbol {
            name: name.clone(),
            min,
            max,
            divisor,
            input: *input,
            dim,
        });
    }
    program.unbacked = unbacked::unbacked(func, &symbols, &mut sizes, &facts)?;
    for (i, v) in end.operands().into_iter().enumerate() {
        let told = program.unbacked.iter().find(|u| u.output == Some(i));
        let name = told.map_or_else(|| format!("output_{i}"), |u| u.name.clone());
        program.outputs.push(tensor(&mut sizes, &facts, v, name).at(end)?);
    }
    let globals: HashMap<String, Op> = blocks(module)
        .into_iter()
        .flat_map(|b| b.ops())
        .filter(|o| o.kind() == Some(OpKind::Global))
        .filter_map(|o| Some((o.symbol()?, o)))
        .collect();
    let functions: HashMap<String, Op> =
        host_functions(module).into_iter().filter_map(|f| Some((f.symbol()?, f))).collect();
    for name in &slots.globals {
        let op = *globals
            .get(name)
            .ok_or_else(|| Error::at(func, format!("reads @{name}, which is no global")))?;
        let mut global = global(op).at(op)?;
        let made = global.source.split_once('#').map(|(name, _)| name.to_string());
        if let Some(name) = made.filter(|name| functions.contains_key(name)) {
            global.role = p::Role::Packed;
            match &program.prepare {
                Some(one) if one.name != name => {
                    return Err(Error::at(op, "is made by another function than others"));
                }
                Some(_) => {}
                None if name == function => {
                    return Err(Error::at(op, "is made by the function that reads it"));
                }
                None => program.prepare = Some(Box::new(describe(module, &name)?)),
            }
        }
        program.globals.push(global);
    }
    let symbols: HashMap<String, Op> = blocks(module)
        .into_iter()
        .flat_map(|b| b.ops())
        .filter_map(|o| Some((o.symbol()?, o)))
        .collect();
    let kernels: HashMap<String, Op> = symbols
        .iter()
        .filter(|(_, o)| o.is("builtin.module"))
        .map(|(name, o)| (name.clone(), *o))
        .collect();
    let launches: HashMap<Op, usize> = block
        .ops()
        .into_iter()
        .filter(|o| o.kind() == Some(OpKind::Launch))
        .enumerate()
        .map(|(n, o)| (o, n))
        .collect();
    for op in block.ops() {
        if let Some(a) = ArenaSize::of(op) {
            program.arena = sizes.build(&facts.size_value(a.bytes)).at(op)?;
        }
        if let Some(r) = ops::Require::of(op) {
            let mut size = |v: Value| sizes.build(&facts.size_value(v)).at(op);
            let (lhs, rhs) = (size(r.lhs)?, size(r.rhs)?);
            let decided = matches!((lhs, rhs), (Dim::Known(a), Dim::Known(b)) if kiln_dialects::sym::holds(r.kind, a, b));
            if !decided {
                program.conditions.push(p::Condition {
                    kind: relation(r.kind),
                    lhs,
                    rhs,
                    text: r.message,
                });
            }
        }
        if let Some(r) = ops::Reuse::of(op) {
            program.overwrites.extend(block.args().iter().position(|a| *a == r.memory));
        }
        if let Some(a) = ops::AdvanceRng::of(op) {
            program.rng_increment = sizes.build(&facts.size_value(a.increment)).at(op)?;
        }
        if let Some(r) = ops::RequireIndex::of(op) {
            // A view has its argument's elements.
            let mut index = r.index;
            while let Some(view) = index.def().filter(|o| o.kind() == Some(OpKind::Reshape)) {
                index = view.operand(0);
            }
            let input = block.args().iter().position(|a| *a == index);
            let size = sizes.build(&facts.size_value(r.size)).at(op)?;
            program.indices.extend(input.map(|input| p::IndexGuard {
                input,
                size,
                wraps: r.wraps,
                text: r.message,
            }));
        }
        if op.kind() == Some(OpKind::Launch) {
            let mut kernel = kernel(&kernels, &launches, op, &mut sizes, &facts).at(op)?;
            data_flow(&mut kernel, op, &block.args(), &mut sizes, &facts);
            kernel.launch =
                launch(&symbols, op, &slots, &block.args(), &mut sizes, &facts).at(op)?;
            program.kernels.push(kernel);
        }
    }
    if is_driver(func) {
        program.control = Some(Box::new(control(module, func, &mut sizes, &facts)?));
    }
    program.exprs = sizes.exprs;
    program.overwrites.sort_unstable();
    program.overwrites.dedup();
    unbacked::check_results(func, &program)?;
    program.entry.main = entry_symbol(function);
    Ok(program)
}

/// The symbol of a host function in its object.
pub fn entry_symbol(function: &str) -> String {
    format!("kiln_entry_{function}")
}

/// The innermost name in a value's location.
fn name_of(v: Value) -> Option<String> {
    v.loc()
        .chain()
        .into_iter()
        .find_map(|part| Some(part.strip_prefix('"')?.strip_suffix('"')?.to_string()))
}

fn tensor(sizes: &mut Sizes, facts: &Facts, v: Value, name: String) -> Result<p::Tensor> {
    let t = tensor_type(v.ty())?;
    let dims = facts.dims(v).iter().map(|d| sizes.build(d)).collect::<Result<_, _>>()?;
    Ok(p::Tensor { name, dtype: t.dtype.name().into(), dims, order: vec![] })
}

fn global(op: Op) -> Result<p::Global> {
    let g = ops::Global::of(op).ok_or_malformed(op)?;
    let t = tensor_type(g.r#type)?;
    let shape = t
        .dims
        .iter()
        .map(|d| d.known().and_then(|n| u64::try_from(n).ok()))
        .collect::<Option<Vec<_>>>();
    let data = match g.value {
        Some(value) => {
            let tensor = value.as_tensor()?;
            Some(if t.dtype == DType::I1 {
                DType::I8.encode(&tensor)
            } else {
                t.dtype.encode(&tensor)
            })
        }
        None => None,
    };
    let role = if g.is_mutable { p::Role::Mutable } else { p::Role::Frozen };
    let shape = shape.ok_or("has a size that is not known")?;
    Ok(p::Global {
        name: g.sym_name,
        dtype: t.dtype.name().into(),
        shape,
        source: g.source.unwrap_or_default(),
        data,
        role,
    })
}

/// Records for reports which arguments and results of the call a launch reads and writes, and the
/// sizes of its results. Sizes without an expression are left out.
fn data_flow(k: &mut p::Kernel, op: Op, args: &[Value], sizes: &mut Sizes, facts: &Facts) {
    let Some(launch) = Launch::of(op) else { return };
    let memory = |mut v: Value| {
        while let Some(view) = v.def().filter(|o| o.kind() == Some(OpKind::Reshape)) {
            v = view.operand(0);
        }
        v
    };
    let inputs = launch.inputs.iter().filter_map(|v| args.iter().position(|a| *a == memory(*v)));
    k.inputs = inputs.collect();
    k.inputs.sort_unstable();
    k.inputs.dedup();
    let output = |v: &Value| Some(ops::Output::of(memory(*v).def()?)?.index as usize);
    k.outputs = launch.outs.iter().filter_map(output).collect();
    // What a launch writes into, it does not read.
    k.inputs.retain(|i| !launch.outs.contains(&args[*i]));
    k.updates = launch.outs.iter().filter_map(|v| args.iter().position(|a| a == v)).collect();
    let results = launch.outs.iter().map(|v| tensor(sizes, facts, *v, String::new()));
    k.results = results.filter_map(Result::ok).collect();
}

/// A launch as plain data. `launches`: for each launch, the number of launches before it.
fn kernel(
    kernels: &HashMap<String, Op>,
    launches: &HashMap<Op, usize>,
    op: Op,
    sizes: &mut Sizes,
    facts: &Facts,
) -> Result<p::Kernel> {
    let launch = Launch::of(op).ok_or_malformed(op)?;
    let kernel = *kernels
        .get(&launch.kernel)
        .ok_or_else(|| format!("names @{}, which is no kernel", launch.kernel))?;
    let about = kernel.attr("kiln.kernel");
    let text =
        |key: &str| about.and_then(|k| k.entry(key)).and_then(Attr::as_string).unwrap_or_default();
    let list = |key: &str| {
        let all = about.and_then(|k| k.entry(key)).and_then(Attr::as_array).unwrap_or_default();
        all.into_iter().filter_map(Attr::as_string).collect::<Vec<_>>()
    };
    let mut bytes = SymDim::Known(0);
    let pieces: Vec<Vec<i64>> = about
        .and_then(|k| k.entry(SLICES)?.as_array())
        .unwrap_or_default()
        .into_iter()
        .filter_map(Attr::as_i64s)
        .collect();
    let given = |n: &i64| {
        if *n >= 0 {
            SymDim::Known(*n)
        } else {
            launch.sizes.get((-1 - n) as usize).map_or(SymDim::Unknown, |v| facts.size_value(*v))
        }
    };
    let volume = |v: &Value, dims: &[SymDim]| -> Result<SymDim> {
        Ok(dims
            .iter()
            .fold(SymDim::Known(tensor_type(v.ty())?.dtype.byte_size() as i64), |n, d| n.mul(d)))
    };
    let parts = about.and_then(|k| k.entry(READS)?.as_i64s()).unwrap_or_default();
    for (i, v) in launch.inputs.iter().enumerate().filter(|(_, v)| !launch.outs.contains(v)) {
        let part = parts.chunks_exact(2).find(|pair| pair[0] == i as i64);
        let read = match part {
            Some(pair) => volume(v, &[SymDim::Known(pair[1])])?,
            None => volume(v, facts.dims(*v))?,
        };
        bytes = bytes.add(&read);
    }
    for (r, v) in launch.outs.iter().enumerate() {
        let mine: Vec<&Vec<i64>> =
            pieces.iter().filter(|p| p.first() == Some(&(r as i64))).collect();
        if mine.is_empty() {
            bytes = bytes.add(&volume(v, facts.dims(*v))?);
        }
        for piece in mine {
            bytes = bytes.add(&volume(v, &piece[1..].iter().map(given).collect::<Vec<_>>())?);
        }
    }
    let writer = |mut v: Value| {
        while let Some(view) = v.def().filter(|o| o.kind() == Some(OpKind::Reshape)) {
            v = view.operand(0);
        }
        launches.get(&v.def()?).copied()
    };
    let mut reads: Vec<usize> = launch.inputs.iter().filter_map(|v| writer(*v)).collect();
    reads.sort_unstable();
    reads.dedup();
    let elements = launch.outs.first().map_or(SymDim::Known(0), |v| {
        facts.dims(*v).iter().fold(SymDim::Known(1), |n, d| n.mul(d))
    });
    let flops = elements.mul(&SymDim::Known(launch.flops_per_element.unwrap_or(0)));
    Ok(p::Kernel {
        name: launch.kernel.clone(),
        symbol: kernel_symbol(kernel),
        object: launch.kernel,
        kind: text("kind"),
        ops: list("ops"),
        sources: op.loc().sources(),
        not_fused: list("not_fused"),
        reads,
        bytes: sizes.build(&bytes).ok(),
        flops: sizes.build(&flops).ok(),
        ..Default::default()
    })
}

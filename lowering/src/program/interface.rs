//! The calling convention of a host function: the slots of its argument array, and the plain-data
//! [`Program`] that describes them.
use crate::{
    analysis::sizes::MakeSize,
    program::{control::control, external_ptx::Given, plan::host_functions},
    strategies::gpu::library,
    target::{
        kernel_attrs::SLICES,
        launch::{GRID, LIBRARY, PERSISTENT, SHARED_BYTES, TENSOR_MAPS, THREADS},
    },
};
use kiln_dialects::{
    algebra::Expr,
    ir::*,
    ops::{self, ArenaSize, BindShape, GetGlobal, Launch, OpKind, SymKind},
    rules::{is_driver, tensor_type},
    sym::{Atom, Dim as SymDim},
    value::DType,
};
use kiln_passes::refine_shapes::Facts;
use kiln_runtime::{
    program as p,
    program::{Dim, Program},
};
use std::collections::HashMap;

/// Layout of a host function's argument array: 64-bit words, pointers first.
pub struct Slots {
    inputs: usize,
    outputs: usize,
    /// Names of the globals, in order of first use.
    pub globals: Vec<String>,
    /// Symbols: name, and the argument and dimension it is read from.
    pub symbols: Vec<(String, usize, usize)>,
}

impl Slots {
    /// Derives the layout from a host function.
    pub fn of(func: Op) -> Result<Slots> {
        let block = func.regions().first().and_then(|r| r.first()).ok_or_at(func, "has no body")?;
        let end = block.terminator().ok_or_at(func, "has no return")?;
        let args = block.args();
        let mut s = Slots {
            inputs: args.len(),
            outputs: end.operand_count(),
            globals: vec![],
            symbols: vec![],
        };
        let place = |v: Value| args.iter().position(|a| *a == v);
        for op in block.ops() {
            if let Some(g) = GetGlobal::of(op).filter(|g| !s.globals.contains(&g.global)) {
                s.globals.push(g.global);
            } else if let Some(b) = BindShape::of(op) {
                let Some(input) = place(b.value) else { continue };
                for (dim, size) in b.sizes.iter().enumerate() {
                    let Size::Dynamic(v) = size else { continue };
                    if let Some(sym) = v
                        .def()
                        .and_then(ops::Sym::of)
                        .filter(|sym| s.symbols.iter().all(|(n, ..)| *n != sym.name))
                    {
                        s.symbols.push((sym.name, input, dim));
                    }
                }
            } else if let Some(d) = ops::Dim::of(op) {
                let input =
                    place(d.input).ok_or_at(op, "takes the size of a value that is no argument")?;
                let name = dim_name(input, d.axis as usize);
                if s.symbols.iter().all(|(n, ..)| *n != name) {
                    s.symbols.push((name, input, d.axis as usize));
                }
            }
        }
        Ok(s)
    }
    /// The slot of the arena pointer.
    pub const ARENA: usize = 0;
    /// The slot of the pointer to the call's [`kiln_runtime::profile::Profile`]; null without a
    /// profile.
    pub const PROFILE: usize = 1;
    const FIRST: usize = 2;
    /// The slot of argument `i`.
    pub fn input(&self, i: usize) -> usize {
        Self::FIRST + i
    }
    /// The slot of result `i`.
    pub fn output(&self, i: usize) -> usize {
        self.input(self.inputs) + i
    }
    /// The slot of a global, if it has one.
    pub fn global(&self, name: &str) -> Option<usize> {
        self.globals.iter().position(|g| g == name).map(|i| self.output(self.outputs) + i)
    }
    /// The slot of a symbol, if it has one.
    pub fn symbol(&self, name: &str) -> Option<usize> {
        self.symbols
            .iter()
            .position(|(n, ..)| n == name)
            .map(|i| self.output(self.outputs) + self.globals.len() + i)
    }
}

/// The generated name of a dynamic dimension without a symbol.
pub fn dim_name(input: usize, axis: usize) -> String {
    format!("input_{input}.{axis}")
}

/// The symbol of a kernel's function, in its object or in the runtime.
pub fn kernel_symbol(kernel: Op) -> String {
    let about = kernel.attr("kiln.kernel");
    let stated = about
        .and_then(|k| k.entry("callee").or_else(|| k.entry("symbol")))
        .and_then(Attr::as_string);
    stated.unwrap_or_else(|| format!("kiln_{}", kernel.symbol().unwrap_or_default()))
}

/// Size expressions of a [`Program`].
struct Sizes<'a> {
    slots: &'a Slots,
    exprs: Vec<p::Expr>,
    known: HashMap<SymDim, Dim>,
}

impl MakeSize for Sizes<'_> {
    type Made = Dim;
    fn number(&mut self, n: i64) -> Result<Dim> {
        Ok(Dim::Known(n))
    }
    fn leaf(&mut self, a: &Atom, _: &SymDim) -> Result<Dim> {
        let Atom::Sym(name) = a else { return Err("has a size that no argument states".into()) };
        let found = self.slots.symbols.iter().position(|(n, ..)| n == name);
        found
            .map(Dim::Symbol)
            .ok_or_else(|| format!("has symbol @{name}, which no argument binds").into())
    }
    fn apply(&mut self, kind: SymKind, lhs: Dim, rhs: Dim) -> Result<Dim> {
        self.exprs.push(p::Expr { kind: expr_kind(kind), lhs, rhs });
        Ok(Dim::Expr(self.exprs.len() - 1))
    }
    fn made(&self, d: &SymDim) -> Option<Dim> {
        self.known.get(d).copied()
    }
    fn remember(&mut self, d: &SymDim, made: Dim) {
        self.known.insert(d.clone(), made);
    }
}

/// The kind of a size expression as plain data.
pub fn expr_kind(kind: SymKind) -> p::ExprKind {
    match kind {
        SymKind::Add => p::ExprKind::Add,
        SymKind::Mul => p::ExprKind::Mul,
        SymKind::Floordiv => p::ExprKind::FloorDiv,
        SymKind::Mod => p::ExprKind::Mod,
        SymKind::Min => p::ExprKind::Min,
        SymKind::Max => p::ExprKind::Max,
        SymKind::Pow => p::ExprKind::Pow,
    }
}

/// A comparison of sizes as plain data.
pub fn relation(kind: ops::CompareKind) -> p::Relation {
    match kind {
        ops::CompareKind::Eq => p::Relation::Eq,
        ops::CompareKind::Ne => p::Relation::Ne,
        ops::CompareKind::Lt => p::Relation::Lt,
        ops::CompareKind::Le => p::Relation::Le,
        ops::CompareKind::Gt => p::Relation::Gt,
        ops::CompareKind::Ge => p::Relation::Ge,
    }
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
    let mut sizes = Sizes { slots: &slots, exprs: vec![], known: HashMap::new() };
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
    for (i, v) in end.operands().into_iter().enumerate() {
        program.outputs.push(tensor(&mut sizes, &facts, v, format!("output_{i}")).at(end)?);
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
            program.arena = sizes.make(&facts.size_value(a.bytes)).at(op)?;
        }
        if let Some(r) = ops::Require::of(op) {
            let mut size = |v: Value| sizes.make(&facts.size_value(v)).at(op);
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
    program.entry.main = entry_symbol(function);
    Ok(program)
}

/// Launch parameters for a GPU; `None` if the kernel does not state them.
fn launch(
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
                    return Ok(p::Arg::Arena(sizes.make(&facts.size_value(offset))?));
                }
                _ => return Err(format!("has memory made by {}", op.name()).into()),
            }
        }
    };
    let mut all = vec![];
    let given: Vec<SymDim> = launch.sizes.iter().map(|v| facts.size_value(*v)).collect();
    // External PTX takes its parameters in the order that its op states.
    let own = kernel.and_then(Given::of);
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
        all.push(p::Arg::Size(sizes.make(d)?));
    }
    let blocks = grid.1.first().map_or(SymDim::Known(1), |e| size(e, &given));
    let grid = sizes.make(&blocks)?;
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
        values.iter().map(|e| sizes.make(&size(e, given))).collect::<Result<_, _>>()?;
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
    let dims = facts.dims(v).iter().map(|d| sizes.make(d)).collect::<Result<_, _>>()?;
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

/// Source locations of the ops of a launch, in order, without duplicates.
pub(crate) fn sources(loc: Loc) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    for part in loc.parts().into_iter().rev() {
        let place = part.place().map(|(file, line, _)| format!("{file}:{line}"));
        let text = match (part.name(), place) {
            (Some(name), Some(place)) => format!("{name} ({place})"),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => continue,
        };
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
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
    for v in launch.inputs.iter().filter(|v| !launch.outs.contains(v)) {
        bytes = bytes.add(&volume(v, facts.dims(*v))?);
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
        sources: sources(op.loc()),
        not_fused: list("not_fused"),
        reads,
        bytes: sizes.make(&bytes).ok(),
        flops: sizes.make(&flops).ok(),
        ..Default::default()
    })
}

//! From an exported program to a module: globals, arguments with their symbols, ATen ops in order,
//! results.
use super::{
    CaptureError, Captured, Output, Unsupported,
    aten::{self, Args, Cx, Declared, RandomOrder, Rng, STATE, Val, Writes},
    autocast_args, control, draws, guards, layout, memory,
    pt2::Weight,
    schema::*,
    srepr::{self, Symbols},
    storage::ViewOp,
    wrap,
};
use kiln_dialects::{
    ir::*,
    ops::*,
    rules::{Level, SIZE_RESULTS},
    sym::Dim,
};
use serde_json::Value as Json;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::Path,
};

/// Emits a program as a module, with random numbers in an order.
pub(super) fn emit(
    ctx: Ctx,
    path: &Path,
    program: Program,
    weights: BTreeMap<String, Weight>,
    order: RandomOrder,
) -> Result<Captured, CaptureError> {
    let file = path.display().to_string();
    let fail = |e: Error| CaptureError::file(&file, e);
    unsupported(&program)?;
    let root = Loc::file(ctx, &file, 1, 1);
    let module = Module::new(root);
    module.op().set_attr("kiln.level", Attr::string(ctx, Level::Graph.name()));
    let top = Builder::at_end(ctx, module.body(), root);

    let graph = &program.graph_module.graph;
    let mut used = BTreeMap::new();
    // (name in the graph, its global) and (name in the graph, its type).
    let (mut globals, mut inputs) = (vec![], vec![]);
    for spec in &program.graph_module.signature.input_specs {
        let (kind, spec) =
            tag(spec).ok_or_else(|| fail("an input specification without a kind".into()))?;
        let key = match kind {
            "parameter" => "parameter_name",
            "buffer" => "buffer_name",
            "tensor_constant" => "tensor_constant_name",
            "user_input" => {
                let name = spec["arg"]["as_tensor"]["name"].as_str();
                // Numbers and None among the inputs were specialised by the export.
                if let Some(name) = name {
                    let meta = graph
                        .tensor_values
                        .get(name)
                        .ok_or_else(|| fail(format!("input {name} has no type").into()))?;
                    inputs.push((name.to_string(), meta.clone()));
                }
                continue;
            }
            other => return Err(fail(format!("inputs of kind {other} are not supported").into())),
        };
        let (Some(arg), Some(name)) = (spec["arg"]["name"].as_str(), spec[key].as_str()) else {
            return Err(fail(format!("a {kind} without a name").into()));
        };
        let weight = weights
            .get(name)
            .ok_or_else(|| fail(format!("{kind} {name} is not in the archive").into()))?;
        let dims: Vec<Dim> = weight.shape.iter().map(|n| Dim::Known(*n as i64)).collect();
        let ty = Type::tensor(ctx, weight.dtype, &dims);
        globals.push((arg.to_string(), name.to_string(), ty));
        if used.insert(name.to_string(), weight.clone()).is_none() {
            let global = Global {
                sym_name: name.into(),
                sym_visibility: Some("private".into()),
                is_mutable: false,
                r#type: ty,
                source: Some(format!(
                    "{}#{name}",
                    path.file_name().map_or("".into(), |f| f.to_string_lossy())
                )),
                value: None,
            };
            top.create_with(&global, &[], &mut []).map_err(fail)?;
        }
    }

    let types = inputs
        .iter()
        .map(|(name, m)| input_type(ctx, m).map_err(|e| fail(format!("input {name} {e}").into())))
        .collect::<Result<Vec<_>, _>>()?;
    let mut outputs = vec![];
    let mut error = None;
    let mut result_types = vec![];
    let mut state_type = None;
    let func = top.function("main", &types, &[], &mut |b, args| {
        let outcome = body(&program, (&b, order), &inputs, &globals, args, &mut state_type);
        match outcome {
            Ok((results, kinds)) => {
                result_types = results.iter().map(|v| v.ty()).collect();
                outputs = kinds;
                b.ret(&results).map(|_| ())
            }
            Err(e) => {
                error = Some(e);
                Err("capture failed".into())
            }
        }
    });
    let func = match (func, error) {
        (_, Some(e)) => return Err(e),
        (Err(e), None) => return Err(fail(e)),
        (Ok(f), None) => f,
    };
    if state_type.is_some() && dead_state(func) {
        state_type = None;
    }
    let types: Vec<Type> = types.into_iter().chain(state_type).collect();
    let told = outputs.iter().filter_map(|o| match o {
        Output::Size(name) => Some(Attr::string(ctx, name)),
        _ => None,
    });
    let told: Vec<Attr> = told.collect();
    if !told.is_empty() {
        func.set_attr(SIZE_RESULTS, Attr::array(ctx, &told));
    }
    func.set_attr("function_type", Attr::ty(Type::function(ctx, &types, &result_types)));
    layouts(ctx, func, &inputs, types.len());
    let (ok, diagnostics) = collect(ctx, || module.op().verify());
    if !ok {
        return Err(fail(
            format!(
                "the captured graph does not verify: {}",
                diagnostics.first().map_or(String::new(), |d| d.to_string())
            )
            .into(),
        ));
    }
    Ok(Captured {
        module,
        weights: used,
        inputs: inputs.into_iter().map(|i| i.0).chain(state_type.map(|_| STATE.into())).collect(),
        outputs,
    })
}

/// Collects all unsupported overloads, with counts and the location of their first use.
fn unsupported(program: &Program) -> Result<(), CaptureError> {
    let mut all: Vec<Unsupported> = vec![];
    missing(&program.graph_module.graph, &mut all);
    if all.is_empty() { Ok(()) } else { Err(CaptureError::Unsupported(all)) }
}

fn missing(graph: &Graph, all: &mut Vec<Unsupported>) {
    for node in &graph.nodes {
        let target = aten::short(&node.target);
        if control::is_control(target) || wrap::is_wrapper(target) {
            control::graphs(node).iter().for_each(|g| missing(g, all));
            continue;
        }
        if aten::find(target).is_some() {
            continue;
        }
        match all.iter_mut().find(|u| u.target == target) {
            Some(u) => u.count += 1,
            None => all.push(Unsupported {
                target: target.into(),
                count: 1,
                location: source_location(node),
            }),
        }
    }
}

/// Frames of the node's stack trace, outermost first.
fn frames(node: &GraphNode) -> Vec<(String, u32)> {
    let trace = node.metadata.get("stack_trace").and_then(Json::as_str).unwrap_or("");
    let frame = |line: &str| {
        let rest = line.trim().strip_prefix("File \"")?;
        let (file, rest) = rest.split_once("\", line ")?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some((file.to_string(), digits.parse().ok()?))
    };
    trace.lines().filter_map(frame).collect()
}

pub(super) fn source_location(node: &GraphNode) -> String {
    frames(node).first().map_or("an unknown place".into(), |(f, l)| format!("{f}:{l}"))
}

/// The chain of frames, named after the node's result.
fn location(ctx: Ctx, node: &GraphNode, name: &str) -> Loc {
    let mut frames = frames(node).into_iter().map(|(f, l)| Loc::file(ctx, &f, l, 1)).rev();
    let inner = frames.next().unwrap_or(Loc::unknown(ctx));
    frames.fold(inner, Loc::called_from).named(name)
}

fn input_type(ctx: Ctx, m: &TensorMeta) -> Result<Type> {
    let size = |s: &Json| match s["as_int"].as_i64() {
        Some(n) if n < 0 => Err(Error::from(format!("has the size {n}"))),
        Some(n) => Ok(Dim::Known(n)),
        None => Ok(Dim::Unknown),
    };
    let dims = m.sizes.iter().map(size).collect::<Result<Vec<Dim>>>()?;
    let (dtype, complex) = element(m.dtype)?;
    let dims = if complex { [dims, vec![Dim::Known(2)]].concat() } else { dims };
    Ok(Type::tensor(ctx, dtype, &dims))
}

/// Whether a tensor's elements are complex: its value has a last dimension of two parts.
pub(super) fn is_complex(m: Option<&TensorMeta>) -> bool {
    m.is_some_and(|m| element(m.dtype).is_ok_and(|(_, complex)| complex))
}

/// Static layouts of `count` arguments, of which the last may be the generator state. Dynamic ones
/// are contiguous; others are rejected earlier.
fn layouts(ctx: Ctx, func: Op, inputs: &[(String, TensorMeta)], count: usize) {
    let layout = |m: &TensorMeta| {
        let mut strides =
            m.strides.iter().map(|s| s["as_int"].as_i64()).collect::<Option<Vec<_>>>()?;
        let mut offset = m.storage_offset["as_int"].as_i64()?;
        if is_complex(Some(m)) {
            strides.iter_mut().for_each(|s| *s = s.saturating_mul(2));
            strides.push(1);
            offset = offset.saturating_mul(2);
        }
        Some(Attr::layout(ctx, &strides, offset, 0))
    };
    let entry = |m: &TensorMeta| {
        layout(m)
            .map_or(Attr::dictionary(ctx, &[]), |l| Attr::dictionary(ctx, &[("kiln.layout", l)]))
    };
    let mut entries: Vec<Attr> = inputs.iter().map(|(_, m)| entry(m)).collect();
    entries.resize(count, Attr::dictionary(ctx, &[]));
    func.set_attr("arg_attrs", Attr::array(ctx, &entries));
}

/// Drops the last argument, the generator state, if no live op reads it.
fn dead_state(func: Op) -> bool {
    let Some(block) = func.regions().first().and_then(|r| r.first()) else { return false };
    let args = block.args();
    let Some(state) = args.last() else { return false };
    let dead = draws::erase_dead(func, *state);
    if dead {
        block.erase_arg(args.len() - 1);
    }
    dead
}

type Body = (Vec<Value>, Vec<Output>);

fn body(
    program: &Program,
    (b, order): (&Builder, RandomOrder),
    inputs: &[(String, TensorMeta)],
    globals: &[(String, String, Type)],
    args: Vec<Value>,
    state_type: &mut Option<Type>,
) -> Result<Body, CaptureError> {
    let plain = |e: Error| CaptureError::file("model.json", e);
    let mut symbols = Symbols::default();
    for (name, range) in &program.range_constraints {
        let most = range.max_val.filter(|m| *m < i64::MAX / 2);
        symbols.ranges.insert(name.clone(), (range.min_val, most));
    }
    let mut cx = Cx::new(*b);
    cx.rng = Some(Rng::new(*b, order));
    for ((name, meta), value) in inputs.iter().zip(args) {
        value.set_arg_loc(b.loc.named(name));
        let sizes = meta.sizes.iter().map(|s| match s["as_int"].as_i64() {
            Some(n) => Ok(Size::Static(n)),
            None => {
                symbols.size(b, &srepr::parse(s["as_expr"]["expr_str"].as_str().unwrap_or(""))?)
            }
        });
        let mut sizes = sizes.collect::<Result<Vec<_>>>().map_err(plain)?;
        let complex = is_complex(Some(meta));
        sizes.extend(complex.then_some(Size::Static(2)));
        if sizes.iter().any(|s| s.known().is_none()) {
            b.create_with(&BindShape { value, sizes }, &[], &mut []).map_err(plain)?;
        }
        cx.bind(name, value, complex).map_err(plain)?;
    }
    for (name, text) in &program.sym_inputs {
        let size = srepr::parse(text).and_then(|e| symbols.size(b, &e)).map_err(plain)?;
        cx.names.insert(name.clone(), Val::Int(size));
    }
    guards::emit(&mut cx, &program.guards_code).map_err(plain)?;
    for (name, global, ty) in globals {
        let node = GetGlobal { is_mutable: false, global: global.clone() };
        let value =
            b.at(b.loc.named(name)).create_with(&node, &[*ty], &mut []).map_err(plain)?.result(0);
        let complex = is_complex(program.graph_module.graph.tensor_values.get(name));
        cx.bind(name, value, complex).map_err(plain)?;
    }
    nodes(&mut cx, &mut symbols, &program.graph_module.graph)?;
    *state_type = cx.rng.as_ref().and_then(Rng::state_type);
    cx.state_increment().map_err(plain)?;
    results(program, &mut cx)
}

/// Emits the nodes of a graph.
pub(super) fn nodes(cx: &mut Cx, symbols: &mut Symbols, graph: &Graph) -> Result<(), CaptureError> {
    for node in &graph.nodes {
        let target = aten::short(&node.target);
        let names = outputs(node);
        let op_error = |e: Error| CaptureError::op(node, target, e);
        cx.b.loc = location(cx.b.ctx, node, names.first().map_or(target, String::as_str));
        cx.location = source_location(node);
        if wrap::is_wrapper(target) {
            let all = wrap::emit(cx, symbols, node, target, &nodes, &op_error)?;
            cx.names.extend(names.into_iter().zip(all));
            continue;
        }
        if control::is_control(target) {
            let all = control::emit(cx, symbols, graph, node, target)?;
            cx.names.extend(names.into_iter().zip(all));
            continue;
        }
        let row =
            aten::find(target).ok_or_else(|| op_error("has no row in the ATen table".into()))?;
        let mut values = HashMap::new();
        for input in &node.inputs {
            values.insert(
                input.name.as_str(),
                cx.argument(&input.arg).map_err(|e| {
                    op_error(Error::new(e.kind, format!("argument {}: {e}", input.name)))
                })?,
            );
        }
        let order: Vec<&str> = node.inputs.iter().map(|i| i.name.as_str()).collect();
        let mut args = Args { values };
        let writes = Writes::of(cx, target, row, &order, &mut args).map_err(op_error)?;
        autocast_args::convert(cx, target, &mut args.values).map_err(op_error)?;
        cx.unbacked.fresh = fresh_symbols(cx, symbols, graph, &names);
        cx.declared = names.iter().map(|n| declared(graph, n)).collect();
        cx.stated = layout::stated(cx, symbols, graph, node).map_err(op_error)?;
        cx.memory = memory::addressed(graph, node).map_err(op_error)?;
        let outcome = aten::build(row, cx, &args).map_err(op_error)?;
        let outcome = if layout::copies(graph, node) || aten::is_copy(target) {
            cx.copied(outcome).map_err(op_error)?
        } else {
            outcome
        };
        symbols.values.extend(cx.unbacked.symbols.drain(..));
        let results = writes.finish(cx, outcome).map_err(op_error)?;
        autocast_args::check(cx, &results).map_err(op_error)?;
        for (name, result) in names.iter().zip(results) {
            let result = as_declared(cx, result, &declared(graph, name)).map_err(op_error)?;
            cx.names.insert(name.clone(), result);
        }
    }
    Ok(())
}

/// A result with the static sizes that the graph gives for it, where its type leaves these open.
/// Dtypes are not compared: the graph's are those of fake tensors, whose `unique` and `bincount`
/// differ from eager's.
fn as_declared(cx: &mut Cx, result: Val, declared: &Declared) -> Result<Val> {
    let Val::Tensor(alias) = result else { return Ok(result) };
    let value = cx.get(alias)?;
    let mut sizes = cx.b.sizes_of(value)?;
    if sizes.len() != declared.sizes.len() {
        return Ok(result);
    }
    let mut refined = false;
    for (size, known) in sizes.iter_mut().zip(&declared.sizes) {
        if let (None, Some(n)) = (size.known(), known) {
            (*size, refined) = (Size::Static(*n), true);
        }
    }
    if !refined {
        return Ok(result);
    }
    cx.view(alias, &[ViewOp::Reshape(sizes)]).map(Val::Tensor)
}

/// Unbacked symbols that a node's results have and no earlier value has, with their ranges.
fn fresh_symbols(
    cx: &Cx,
    symbols: &Symbols,
    graph: &Graph,
    names: &[String],
) -> VecDeque<(String, srepr::Range)> {
    let sizes = names.iter().flat_map(|n| match graph.tensor_values.get(n) {
        Some(meta) => meta.sizes.iter().collect::<Vec<_>>(),
        None => graph.sym_int_values.get(n).into_iter().collect(),
    });
    let mut all: VecDeque<(String, srepr::Range)> = VecDeque::new();
    for text in sizes.filter_map(|s| s["as_expr"]["expr_str"].as_str()) {
        // Only a size that is the symbol itself defines it.
        let Ok(srepr::SizeExpr::Leaf(name)) = srepr::parse(text) else { continue };
        let known = symbols.values.contains_key(&name)
            || cx.unbacked.values.iter().any(|(n, _)| *n == name)
            || all.iter().any(|(n, _)| *n == name);
        if !known {
            let range = symbols.ranges.get(&name).copied().unwrap_or_default();
            all.push_back((name, range));
        }
    }
    all
}

/// What the graph gives for a node's result.
fn declared(graph: &Graph, name: &str) -> Declared {
    graph.tensor_values.get(name).map_or(Declared::default(), |m| Declared {
        dtype: element(m.dtype).ok().map(|(d, _)| d),
        sizes: m.sizes.iter().map(|s| s["as_int"].as_i64()).collect(),
    })
}

/// Names of a node's results, in order; a list is flattened.
pub(super) fn outputs(node: &GraphNode) -> Vec<String> {
    let name =
        |j: &Json| j["name"].as_str().or_else(|| j["as_name"].as_str()).unwrap_or("").to_string();
    let each = |j: &Json| match tag(j) {
        Some(("as_tensors", Json::Array(all))) => all.iter().map(name).collect(),
        Some((_, inner)) => vec![name(inner)],
        None => vec![],
    };
    node.outputs.iter().flat_map(each).collect()
}

/// The error of a result that a row does not compute, such as statistics for a backward pass.
fn not_computed(program: &Program, name: &str) -> CaptureError {
    let e = super::unsupported(format!("result {name} is not computed"));
    let nodes = &program.graph_module.graph.nodes;
    match nodes.iter().find(|n| outputs(n).iter().any(|o| o == name)) {
        Some(node) => CaptureError::op(node, aten::short(&node.target), e),
        None => CaptureError::file("model.json", e),
    }
}

fn results(program: &Program, cx: &mut Cx) -> Result<Body, CaptureError> {
    let plain = |e: Error| CaptureError::file("model.json", e);
    let (mut values, mut kinds) = (vec![], vec![]);
    for spec in &program.graph_module.signature.output_specs {
        let (kind, spec) =
            tag(spec).ok_or_else(|| plain("an output specification without a kind".into()))?;
        let arg = &spec["arg"];
        let name = arg["as_tensor"]["name"]
            .as_str()
            .or_else(|| arg["name"].as_str())
            .unwrap_or("")
            .to_string();
        let text = |key: &str| spec[key].as_str().unwrap_or("").to_string();
        let output = match kind {
            "user_output" if arg.get("as_none").is_some() => continue,
            "user_output" => Output::User(name.clone()),
            "buffer_mutation" => Output::Buffer(text("buffer_name")),
            "user_input_mutation" => Output::Input(text("user_input_name")),
            other => {
                return Err(plain(format!("outputs of kind {other} are not supported").into()));
            }
        };
        let found = cx.names.get(&name).cloned();
        let value = match found {
            Some(Val::Tensor(alias)) => cx.store.get(&cx.b, alias).map_err(plain)?,
            Some(Val::Complex(re, im)) => {
                let whole = cx.interleaved(re, im).map_err(plain)?;
                cx.store.get(&cx.b, whole).map_err(plain)?
            }
            _ => return Err(not_computed(program, &name)),
        };
        values.push(value);
        kinds.push(output);
    }
    // Exports without decompositions do not declare mutations, so they are found from the writes.
    for spec in &program.graph_module.signature.input_specs {
        let Some((kind, spec)) = tag(spec) else { continue };
        let arg = &spec["arg"];
        let Some(name) = arg["as_tensor"]["name"].as_str().or_else(|| arg["name"].as_str()) else {
            continue;
        };
        let own = |key: &str| spec[key].as_str().unwrap_or(name).to_string();
        let output = match kind {
            "user_input" => Output::Input(name.to_string()),
            "parameter" | "tensor_constant" => Output::Buffer(own(&format!("{kind}_name"))),
            _ => Output::Buffer(own("buffer_name")),
        };
        match cx.inputs.get(name).copied() {
            Some(alias) if cx.store.written(alias) && !kinds.contains(&output) => {
                values.push(cx.store.get(&cx.b, alias).map_err(plain)?);
                kinds.push(output);
            }
            _ => {}
        }
    }
    // By which a caller learns the sizes of the results that it has allocated by their bounds.
    if values.iter().any(|v| v.ty().dims().contains(&Dim::Unknown)) {
        for (name, value) in &cx.unbacked.values {
            values.push(*value);
            kinds.push(Output::Size(name.clone()));
        }
    }
    Ok((values, kinds))
}

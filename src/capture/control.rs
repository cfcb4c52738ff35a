//! Higher-order ops of an exported program (`torch.cond`, `while_loop`, `scan`, `map`), as ops with
//! regions. Their subgraphs are arguments of the node.
use super::{
    CaptureError,
    aten::{self, Cx, Inside, Rng, Val},
    graph::{nodes, outputs},
    schema::*,
    srepr::{self, Symbols},
    unsupported,
};
use kiln_dialects::{ir::*, ops::*, rules::tensor_type, sym::Dim};
use serde_json::Value as Json;

/// The higher-order ops, without `torch.ops.`.
const TARGETS: &[&str] =
    &[COND, "higher_order.while_loop", "higher_order.scan", "higher_order.map_impl"];

/// The one that is no loop.
const COND: &str = "higher_order.cond";

/// Whether a target is a higher-order op.
pub(super) fn is_control(target: &str) -> bool {
    TARGETS.contains(&target)
}

/// The subgraphs among a node's arguments.
pub(super) fn graphs(node: &GraphNode) -> Vec<Graph> {
    node.inputs.iter().filter_map(|i| subgraph(&i.arg).ok()).collect()
}

/// Whether an op of a graph, or of a graph in it, may draw random numbers.
fn draws(graph: &Graph) -> bool {
    graph.nodes.iter().any(|node| {
        let named = |name: &str| node.inputs.iter().find(|i| i.name == name).map(|i| &i.arg);
        let number = |name: &str| named(name)?["as_float"].as_f64();
        let flag = |name: &str| named(name)?["as_bool"].as_bool();
        aten::may_draw(aten::short(&node.target), number, flag) || graphs(node).iter().any(draws)
    })
}

/// Whether a loop of a graph, or of a graph in it, may draw: how often, only a run knows.
fn loops_draw(graph: &Graph) -> bool {
    graph.nodes.iter().any(|node| {
        let target = node.target.trim_start_matches("torch.ops.");
        let looped = is_control(target) && target != COND;
        let own = graphs(node);
        (looped && own.iter().any(draws)) || own.iter().any(loops_draw)
    })
}

/// Emits a node; returns its results.
pub(super) fn emit(
    cx: &mut Cx,
    symbols: &mut Symbols,
    around: &Graph,
    node: &GraphNode,
    target: &str,
) -> Result<Vec<Val>, CaptureError> {
    let op_error = |e: Error| CaptureError::op(node, target, e);
    let arg = |i: usize| {
        node.inputs
            .get(i)
            .map(|n| &n.arg)
            .ok_or_else(|| op_error(format!("has no argument {i}").into()))
    };
    let sub = |i: usize| arg(i).and_then(|a| subgraph(a).map_err(op_error));
    let b = cx.b;
    let mut run = Regions { cx, symbols, node, target, carried: None, drawn: 0, error: None };
    let list = |run: &mut Regions, i: usize| -> Result<Vec<Val>, CaptureError> {
        let Some(named) = node.inputs.get(i) else { return Ok(vec![]) };
        match run.cx.argument(&named.arg).map_err(op_error)? {
            Val::List(all) => Ok(all),
            Val::None => Ok(vec![]),
            one => Ok(vec![one]),
        }
    };
    let made = match target {
        COND => {
            let condition = list(&mut run, 0)?;
            let condition = run.values(&condition).map_err(op_error)?;
            let (then, otherwise, operands) = (sub(1)?, sub(2)?, list(&mut run, 3)?);
            if loops_draw(&then) || loops_draw(&otherwise) {
                let state = run.state(&[&then, &otherwise]).map_err(op_error)?;
                run.carried = state.map(|state| (0, Some(state)));
            }
            run.op(
                b,
                OpKind::If,
                &condition,
                &[],
                &[(&then, 0, vec![]), (&otherwise, 0, vec![])],
                &operands,
                &|yields| yields.to_vec(),
            )
        }
        "higher_order.while_loop" => {
            let (condition, body, carried, more) =
                (sub(0)?, sub(1)?, list(&mut run, 2)?, list(&mut run, 3)?);
            let mut inits = run.values(&carried).map_err(op_error)?;
            let count = inits.len();
            let state = run.state(&[&condition, &body]).map_err(op_error)?;
            if state.is_some() && loops_draw(&condition) {
                let why = "draws random numbers in a loop in the condition of a loop";
                return Err(op_error(unsupported(why)));
            }
            run.carried = state.map(|_| (count, None));
            inits.extend(state);
            let types: Vec<Type> = inits.iter().map(|v| v.ty()).collect();
            let bodies = [(&condition, count, types.clone()), (&body, count, types.clone())];
            run.op(b, OpKind::While, &inits, &[], &bodies, &more, &|_| types.clone())
        }
        _ => {
            let map = target == "higher_order.map_impl";
            let f = sub(0)?;
            let carried = if map { vec![] } else { list(&mut run, 1)? };
            let (xs, more) = (
                list(&mut run, if map { 1 } else { 2 })?,
                list(&mut run, if map { 2 } else { 3 })?,
            );
            let (mut inits, inputs) =
                (run.values(&carried).map_err(op_error)?, run.values(&xs).map_err(op_error)?);
            let (count, state) = (inits.len(), run.state(&[&f]).map_err(op_error)?);
            run.carried = state.map(|_| (count, None));
            inits.extend(state);
            let length = inputs
                .first()
                .and_then(|v| v.ty().dims().first().cloned())
                .ok_or_else(|| op_error("takes tensors with a first dimension".into()))?;
            let row = |v: &Value| match tensor_type(v.ty())? {
                t if t.dims.is_empty() => Err(Error::from("takes tensors with a first dimension")),
                t => Ok(Type::tensor(b.ctx, t.dtype, &t.dims[1..])),
            };
            let rows = inputs.iter().map(row).collect::<Result<Vec<Type>>>().map_err(op_error)?;
            let types = inits.iter().map(|v| v.ty()).chain(rows).collect();
            let segments = Attr::i32s(b.ctx, &[inits.len() as i32, inputs.len() as i32]);
            let stack = |t: &Type| -> Type {
                let dims = [std::slice::from_ref(&length), &t.dims()].concat();
                tensor_type(*t).map_or(*t, |t| Type::tensor(b.ctx, t.dtype, &dims))
            };
            let results = |all: &[Type]| {
                all.iter()
                    .enumerate()
                    .map(|(i, t)| if i < inits.len() { *t } else { stack(t) })
                    .collect()
            };
            let operands = [inits.clone(), inputs.clone()].concat();
            run.op(
                b,
                OpKind::Scan,
                &operands,
                &[("operandSegmentSizes", segments)],
                &[(&f, count + inputs.len(), types)],
                &more,
                &results,
            )
        }
    };
    let made = match (made, run.error.take()) {
        (_, Some(e)) => return Err(e),
        (Err(e), None) => return Err(op_error(e)),
        (Ok(op), None) => op,
    };
    let mut results = made.results();
    let (state, drawn) = (run.carried.map(|(at, _)| results.remove(at)), run.drawn);
    if let Some((rng, state)) = cx.rng.as_mut().zip(state) {
        // The condition that ends a loop has drawn too.
        rng.resume(state, drawn);
    }
    let mut all = vec![];
    for (value, name) in results.into_iter().zip(outputs(node)) {
        bind(cx, symbols, value, around.tensor_values.get(&name)).map_err(op_error)?;
        all.push(Val::Tensor(cx.store.fresh(value)));
    }
    Ok(all)
}

/// Binds symbolic sizes of a value that the export states but its type does not.
fn bind(cx: &Cx, symbols: &mut Symbols, value: Value, meta: Option<&TensorMeta>) -> Result<()> {
    if value.ty().dims().iter().all(|d| *d != Dim::Unknown) {
        return Ok(());
    }
    let size = |s: &Json| match s["as_int"].as_i64() {
        Some(n) => Ok(Size::Static(n)),
        None => {
            symbols.size(&cx.b, &srepr::parse(s["as_expr"]["expr_str"].as_str().unwrap_or(""))?)
        }
    };
    let sizes =
        meta.ok_or("has a value without a type")?.sizes.iter().map(size).collect::<Result<_>>()?;
    cx.b.create_with(&BindShape { value, sizes }, &[], &mut []).map(|_| ())
}

/// A subgraph, the number of inputs that are region arguments, and their types. Further inputs are
/// captured from outside.
type Sub<'a> = (&'a Graph, usize, Vec<Type>);

struct Regions<'a, 'b> {
    /// The higher-order op.
    node: &'a GraphNode,
    target: &'a str,
    cx: &'a mut Cx,
    symbols: &'b mut Symbols,
    /// Among the values that a loop carries, or that a branch gives, which is the generator's state;
    /// of branches with the state that they begin with.
    carried: Option<(usize, Option<Value>)>,
    /// How often the condition of a loop draws.
    drawn: i64,
    error: Option<CaptureError>,
}

impl Regions<'_, '_> {
    /// The generator's state that regions of these graphs have to give on, so that each step of a
    /// loop draws other numbers.
    fn state(&mut self, graphs: &[&Graph]) -> Result<Option<Value>> {
        let carries = self.cx.rng.as_ref().is_some_and(Rng::carries);
        if !carries || !graphs.iter().any(|g| draws(g)) {
            return Ok(None);
        }
        let carried = self.cx.rng.as_mut().map(Rng::carry);
        carried.map(|(state, drawn)| self.cx.state_after(state, drawn)).transpose()
    }

    fn values(&mut self, all: &[Val]) -> Result<Vec<Value>> {
        let one = |v: &Val| match v {
            Val::Tensor(alias) => self.cx.store.get(&self.cx.b, *alias),
            _ => Err("takes what is no tensor".into()),
        };
        all.iter().map(one).collect()
    }

    #[allow(clippy::too_many_arguments)]
    fn op(
        &mut self,
        b: Builder,
        kind: OpKind,
        operands: &[Value],
        attrs: &[(&str, Attr)],
        bodies: &[Sub],
        outside: &[Val],
        results: &dyn Fn(&[Type]) -> Vec<Type>,
    ) -> Result<Op> {
        let yields = std::cell::RefCell::new(None);
        let this = std::cell::RefCell::new(self);
        let mut fills: Vec<_> = bodies
            .iter()
            .enumerate()
            .map(|(i, (graph, count, _))| {
                // The condition of a loop gives no state on: the step begins after its draws.
                let gives = kind != OpKind::While || i > 0;
                let this = &this;
                let yields = &yields;
                move |inner: Builder, args: Vec<Value>| {
                    let run = &mut *this.borrow_mut();
                    match run.body(inner, graph, *count, (args, gives), outside) {
                        Ok(types) => {
                            *yields.borrow_mut() = Some(types);
                            Ok(())
                        }
                        Err(e) => {
                            run.error.get_or_insert(e);
                            Err("has a graph that cannot be".into())
                        }
                    }
                }
            })
            .collect();
        let mut regions: Vec<(&[Type], &mut RegionFill)> = bodies
            .iter()
            .zip(&mut fills)
            .map(|((_, _, types), f)| (&types[..], f as &mut RegionFill))
            .collect();
        b.generic_late(kind.name(), operands, attrs, &mut regions, &mut || {
            Ok(results(&yields.borrow_mut().take().unwrap_or_default()))
        })
    }

    /// The result types of a subgraph; the generator's state is one of them if a step gives it on.
    fn body(
        &mut self,
        inner: Builder,
        graph: &Graph,
        count: usize,
        (mut args, gives): (Vec<Value>, bool),
        outside: &[Val],
    ) -> Result<Vec<Type>, CaptureError> {
        let (node, target) = (self.node, self.target);
        let fail = |e: Error| CaptureError::op(node, target, e);
        let name = |j: &Json| j["as_tensor"]["name"].as_str().map(str::to_string);
        let (names, values, known) =
            (self.cx.names.clone(), self.cx.store.values(), self.symbols.values.clone());
        let b = std::mem::replace(&mut self.cx.b, inner);
        let begins = self.carried.map(|(at, state)| state.unwrap_or_else(|| args.remove(at)));
        let begins = begins.map(|state| (state, self.drawn));
        let inside = match (target, begins) {
            (COND, None) => Inside::Branch,
            _ => Inside::Own { looped: target != COND, begins },
        };
        let generator = self.cx.rng.as_mut().map(|rng| rng.enter(inside));
        if graph.inputs.len() != count + outside.len() {
            return Err(fail(
                format!(
                    "a graph of {} inputs is given {}",
                    graph.inputs.len(),
                    count + outside.len()
                )
                .into(),
            ));
        }
        for (input, value) in graph.inputs.iter().zip(&args) {
            let name = name(input).ok_or_else(|| fail("a graph takes what is no tensor".into()))?;
            bind(self.cx, self.symbols, *value, graph.tensor_values.get(&name)).map_err(fail)?;
            let alias = self.cx.store.fresh(*value);
            self.cx.names.insert(name, Val::Tensor(alias));
        }
        // Names of an outer graph may be shadowed here.
        for (input, value) in graph.inputs.iter().skip(count).zip(outside) {
            if let Some(name) =
                name(input).or_else(|| input["as_sym_int"]["as_name"].as_str().map(str::to_string))
            {
                self.cx.names.insert(name, value.clone());
            }
        }
        self.cx.unbacked.inside += 1;
        let done = nodes(self.cx, self.symbols, graph);
        self.cx.unbacked.inside -= 1;
        done?;
        let mut given = vec![];
        for output in &graph.outputs {
            let found = name(output).and_then(|n| self.cx.names.get(&n).cloned());
            given.push(found.ok_or_else(|| fail("a graph gives what is no tensor".into()))?);
        }
        let mut given = self.values(&given).map_err(fail)?;
        let left = self.cx.rng.as_mut().zip(generator).map(|(rng, g)| rng.leave(inside, g));
        if let (Some((at, _)), Some((Some(state), drawn))) = (self.carried, left) {
            if gives {
                given.insert(at, self.cx.state_after(state, drawn).map_err(fail)?);
            } else {
                self.drawn = drawn;
            }
        }
        let types = given.iter().map(|v| v.ty()).collect();
        self.cx.b.create_with(&Yield { values: given }, &[], &mut []).map_err(fail)?;
        self.cx.b = b;
        self.cx.names = names;
        self.cx.store.restore(values);
        self.symbols.values = known;
        Ok(types)
    }
}

//! From a closure to a module.
use super::{Array, Graph, Repr, Session, Tensor, TraceError};
use crate::capture::{Captured, Output};
use kiln_dialects::{ir::*, rules::Level};
use std::{panic::Location, sync::Arc};

/// A traced program with the context that its module lives in.
pub struct Traced {
    /// The program: module, weights, names of inputs and outputs. Dropped before the context.
    pub captured: Captured,
    /// The context. Nothing of `captured` may outlive it.
    pub context: Context,
}

impl Traced {
    /// The module.
    pub fn module(&self) -> &Module {
        &self.captured.module
    }
}

/// Captures a closure with one result.
///
/// (`examples/trace.rs` is a whole one that runs.)
///
/// ```
/// # use kiln::dialects::value::DType;
/// let traced = kiln::trace(|g| {
///     let batch = g.dim("batch", 1..=512);
///     let x = g.input("x", DType::F32, (batch, 64));
///     Ok((x * 2 + 1).relu().named("y"))
/// })?;
/// # Ok::<(), kiln::tensor::TraceError>(())
/// ```
///
/// Err: every op that cannot be, with its place; or the closure's own error.
#[track_caller]
pub fn trace(
    body: impl FnOnce(&Graph) -> Result<Tensor, TraceError>,
) -> Result<Traced, TraceError> {
    let (context, place) = (Context::new(), Location::caller());
    let captured = traced(context.ctx(), place, |g| body(g).map(|t| vec![t]))?;
    Ok(Traced { captured, context })
}

/// As [`trace`], with any number of results.
#[track_caller]
pub fn trace_all(
    body: impl FnOnce(&Graph) -> Result<Vec<Tensor>, TraceError>,
) -> Result<Traced, TraceError> {
    let (context, place) = (Context::new(), Location::caller());
    let captured = traced(context.ctx(), place, body)?;
    Ok(Traced { captured, context })
}

/// As [`trace_all`], into a context of the caller's.
#[track_caller]
pub fn trace_into(
    ctx: Ctx,
    body: impl FnOnce(&Graph) -> Result<Vec<Tensor>, TraceError>,
) -> Result<Captured, TraceError> {
    traced(ctx, Location::caller(), body)
}

fn traced(
    ctx: Ctx,
    place: &Location<'_>,
    body: impl FnOnce(&Graph) -> Result<Vec<Tensor>, TraceError>,
) -> Result<Captured, TraceError> {
    let all = |graph: &Graph, results: Vec<Tensor>| {
        let each = results.iter().enumerate().map(|(i, t)| graph.result(i, t));
        each.collect::<Result<Vec<_>, _>>().map(|values| (values, ()))
    };
    build(ctx, place, None, body, all).map(|made| made.0)
}

/// Where a result of a function comes from.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// The program's result of this number.
    Result(usize),
    /// The program's input of this number, as it is.
    Input(usize),
    /// What it is in every call.
    Constant(Arc<Array>),
}

/// A program, where the results come from, and what was decided for the call that it was traced
/// for.
pub(crate) struct Recorded {
    pub captured: Captured,
    pub slots: Vec<Slot>,
    pub session: Session,
}

/// Traces for a call: results that are no op's are not the program's, and no result is computed
/// twice.
pub(crate) fn record(
    ctx: Ctx,
    place: &Location<'_>,
    session: Session,
    body: impl FnOnce(&Graph) -> Result<Vec<Tensor>, TraceError>,
) -> Result<Recorded, TraceError> {
    let mut values: Vec<(Value, String)> = vec![];
    let made = build(
        ctx,
        place,
        Some(session),
        |graph| {
            let results = body(graph);
            // A function may have gone on behind a value that it did not get.
            let read = graph.state().ok().and_then(|state| state.session.as_ref()?.read.clone());
            if let Some(read) = read {
                return Err(TraceError::Read(read));
            }
            results
        },
        |graph, results| {
            let slots = results.iter().enumerate().map(|(i, t)| {
                if let Repr::Array(array) = &t.0 {
                    return Ok(Slot::Constant(array.clone()));
                }
                let (value, name) = graph.result(i, t)?;
                if let Some((_, i)) = value.block_arg() {
                    return Ok(Slot::Input(i));
                }
                let at = values.iter().position(|(v, _)| *v == value).unwrap_or_else(|| {
                    values.push((value, name));
                    values.len() - 1
                });
                Ok(Slot::Result(at))
            });
            let slots = slots.collect::<Result<Vec<_>, TraceError>>()?;
            Ok((values, slots))
        },
    );
    made.map(|(captured, slots, session)| Recorded {
        captured,
        slots,
        session: session.unwrap_or_default(),
    })
}

/// Results of the program, and whatever else is known of them.
type Finished<X> = (Vec<(Value, String)>, X);

fn build<X>(
    ctx: Ctx,
    place: &Location<'_>,
    session: Option<Session>,
    body: impl FnOnce(&Graph) -> Result<Vec<Tensor>, TraceError>,
    finish: impl FnOnce(&Graph, Vec<Tensor>) -> Result<Finished<X>, TraceError>,
) -> Result<(Captured, X, Option<Session>), TraceError> {
    let root = Loc::file(ctx, place.file(), place.line(), place.column());
    let module = Module::new(root);
    module.op().set_attr("kiln.level", Attr::string(ctx, Level::Graph.name()));
    let top = Builder::at_end(ctx, module.body(), root);
    let (mut work, mut outcome) = (Some((session, body, finish)), None);
    let func = top.function("main", &[], &[], &mut |b, _| {
        let Some((session, body, finish)) = work.take() else { return Err("runs twice".into()) };
        let graph = Graph::new(b, top, session);
        let _tracing = graph.enter();
        let results = body(&graph).and_then(|results| finish(&graph, results));
        // Errors of ops come before what the closure made of them.
        let results = match results {
            Err(e @ TraceError::Read(_)) => Err(e),
            results => graph.check().and(results),
        };
        let ended = match &results {
            Ok((values, _)) => {
                b.ret(&values.iter().map(|(v, _)| *v).collect::<Vec<_>>()).map(|_| ())
            }
            Err(_) => Err("capture failed".into()),
        };
        outcome = Some(results.and_then(|(values, x)| Ok((values, x, graph.parts()?))));
        ended
    });
    let (values, x, parts) =
        outcome.unwrap_or_else(|| Err(TraceError::Module("has no body".into())))?;
    let func = func.map_err(|e| TraceError::Module(e.into()))?;
    let results: Vec<Type> = values.iter().map(|(v, _)| v.ty()).collect();
    func.set_attr("function_type", Attr::ty(Type::function(ctx, &parts.types, &results)));
    func.set_attr("arg_attrs", Attr::array(ctx, &parts.layouts));
    let (ok, diagnostics) = collect(ctx, || module.op().verify());
    if !ok {
        return Err(TraceError::Module(
            diagnostics.first().map_or("it does not verify".into(), |d| d.to_string()),
        ));
    }
    let outputs = values.into_iter().map(|(_, name)| Output::User(name)).collect();
    Ok((
        Captured { module, weights: parts.weights, inputs: parts.inputs, outputs },
        x,
        parts.session,
    ))
}

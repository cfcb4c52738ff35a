//! Tracing: from a closure to a module.
use super::{Array, Graph, Repr, Session, Tensor, TraceError};
use crate::capture::{Captured, Output};
use kiln_dialects::{ir::*, rules::Level};
use std::{panic::Location, sync::Arc};

/// A traced program, and the context that owns its module.
pub struct Traced {
    /// The program: module, weights, input and output names. Dropped before the context.
    pub captured: Captured,
    /// The context; must outlive `captured`.
    pub context: Context,
}

impl Traced {
    /// The module.
    pub fn module(&self) -> &Module {
        &self.captured.module
    }
}

/// Traces a closure with one result.
///
/// See `examples/trace.rs` for a complete program.
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
/// Err: every invalid op with its source location, or the closure's own error.
#[track_caller]
pub fn trace(
    body: impl FnOnce(&Graph) -> Result<Tensor, TraceError>,
) -> Result<Traced, TraceError> {
    let (context, site) = (Context::new(), Location::caller());
    let captured = traced(context.ctx(), site, |g| body(g).map(|t| vec![t]))?;
    Ok(Traced { captured, context })
}

/// As [`trace`], with any number of results.
#[track_caller]
pub fn trace_all(
    body: impl FnOnce(&Graph) -> Result<Vec<Tensor>, TraceError>,
) -> Result<Traced, TraceError> {
    let (context, site) = (Context::new(), Location::caller());
    let captured = traced(context.ctx(), site, body)?;
    Ok(Traced { captured, context })
}

/// As [`trace_all`], in an existing context.
#[track_caller]
pub fn trace_into(
    ctx: Ctx,
    body: impl FnOnce(&Graph) -> Result<Vec<Tensor>, TraceError>,
) -> Result<Captured, TraceError> {
    traced(ctx, Location::caller(), body)
}

fn traced(
    ctx: Ctx,
    site: &Location<'_>,
    body: impl FnOnce(&Graph) -> Result<Vec<Tensor>, TraceError>,
) -> Result<Captured, TraceError> {
    let all = |graph: &Graph, results: Vec<Tensor>| {
        let each = results.iter().enumerate().map(|(i, t)| graph.result(i, t));
        each.collect::<Result<Vec<_>, _>>().map(|values| (values, ()))
    };
    build(ctx, site, None, body, all).map(|made| made.0)
}

/// Source of a function's result.
#[derive(Clone, Debug)]
pub(crate) enum ResultSource {
    /// A result of the program, by index.
    Result(usize),
    /// A program input returned unchanged, by index.
    Input(usize),
    /// A constant.
    Constant(Arc<Array>),
}

/// A traced program, the sources of the results, and the assumptions made for the call.
pub(crate) struct Recorded {
    pub captured: Captured,
    pub result_sources: Vec<ResultSource>,
    pub session: Session,
}

/// Traces for a call. Constants and forwarded inputs are not results of the program, and duplicate
/// results are computed once.
pub(crate) fn record(
    ctx: Ctx,
    site: &Location<'_>,
    session: Session,
    body: impl FnOnce(&Graph) -> Result<Vec<Tensor>, TraceError>,
) -> Result<Recorded, TraceError> {
    let mut values: Vec<(Value, String)> = vec![];
    let made = build(
        ctx,
        site,
        Some(session),
        |graph| {
            let results = body(graph);
            // The function may have gone on after a failed read.
            let read = graph.state().ok().and_then(|state| state.session.as_ref()?.read.clone());
            if let Some(read) = read {
                return Err(TraceError::Read(read));
            }
            results
        },
        |graph, results| {
            let result_sources = results.iter().enumerate().map(|(i, t)| {
                if let Repr::Array(array) = &t.0 {
                    return Ok(ResultSource::Constant(array.clone()));
                }
                let (value, name) = graph.result(i, t)?;
                if let Some((_, i)) = value.block_arg() {
                    return Ok(ResultSource::Input(i));
                }
                let at = values.iter().position(|(v, _)| *v == value).unwrap_or_else(|| {
                    values.push((value, name));
                    values.len() - 1
                });
                Ok(ResultSource::Result(at))
            });
            let result_sources = result_sources.collect::<Result<Vec<_>, TraceError>>()?;
            Ok((values, result_sources))
        },
    );
    made.map(|(captured, result_sources, session)| Recorded {
        captured,
        result_sources,
        session: session.unwrap_or_default(),
    })
}

/// The program's results, and data derived from them.
type Finished<X> = (Vec<(Value, String)>, X);

fn build<X>(
    ctx: Ctx,
    site: &Location<'_>,
    session: Option<Session>,
    body: impl FnOnce(&Graph) -> Result<Vec<Tensor>, TraceError>,
    finish: impl FnOnce(&Graph, Vec<Tensor>) -> Result<Finished<X>, TraceError>,
) -> Result<(Captured, X, Option<Session>), TraceError> {
    let root = Loc::file(ctx, site.file(), site.line(), site.column());
    let module = Module::new(root);
    module.op().set_attr("kiln.level", Attr::string(ctx, Level::Graph.name()));
    let top = Builder::at_end(ctx, module.body(), root);
    let (mut work, mut outcome) = (Some((session, body, finish)), None);
    let func = top.function("main", &[], &[], &mut |b, _| {
        let Some((session, body, finish)) = work.take() else { return Err("runs twice".into()) };
        let graph = Graph::new(b, top, session);
        let _tracing = graph.enter();
        let results = body(&graph).and_then(|results| finish(&graph, results));
        // Op errors take precedence over the closure's error, which may follow from them.
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
    let func = func.map_err(TraceError::module)?;
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

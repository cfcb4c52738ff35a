//! From a closure to a module.
use super::{Graph, Tensor, TraceError};
use crate::capture::{Captured, Output};
use kiln_dialects::{ir::*, rules::Level};
use std::panic::Location;

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
pub fn trace(body: impl FnOnce(&Graph) -> Result<Tensor<'_>, TraceError>) -> Result<Traced, TraceError> {
    let (context, place) = (Context::new(), Location::caller());
    let captured = traced(context.ctx(), place, |g| body(g).map(|t| vec![t]))?;
    Ok(Traced { captured, context })
}

/// As [`trace`], with any number of results.
#[track_caller]
pub fn trace_all(body: impl FnOnce(&Graph) -> Result<Vec<Tensor<'_>>, TraceError>) -> Result<Traced, TraceError> {
    let (context, place) = (Context::new(), Location::caller());
    let captured = traced(context.ctx(), place, body)?;
    Ok(Traced { captured, context })
}

/// As [`trace_all`], into a context of the caller's.
#[track_caller]
pub fn trace_into(ctx: Ctx, body: impl FnOnce(&Graph) -> Result<Vec<Tensor<'_>>, TraceError>) -> Result<Captured, TraceError> {
    traced(ctx, Location::caller(), body)
}

fn traced(
    ctx: Ctx,
    place: &Location<'_>,
    body: impl FnOnce(&Graph) -> Result<Vec<Tensor<'_>>, TraceError>,
) -> Result<Captured, TraceError> {
    let root = Loc::file(ctx, place.file(), place.line(), place.column());
    let module = Module::new(root);
    module.op().set_attr("kiln.level", Attr::string(ctx, Level::Graph.name()));
    let top = Builder::at_end(ctx, module.body(), root);
    let (mut body, mut outcome) = (Some(body), None);
    let func = top.function("main", &[], &[], &mut |b, _| {
        let Some(body) = body.take() else { return Err("runs twice".into()) };
        let graph = Graph::new(b, top);
        let results = body(&graph).and_then(|results| graph.finish(&results));
        // Errors of ops come before what the closure made of them.
        let results = graph.check().and(results);
        let ended = match &results {
            Ok((values, _)) => b.ret(values).map(|_| ()),
            Err(_) => Err("capture failed".to_string()),
        };
        outcome = Some(results.map(|(values, names)| (values, names, graph.into_parts())));
        ended
    });
    let (values, outputs, parts) = outcome.unwrap_or_else(|| Err(TraceError::Module("has no body".into())))?;
    let func = func.map_err(TraceError::Module)?;
    let results: Vec<Type> = values.iter().map(|v| v.ty()).collect();
    func.set_attr("function_type", Attr::ty(Type::function(ctx, &parts.types, &results)));
    func.set_attr("arg_attrs", Attr::array(ctx, &parts.layouts));
    let (ok, diagnostics) = collect(ctx, || module.op().verify());
    if !ok {
        return Err(TraceError::Module(diagnostics.first().map_or("it does not verify".into(), |d| d.to_string())));
    }
    Ok(Captured { module, weights: parts.weights, inputs: parts.inputs, outputs: outputs.into_iter().map(Output::User).collect() })
}

//! Derivatives in a graph: emits the backward pass after the ops of a function. In eager mode the
//! function is traced first, and its graph runs as one program.
use super::{
    Array, Graph, OpError, Tensor, TraceError,
    call_site::CallSite,
    control::{FlatTree, tracing, user},
    eager,
    region::show,
    session::{Lifted, Session},
    trace::record,
};
use kiln_dialects::{
    ir::*,
    ops::{Reshape, StopGradient},
    rules::tensor_type,
    sym::Dim,
};
use kiln_passes::{differentiate, vmap};
use std::{panic::Location, sync::Arc};

/// A function's results, and what was computed beside them.
pub(super) type Extended = (FlatTree, Vec<Tensor>);

/// Calls `f` on `primals`, of which the first `wrt` are new values of the graph, and then `more`
/// on its results, these new values, and `extra`. Err: `f`'s, an op without a derivative, or a
/// read of a value.
pub(super) fn extended(
    site: &'static Location<'static>,
    op: &'static str,
    [primals, extra]: [&[Tensor]; 2],
    wrt: usize,
    f: impl FnOnce(Vec<Tensor>) -> Result<FlatTree, TraceError>,
    more: impl FnOnce(&Graph, &FlatTree, &[Tensor], &[Tensor]) -> Result<Vec<Tensor>, TraceError>,
) -> Result<Extended, TraceError> {
    let body = |graph: &Graph, given: &[Tensor]| {
        let (primals, extra) = given.split_at(primals.len());
        let mut fresh = primals.to_vec();
        for t in fresh.iter_mut().take(wrt) {
            *t = graph.identity(site, t)?;
        }
        let results = f(fresh.clone())?;
        let made = more(graph, &results, &fresh, extra)?;
        Ok((results, made))
    };
    if let Some(graph) = tracing(&[primals, extra]) {
        return body(&graph, &[primals, extra].concat());
    }
    // What a function in segments has recorded are concrete tensors to this graph.
    Graph::current().flush(None)?;
    let inputs = [primals, extra].concat();
    let mut arrays = inputs.iter().map(Tensor::array).collect::<Result<Vec<_>, _>>()?;
    let (context, mut results) = (Context::new(), None);
    let session = Session { lift_arrays: true, ..Session::default() };
    let recorded = record(context.ctx(), site, session, |graph| {
        let input =
            |(i, a): (usize, &Arc<Array>)| graph.input(&format!("x{i}"), a.dtype(), a.shape());
        let inputs: Vec<Tensor> = arrays.iter().enumerate().map(input).collect();
        let (tree, made) = body(graph, &inputs)?;
        let all = [tree.tensors.as_slice(), &made].concat();
        results = Some(tree);
        Ok(all)
    })?;
    let mut tree = results.ok_or_else(|| user("has traced nothing"))?;
    for lifted in &recorded.session.lifted {
        arrays.push(match lifted {
            Lifted::Array(array) => array.clone(),
            Lifted::Weight(w) => w.array().map_err(|e| user(format!("weight {} {e}", w.name)))?,
            Lifted::Number(_) | Lifted::Size(_) => {
                return Err(user("has a number of another call"));
            }
        });
    }
    let mut all = eager::graph(op, recorded, &arrays).map_err(|e| TraceError::User(Box::new(e)))?;
    let made = all.split_off(tree.tensors.len());
    tree.tensors = all;
    Ok((tree, made))
}

impl Graph {
    /// The same elements as a new value, on which nothing that exists depends.
    fn identity(&self, site: CallSite, t: &Tensor) -> Result<Tensor, TraceError> {
        self.of_value(site, t, |b, input| {
            let sizes = b.sizes_of(input)?;
            let made = b.create_with(&Reshape { input, sizes }, &[input.ty()], &mut [])?;
            Ok(made.result(0))
        })
    }

    /// A tensor filled with a number, of the type of another.
    pub(super) fn filled_like(
        &self,
        site: CallSite,
        like: &Tensor,
        number: f64,
    ) -> Result<Tensor, TraceError> {
        self.of_value(site, like, |b, v| {
            b.splat(tensor_type(v.ty())?.dtype, &b.sizes_of(v)?, number)
        })
    }

    /// The same elements, as a constant to differentiation.
    pub(super) fn detached(&self, site: CallSite, t: &Tensor) -> Result<Tensor, TraceError> {
        self.of_value(site, t, |b, input| b.add(&StopGradient { input }))
    }

    /// What `emit` makes of a tensor's value.
    fn of_value(
        &self,
        site: CallSite,
        t: &Tensor,
        emit: impl FnOnce(&Builder, Value) -> Result<Value>,
    ) -> Result<Tensor, TraceError> {
        let (value, _) = self.ssa_value(t)?;
        let mut state = self.state().map_err(TraceError::module)?;
        state.cx.b.loc = state.loc(self.site(site));
        let b = state.cx.b;
        let made = emit(&b, value).map_err(TraceError::module)?;
        state.advance().map_err(TraceError::module)?;
        let alias = state.cx.store.fresh(made);
        Ok(self.handle(Some(alias)))
    }

    /// Whether a tensor is of floats.
    pub(super) fn is_float(&self, t: &Tensor) -> Result<bool, TraceError> {
        Ok(self.ssa_value(t)?.1.0.is_float())
    }

    /// The vector-Jacobian product of results, each with its cotangent, by `wrt`; zeros where the
    /// results do not depend on it, and for integers.
    pub(super) fn pull_back(
        &self,
        site: CallSite,
        op: &'static str,
        outputs: &[(&Tensor, &Tensor)],
        wrt: &[Tensor],
    ) -> Result<Vec<Tensor>, TraceError> {
        let (mut pairs, mut values) = (vec![], vec![]);
        for (output, cotangent) in outputs {
            let ((y, of), (g, given)) = (self.ssa_value(output)?, self.ssa_value(cotangent)?);
            if of.0 != given.0 || of.1.len() != given.1.len() || differ(&of.1, &given.1) {
                let reason =
                    format!("has a cotangent of {} for a result of {}", show(&given), show(&of));
                return Err(self.refuse(site, op, reason, &[]).error());
            }
            if of.0.is_float() {
                pairs.push((y, g));
            }
        }
        let mut places = vec![];
        for (i, t) in wrt.iter().enumerate() {
            let (value, spec) = self.ssa_value(t)?;
            if spec.0.is_float() {
                values.push(value);
                places.push(i);
            }
        }
        let made = {
            let mut state = self.state().map_err(TraceError::module)?;
            state.cx.b.loc = state.loc(self.site(site));
            let b = state.cx.b;
            let made = differentiate::vjp(&b, &mut state.facts, &pairs, &values);
            made.and_then(|made| state.advance().map(|()| made))
        };
        let made = made.map_err(|e| self.refused(site, op, e))?;
        let mut all: Vec<Option<Tensor>> = vec![None; wrt.len()];
        for (i, gradient) in places.into_iter().zip(made) {
            let Some(value) = gradient else { continue };
            let alias = self.state().map_err(TraceError::module)?.cx.store.fresh(value);
            all[i] = Some(self.handle(Some(alias)));
        }
        let zeros = |t: &Tensor| self.filled_like(site, t, 0.0);
        all.into_iter().zip(wrt).map(|(g, t)| g.map_or_else(|| zeros(t), Ok)).collect()
    }

    /// The results of a scan without loop-carried values, computed as whole batches. The scan stays,
    /// without uses: values that are erased would leave facts about them behind.
    pub(super) fn vectorised(
        &self,
        site: CallSite,
        results: &[Tensor],
    ) -> Result<Vec<Tensor>, TraceError> {
        let Some(first) = results.first() else { return Ok(vec![]) };
        let scan = self.ssa_value(first)?.0.def().filter(|o| vmap::is_map(*o));
        let scan = scan.ok_or_else(|| user("vmap has traced no loop"))?;
        let made = {
            let mut state = self.state().map_err(TraceError::module)?;
            state.cx.b.loc = state.loc(self.site(site));
            let b = state.cx.b;
            let made = vmap::vectorise(&b, scan);
            made.and_then(|made| state.advance().map(|()| made))
        };
        let made = made.map_err(|e| self.refused(site, "vmap", e))?;
        let mut all = vec![];
        for value in made {
            let alias = self.state().map_err(TraceError::module)?.cx.store.fresh(value);
            all.push(self.handle(Some(alias)));
        }
        Ok(all)
    }

    /// The error of an op that cannot be differentiated or batched, at its line.
    fn refused(&self, site: CallSite, op: &'static str, e: Error) -> TraceError {
        let reason = match &e.op {
            Some(name) => format!("'{name}' op {}", e.message),
            None => e.message.clone(),
        };
        let Some((file, line, column)) = e.loc.and_then(|loc| loc.file_line_col()) else {
            return self.refuse(site, op, reason, &[]).error();
        };
        let error = OpError { file, line, column, op: op.into(), reason, operands: vec![] };
        if let Ok(mut state) = self.state() {
            state.errors.push(error.clone());
        }
        TraceError::Ops(vec![error])
    }
}

/// Whether sizes differ for certain.
fn differ(a: &[Dim], b: &[Dim]) -> bool {
    a.iter().zip(b).any(|(a, b)| a.differs(b))
}

//! Custom ops: a name, a type-inference function, and an implementation: a host callback, external
//! PTX, or a decomposition into tensor ops.
use super::{
    Array, Dim, Graph, Ptx, Tensor, TraceError,
    call_site::CallSite,
    control::tracing,
    eager::device_of,
    region::{RegionOp, Spec},
    tensor_type::TensorType,
};
use crate::runtime::{
    Buffer, Bytes, DeviceId, View, ViewMut,
    custom::{self, UserError},
};
use kiln_dialects::{
    interp::{Interpreter, OwnError},
    ir::{Attr, Node, Op, walk},
    ops::{self, OpKind},
    value,
};
use std::{
    collections::HashMap,
    panic::Location,
    rc::Rc,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

type Shape = dyn Fn(&[TensorType]) -> Result<Vec<TensorType>, UserError> + Send + Sync;
type Body = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>, TraceError> + Send + Sync;

/// Builder of a custom op; finish with [`register`](CustomBuilder::register).
pub struct CustomBuilder {
    name: String,
    shape: Option<Arc<Shape>>,
    host: Option<Arc<custom::CustomFn>>,
    body: Option<Arc<Body>>,
    ptx: Option<Ptx>,
    effect: bool,
}

/// A custom op. Cheap to clone.
#[derive(Clone)]
pub struct CustomOp(Arc<Custom>);

struct Custom {
    name: String,
    shape: Option<Arc<Shape>>,
    host: Option<Arc<custom::CustomFn>>,
    body: Option<Arc<Body>>,
    ptx: Option<Ptx>,
    effect: bool,
}

static ALL: LazyLock<RwLock<HashMap<String, CustomOp>>> = LazyLock::new(RwLock::default);

/// Starts a custom op with a name such as `mine::norm`. It needs either a decomposition, or type
/// inference with a host callback or PTX.
///
/// ```
/// use kiln::Tensor;
/// let twice = kiln::custom_op("doc::twice")
///     .shape(|x| Ok(vec![x[0].clone()]))
///     .host(|x, y| {
///         let (x, y) = (x[0].elements::<f32>()?, y[0].elements_mut::<f32>()?);
///         y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
///         Ok(())
///     })
///     .register()?;
/// let f = kiln::compile(move |x: Tensor| twice.one(&[x + 1]));
/// assert_eq!(f.call(Tensor::from_slice(&[2], &[0.0f32, 1.0])?)?.to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), kiln::Error>(())
/// ```
pub fn custom_op(name: &str) -> CustomBuilder {
    CustomBuilder {
        name: name.into(),
        shape: None,
        host: None,
        body: None,
        ptx: None,
        effect: false,
    }
}

impl CustomBuilder {
    /// Type inference: dtypes and shapes of the results from those of the inputs; sizes may be
    /// symbolic. Err: why the inputs are invalid.
    pub fn shape(
        mut self,
        rule: impl Fn(&[TensorType]) -> Result<Vec<TensorType>, UserError> + Send + Sync + 'static,
    ) -> Self {
        self.shape = Some(Arc::new(rule));
        self
    }
    /// Host implementation: reads the inputs and writes all of the results, in row-major order. It
    /// must be thread-safe.
    pub fn host(
        mut self,
        f: impl Fn(&[View], &mut [ViewMut]) -> Result<(), UserError> + Send + Sync + 'static,
    ) -> Self {
        self.host = Some(Arc::new(f));
        self
    }
    /// Decomposition, inlined into graphs, where it fuses with other ops. The host callback, if
    /// any, is then used in eager mode.
    pub fn body(
        mut self,
        f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>, TraceError> + Send + Sync + 'static,
    ) -> Self {
        self.body = Some(Arc::new(f));
        self
    }
    /// GPU implementation: one launch of external PTX. On the host the decomposition is used, else
    /// the host callback; with neither, compiling for the host is an error.
    pub fn ptx(mut self, kernel: Ptx) -> Self {
        self.ptx = Some(kernel);
        self
    }
    /// Whether the op has side effects: it then runs in program order and is never dead code.
    /// Default: false.
    pub fn effect(mut self, effect: bool) -> Self {
        self.effect = effect;
        self
    }
    /// Registers the op in this process. Err: the name is taken, or a part is missing.
    pub fn register(self) -> Result<CustomOp, TraceError> {
        let wrong =
            |e: &str| Err(TraceError::User(format!("custom op '{}' {e}", self.name).into()));
        match (&self.shape, &self.host, &self.ptx) {
            (Some(_), None, None) => {
                return wrong("has a rule of types and no function of the host");
            }
            (None, Some(_), _) => return wrong("has a function of the host and no rule of types"),
            (None, None, Some(_)) => return wrong("has PTX and no rule of types"),
            _ => {}
        }
        if self.host.is_none() && self.ptx.is_none() && self.body.is_none() {
            return wrong("has neither a function of the host nor a body");
        }
        if self.effect && self.host.is_none() {
            return wrong("has an effect and no function of the host that has it");
        }
        if self.effect && self.ptx.is_some() {
            return wrong("has an effect, which PTX cannot have");
        }
        if let Some(Err(e)) = self.ptx.as_ref().map(Ptx::read) {
            return wrong(&e);
        }
        let (host, effect) = (self.host, self.effect);
        let op = CustomOp(Arc::new(Custom {
            name: self.name,
            shape: self.shape,
            host,
            body: self.body,
            ptx: self.ptx,
            effect,
        }));
        let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
        if all.contains_key(&op.0.name) {
            return Err(TraceError::User(
                format!("there is already a custom op '{}'", op.0.name).into(),
            ));
        }
        if let Some(host) = &op.0.host {
            custom::register(&op.0.name, host.clone()).map_err(|e| TraceError::User(e.into()))?;
        }
        all.insert(op.0.name.clone(), op.clone());
        Ok(op)
    }
}

impl CustomOp {
    /// Calls the op; returns its results. Err: type inference, the host callback or the
    /// decomposition failed.
    #[track_caller]
    pub fn call(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, TraceError> {
        let site = Location::caller();
        let custom = &*self.0;
        let (traced, body) = (tracing(&[inputs]), custom.body.is_some());
        match traced {
            None if custom.host.is_some() => self.run_eagerly(inputs, site),
            None if body => self.inline_body(inputs, site),
            None => Err(self.refuse(
                &Graph::current(),
                site,
                "has PTX alone, and ops that run at once are the host's".into(),
                inputs,
            )),
            Some(graph) => match &custom.ptx {
                Some(ptx) => {
                    let (from, to) = self.types(&graph, site, inputs)?;
                    let mut otherwise = || {
                        if body {
                            self.inline_body(inputs, site)
                        } else {
                            self.emit_host_call(&graph, site, inputs)
                        }
                    };
                    let otherwise: &mut dyn FnMut() -> _ = &mut otherwise;
                    let any = body || custom.host.is_some();
                    ptx.trace(
                        (&graph, site, &custom.name),
                        inputs,
                        (&from, to),
                        any.then_some(otherwise),
                    )
                }
                None if body && !custom.effect || custom.host.is_none() => {
                    self.inline_body(inputs, site)
                }
                None => self.emit_host_call(&graph, site, inputs),
            },
        }
    }
    /// Calls the op; returns its first result, poisoned on failure.
    #[track_caller]
    pub fn one(&self, inputs: &[Tensor]) -> Tensor {
        let site = Location::caller();
        let failed = |e: String| {
            Graph::current().refuse(site, "custom_op", format!("'{}': {e}", self.0.name), inputs)
        };
        match self.call(inputs) {
            Ok(all) => all.into_iter().next().unwrap_or_else(|| failed("has no result".into())),
            Err(e) => failed(e.to_string()),
        }
    }

    fn refuse(
        &self,
        graph: &Graph,
        site: CallSite,
        reason: String,
        inputs: &[Tensor],
    ) -> TraceError {
        graph.refuse(site, "custom_op", format!("'{}' {reason}", self.0.name), inputs).error()
    }

    fn shape_rule(&self) -> Result<&Shape, TraceError> {
        self.0
            .shape
            .as_deref()
            .ok_or_else(|| TraceError::Module("a custom op without a rule of types".into()))
    }

    /// Types of the inputs, and the inferred types of the results.
    fn types(
        &self,
        graph: &Graph,
        site: CallSite,
        inputs: &[Tensor],
    ) -> Result<(Vec<TensorType>, Vec<TensorType>), TraceError> {
        let from = inputs
            .iter()
            .map(|t| Ok((t.dtype()?, t.dims()?)))
            .collect::<Result<Vec<_>, TraceError>>()?;
        let to = (self.shape_rule()?)(&from)
            .map_err(|e| self.refuse(graph, site, e.to_string(), inputs))?;
        Ok((from, to))
    }

    /// Emits the op as a call of the host callback.
    fn emit_host_call(
        &self,
        graph: &Graph,
        site: CallSite,
        inputs: &[Tensor],
    ) -> Result<Vec<Tensor>, TraceError> {
        let mut values = vec![];
        for t in inputs {
            values.push(graph.ssa_value(t)?.0);
        }
        let (_, to) = self.types(graph, site, inputs)?;
        let specs: Vec<Spec> = to
            .into_iter()
            .map(|(d, dims)| (d, dims.into_iter().map(Dim::expression).collect()))
            .collect();
        let ctx = graph.state().map_err(TraceError::module)?.cx.b.ctx;
        let mut attrs = vec![("callee", Attr::string(ctx, &self.0.name))];
        if self.0.effect {
            attrs.push(("effect", Attr::unit(ctx)));
        }
        let op = RegionOp { kind: OpKind::CustomCall, operands: values, attrs, bodies: vec![] };
        graph.region_op(site, "custom_op", op, &|_| Ok(specs.clone()))
    }

    fn inline_body(
        &self,
        inputs: &[Tensor],
        site: &'static Location<'static>,
    ) -> Result<Vec<Tensor>, TraceError> {
        let _frame = Graph::current().frame(site);
        self.0.body.as_ref().map_or_else(
            || Err(TraceError::Module("a custom op without a body".into())),
            |f| f(inputs),
        )
    }

    fn run_eagerly(
        &self,
        inputs: &[Tensor],
        site: &'static Location<'static>,
    ) -> Result<Vec<Tensor>, TraceError> {
        let (shape, host) = (self.shape_rule()?, self.0.host.as_ref());
        let host = host.ok_or_else(|| {
            TraceError::Module("a custom op without a function of the host".into())
        })?;
        let arrays = inputs.iter().map(Tensor::array).collect::<Result<Vec<_>, _>>()?;
        let device = device_of(&arrays).map_err(|e| TraceError::User(e.to_string().into()))?;
        // The function reads host memory.
        let arrays = arrays.into_iter().map(|a| a.beside(DeviceId::Host));
        let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
        let run = || -> Result<Vec<Array>, UserError> {
            let types: Vec<TensorType> = arrays
                .iter()
                .map(|a| (a.dtype(), a.shape().iter().map(|n| Dim::from(*n)).collect()))
                .collect();
            let mut made = vec![];
            for (dtype, dims) in shape(&types)? {
                let sizes = dims
                    .iter()
                    .map(|d| d.known().and_then(|n| usize::try_from(n).ok()))
                    .collect::<Option<Vec<usize>>>();
                let sizes = sizes.ok_or("gives sizes that are no numbers")?;
                let bytes = sizes
                    .iter()
                    .try_fold(dtype.byte_size(), |n, d| n.checked_mul(*d))
                    .ok_or("gives sizes that are too large")?;
                made.push((dtype, sizes, Buffer::zeroed(bytes)?));
            }
            let views = arrays.iter().map(|a| a.view()).collect::<Result<Vec<_>, _>>()?;
            let mut outs = vec![];
            for (dtype, sizes, buffer) in &mut made {
                outs.push(ViewMut::new(dtype.name(), sizes, buffer.bytes_mut())?);
            }
            host(&views, &mut outs)?;
            drop(outs);
            made.into_iter()
                .map(|(dtype, sizes, buffer)| Ok(Array::new(dtype, &sizes, Bytes::owned(buffer))?))
                .collect()
        };
        let graph = Graph::current();
        let made = run().map_err(|e| {
            graph.refuse(site, "custom_op", format!("'{}' {e}", self.0.name), inputs).error()
        })?;
        let made = made.into_iter().map(|a| Ok(Arc::new(a).beside(device)?.into()));
        made.collect()
    }
}

/// Registers a module's custom ops with an interpreter.
pub(crate) fn register_in(module: Op, interpreter: &mut Interpreter) {
    for call in walk(module).into_iter().filter_map(ops::CustomCall::of) {
        let found = ALL.read().unwrap_or_else(PoisonError::into_inner).get(&call.callee).cloned();
        let Some(op) = found else { continue };
        let run = move |inputs: &[Rc<value::Tensor>],
                        _: Option<Attr>|
              -> Result<Vec<value::Tensor>, OwnError> {
            let inputs: Vec<Tensor> = inputs.iter().map(|t| Tensor::from(&**t)).collect();
            let made = super::modes::eagerly(|| op.run_eagerly(&inputs, Location::caller()))?;
            made.iter().map(|t| Ok(t.value()?)).collect()
        };
        interpreter.custom_calls.insert(call.callee, Box::new(run));
    }
}

/// Whether a module has side effects.
pub(crate) fn has_effects(module: Op) -> bool {
    walk(module).into_iter().filter_map(ops::CustomCall::of).any(|call| call.effect)
}

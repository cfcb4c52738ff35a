//! External PTX kernels: GPU implementations of [custom ops](super::custom_op).
use super::{
    Dim, Graph, Tensor, TraceError,
    call_site::CallSite,
    region::{Body, RegionOp, Spec},
    tensor_type::TensorType,
};
use crate::lowering::program::external_ptx::PtxInfo;
use kiln_dialects::{
    ir::{Attr, Size},
    ops::OpKind,
    sym,
};
use std::sync::Arc;

type Number = dyn Fn(&[TensorType], &[TensorType]) -> Dim + Send + Sync;
type Numbers = dyn Fn(&[TensorType], &[TensorType]) -> Vec<Dim> + Send + Sync;

/// An external PTX kernel with its launch configuration. Its parameters are 64 bits each: the
/// addresses of the op's inputs, of its results, then [sizes](Ptx::sizes). Tensors are contiguous,
/// row-major and 16-byte aligned, and results alias nothing; an i1 takes one byte.
/// For a complete op see `examples/custom_op.rs`.
#[derive(Clone)]
pub struct Ptx {
    text: String,
    entry: String,
    threads: u32,
    shared: u32,
    blocks: Option<Arc<Number>>,
    sizes: Option<Arc<Numbers>>,
}

impl Ptx {
    /// A PTX module and its entry. Default launch: CTAs of 256 threads, one thread per element of
    /// the first result.
    pub fn new(text: impl Into<String>, entry: &str) -> Ptx {
        Ptx {
            text: text.into(),
            entry: entry.into(),
            threads: 256,
            shared: 0,
            blocks: None,
            sizes: None,
        }
    }
    /// Threads per CTA, 1 to 1024.
    pub fn threads(self, threads: u32) -> Ptx {
        Ptx { threads, ..self }
    }
    /// Dynamic shared memory per CTA, in bytes.
    pub fn shared(self, bytes: u32) -> Ptx {
        Ptx { shared: bytes, ..self }
    }
    /// Grid size: the number of CTAs, from the types of inputs and results; sizes may be symbolic.
    /// One CTA if it returns no size.
    pub fn blocks(
        self,
        rule: impl Fn(&[TensorType], &[TensorType]) -> Dim + Send + Sync + 'static,
    ) -> Ptx {
        Ptx { blocks: Some(Arc::new(rule)), ..self }
    }
    /// The integer parameters after the addresses. Default: all sizes of the inputs, then of the
    /// results, outermost first.
    pub fn sizes(
        self,
        rule: impl Fn(&[TensorType], &[TensorType]) -> Vec<Dim> + Send + Sync + 'static,
    ) -> Ptx {
        Ptx { sizes: Some(Arc::new(rule)), ..self }
    }

    /// Parses and validates the PTX. Err: why it cannot be launched, as the end of a sentence.
    pub(super) fn read(&self) -> Result<PtxInfo, String> {
        if !(1..=1024).contains(&self.threads) {
            return Err(format!(
                "is launched with {} threads a block; 1 to 1024 are possible",
                self.threads
            ));
        }
        PtxInfo::read(&self.text, &self.entry, self.threads)
    }

    /// Emits the launch; `otherwise` emits the fallback for other targets. Err: the number of
    /// parameters differs, or a rule returns no size.
    pub(super) fn trace(
        &self,
        (graph, site, name): (&Graph, CallSite, &str),
        inputs: &[Tensor],
        (from, to): (&[TensorType], Vec<TensorType>),
        otherwise: Option<&mut dyn FnMut() -> Result<Vec<Tensor>, TraceError>>,
    ) -> Result<Vec<Tensor>, TraceError> {
        let refuse = |reason: String| {
            graph.refuse(site, "custom_op", format!("'{name}' {reason}"), inputs).error()
        };
        if to.is_empty() {
            return Err(refuse("gives nothing, which PTX cannot".into()));
        }
        let all = || {
            from.iter().chain(&to).flat_map(|(_, dims)| dims.iter().copied()).collect::<Vec<Dim>>()
        };
        let elements = || to[0].1.iter().fold(Dim::from(1), |n, d| n * *d);
        let threads = i64::from(self.threads);
        let blocks = self
            .blocks
            .as_ref()
            .map_or_else(|| (elements() + (threads - 1)) / threads, |rule| rule(from, &to));
        let sizes = self.sizes.as_ref().map_or_else(all, |rule| rule(from, &to));
        let (have, want) =
            (self.read().map_err(refuse)?.parameters, from.len() + to.len() + sizes.len());
        if have != want {
            let parts =
                format!("{} inputs, {} results and {} sizes", from.len(), to.len(), sizes.len());
            return Err(refuse(format!(
                "passes {want} parameters ({parts}) to {}, which takes {have}",
                self.entry
            )));
        }
        let mut values = vec![];
        for t in inputs {
            values.push(graph.ssa_value(t)?.0);
        }
        let numbers = |all: &[Dim]| all.iter().map(|d| d.expression()).collect::<Vec<sym::Dim>>();
        let (blocks, sizes) = (numbers(&[blocks]), numbers(&sizes));
        let (ctx, blocks, sizes) = {
            let mut state = graph.state().map_err(TraceError::module)?;
            (state.cx.b.ctx, state.raw(&blocks), state.raw(&sizes))
        };
        let (blocks, sizes) =
            (blocks.map_err(|e| refuse(e.to_string()))?, sizes.map_err(|e| refuse(e.to_string()))?);
        let mut groups = vec![values.len() as i32];
        let mut attrs = vec![("callee", Attr::string(ctx, name))];
        for (what, all) in [("blocks", &blocks), ("sizes", &sizes)] {
            let dynamic =
                all.iter().filter_map(|s| if let Size::Dynamic(v) = s { Some(*v) } else { None });
            let before = values.len();
            values.extend(dynamic);
            groups.push((values.len() - before) as i32);
            attrs.push((
                what,
                Attr::i64s(
                    ctx,
                    &all.iter().map(|s| s.known().unwrap_or(Size::DYNAMIC)).collect::<Vec<_>>(),
                ),
            ));
        }
        attrs.extend([
            ("operandSegmentSizes", Attr::i32s(ctx, &groups)),
            ("entry", Attr::string(ctx, &self.entry)),
            ("threads", Attr::i64(ctx, threads)),
            ("shared", Attr::i64(ctx, i64::from(self.shared))),
            ("ptx", Attr::string(ctx, &self.text)),
        ]);
        let specs: Vec<Spec> = to.into_iter().map(|(d, dims)| (d, numbers(&dims))).collect();
        let mut run = otherwise.map(|f| move |_: Vec<Tensor>| f());
        let bodies = run
            .iter_mut()
            .map(|run| Body { args: vec![], result_types: Some(specs.clone()), run })
            .collect();
        let op = RegionOp { kind: OpKind::PtxCall, operands: values, attrs, bodies };
        graph.region_op(site, "custom_op", op, &|_| Ok(specs.clone()))
    }
}

//! Kernels of one's own as PTX: the body of a [custom op](super::custom_op) on GPUs.
use super::{
    Dim, Graph, Tensor, TraceError,
    custom::TensorType,
    graph::Place,
    region::{Body, RegionOp, Spec},
};
use crate::lowering::program::external_ptx::Text;
use kiln_dialects::{
    ir::{Attr, Size},
    ops::OpKind,
    sym,
};
use std::sync::Arc;

type Number = dyn Fn(&[TensorType], &[TensorType]) -> Dim + Send + Sync;
type Numbers = dyn Fn(&[TensorType], &[TensorType]) -> Vec<Dim> + Send + Sync;

/// A kernel as PTX, and how it is launched. Its parameters, each of 64 bits, are the addresses of
/// the op's inputs, in order, then those of its results, then [sizes](Ptx::sizes). All tensors are
/// row-major and contiguous, begin at multiples of 16 bytes, and overlap no result; an i1 is a
/// byte.
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
    /// The text of a module, and the name of the kernel in it. Blocks of 256 threads, one thread
    /// for each element of the first result, unless it is said otherwise.
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
    /// Threads of a block, 1 to 1024.
    pub fn threads(self, threads: u32) -> Ptx {
        Ptx { threads, ..self }
    }
    /// Bytes of shared memory that a block asks for beyond what the text declares.
    pub fn shared(self, bytes: u32) -> Ptx {
        Ptx { shared: bytes, ..self }
    }
    /// How many blocks are launched, from the types of inputs and results, whose sizes may be
    /// symbols; one block where that is none.
    pub fn blocks(
        self,
        rule: impl Fn(&[TensorType], &[TensorType]) -> Dim + Send + Sync + 'static,
    ) -> Ptx {
        Ptx { blocks: Some(Arc::new(rule)), ..self }
    }
    /// The numbers that the kernel takes behind the addresses. If this is not called they are all
    /// sizes of the inputs, then of the results, outermost first.
    pub fn sizes(
        self,
        rule: impl Fn(&[TensorType], &[TensorType]) -> Vec<Dim> + Send + Sync + 'static,
    ) -> Ptx {
        Ptx { sizes: Some(Arc::new(rule)), ..self }
    }

    /// What the text says of itself. Err: it cannot be launched so, as the end of a sentence.
    pub(super) fn read(&self) -> Result<Text, String> {
        if !(1..=1024).contains(&self.threads) {
            return Err(format!(
                "is launched with {} threads a block; 1 to 1024 are possible",
                self.threads
            ));
        }
        Text::read(&self.text, &self.entry, self.threads)
    }

    /// The op in a graph; `otherwise` makes what computes the same elsewhere. Err: the number of
    /// parameters is another one, or a rule gives no number.
    pub(super) fn trace(
        &self,
        (graph, place, name): (&Graph, Place, &str),
        inputs: &[Tensor],
        (from, to): (&[TensorType], Vec<TensorType>),
        otherwise: Option<&mut dyn FnMut() -> Result<Vec<Tensor>, TraceError>>,
    ) -> Result<Vec<Tensor>, TraceError> {
        let refuse = |reason: String| {
            graph.refuse(place, "custom_op", format!("'{name}' {reason}"), inputs).error()
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
            values.push(graph.taken(t)?.0);
        }
        let numbers = |all: &[Dim]| all.iter().map(|d| d.expression()).collect::<Vec<sym::Dim>>();
        let (blocks, sizes) = (numbers(&[blocks]), numbers(&sizes));
        let (ctx, blocks, sizes) = {
            let mut state = graph.state().map_err(TraceError::Module)?;
            (state.cx.b.ctx, state.raw(&blocks), state.raw(&sizes))
        };
        let (blocks, sizes) = (blocks.map_err(refuse)?, sizes.map_err(refuse)?);
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
            .map(|run| Body { args: vec![], gives: Some(specs.clone()), run })
            .collect();
        let op = RegionOp { kind: OpKind::PtxCall, operands: values, attrs, bodies };
        graph.region_op(place, "custom_op", op, &|_| Ok(specs.clone()))
    }
}

//! Analysis of a kernel at the `linalg` level as plain data: buffers, and stages that load and
//! store them at addresses affine in loop dimensions.
//!
//! Tensors of a kernel are contiguous, so that every access is an element of a flat buffer and
//! reshapes are no-ops.
pub(crate) mod attention;
pub(crate) mod attention_gradient;
pub(crate) mod buffers;
pub(crate) mod combine;
pub(crate) mod copy;
pub(crate) mod facts;
pub mod generalize;
pub(crate) mod index_expr;
pub(crate) mod merge;
pub(crate) mod nest;
pub(crate) mod partial_reads;
pub(crate) mod poly;
pub(crate) mod read;
pub mod sizes;
pub(crate) mod structure;

pub use crate::analysis::attention::{Attention, Limits};
pub use crate::analysis::attention_gradient::AttentionGradient;
pub use crate::analysis::buffers::SCRATCH;
pub use crate::analysis::combine::{Combine, MERGES};
pub use crate::analysis::facts::{CONSTANT, DIVISOR, LEAST, is_constant};
pub use crate::analysis::nest::{
    Nest, NestPlan, contracts, drop_units, matching_nests, nests, nests_without_rows,
};
pub use crate::analysis::poly::{Div, LinearExpr, Poly, row_major};
pub use crate::analysis::read::read;
pub use crate::analysis::structure::{Contraction, FourierTransform, Scan, Structure};
use kiln_dialects::ir::*;
pub use kiln_dialects::rules::param_attrs;
use std::{collections::HashMap, rc::Rc};

/// The role of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A tensor argument, by its index among all arguments.
    Input(usize),
    /// A result, by its index.
    Output(usize),
    /// An intermediate.
    Temporary,
    /// A zero-padded view of a tensor argument, by its index among all arguments; it has no memory.
    /// See [`Kernel::pads`].
    Padded(usize),
}

/// A flat buffer.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Its element type.
    pub element: Type,
    /// Its sizes, in row-major order.
    pub sizes: Vec<Poly>,
    /// Its role.
    pub role: Role,
}

/// A tensor value as a strided view of a buffer.
#[derive(Clone, Debug)]
pub struct StridedView {
    /// The buffer.
    pub buffer: usize,
    /// The offset of the first element.
    pub offset: Poly,
    /// The tensor's sizes.
    pub sizes: Vec<Poly>,
    /// The strides in elements.
    pub strides: Vec<Poly>,
}

impl StridedView {
    /// The address of an element, in elements.
    pub fn at(&self, index: &[LinearExpr]) -> LinearExpr {
        let start = LinearExpr::fixed(self.offset.clone());
        index.iter().zip(&self.strides).fold(start, |sum, (i, s)| sum.plus(&i.times(s)))
    }
}

/// A load or store of one element per iteration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Access {
    /// The buffer.
    pub buffer: usize,
    /// The address in it, in elements.
    pub at: LinearExpr,
}

/// The initial value of an output.
#[derive(Clone, Debug)]
pub enum Init {
    /// Undefined: nothing reads it.
    None,
    /// A scalar SSA value of the kernel's function.
    Fill(Value),
    /// The value in memory.
    Load(Access),
}

/// An output of a stage.
#[derive(Clone, Debug)]
pub struct Output {
    /// The store.
    pub access: Access,
    /// Its index per dimension of the tensor.
    pub index: Vec<LinearExpr>,
    /// Its initial value.
    pub init: Init,
    /// Whether it is a reduction: iterations of reduction dimensions write the same element.
    pub reduces: bool,
    /// The combination of partial results, if it is recognised.
    pub combine: Option<Combine>,
}

/// What an iteration computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The region's block of a `linalg.generic`.
    Block(Block),
    /// A copy of the input.
    Copy,
    /// A fill with a scalar of the kernel's function.
    Fill(Value),
}

/// A stage: one `linalg.generic`, or an op that is treated as one.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The op that it was read from.
    pub op: Op,
    /// Extents of the loop dimensions.
    pub extents: Vec<Poly>,
    /// Iterator types: which loop dimensions are reductions.
    pub reduction: Vec<bool>,
    /// Its loads.
    pub inputs: Vec<Access>,
    /// Its outputs.
    pub outputs: Vec<Output>,
    /// Its body.
    pub body: Body,
    /// What its op says that it computes.
    pub structure: Option<Structure>,
    /// Buffers that its body loads from by `tensor.extract`.
    pub captured: Vec<usize>,
    /// Loop dimensions of the op that its body uses as values (`linalg.index`).
    pub indexed: Vec<usize>,
    /// The op's loop dimensions as affine forms of the current ones.
    pub dims: Vec<LinearExpr>,
    /// Whether its body also combines two partial results of all outputs together: see [`MERGES`].
    pub merges: bool,
}

impl Stage {
    /// A stage that fills or copies.
    fn moved(
        op: Op,
        to: &StridedView,
        index: Vec<LinearExpr>,
        inputs: Vec<Access>,
        body: Body,
    ) -> Stage {
        let access = Access { buffer: to.buffer, at: to.at(&index) };
        let output = Output { access, index, init: Init::None, reduces: false, combine: None };
        let (reduction, dims) =
            (vec![false; to.sizes.len()], (0..to.sizes.len()).map(LinearExpr::dim).collect());
        Stage {
            op,
            dims,
            extents: to.sizes.clone(),
            reduction,
            inputs,
            outputs: vec![output],
            body,
            structure: None,
            captured: vec![],
            indexed: vec![],
            merges: false,
        }
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its function.
    pub func: Op,
    /// What it was read from: the function's block, or that of a private copy.
    pub block: Block,
    /// The copy, in which structured ops are loop nests.
    pub copy: Option<Rc<copy::Generalized>>,
    /// Its buffers.
    pub buffers: Vec<Buffer>,
    /// Its stages, in program order.
    pub stages: Vec<Stage>,
    /// The view of each tensor.
    pub views: HashMap<Value, StridedView>,
    /// Scalar ops of the function, in program order.
    pub scalars: Vec<Op>,
    /// Those that load the only element of an argument, with its buffer.
    pub positions: HashMap<Op, usize>,
    /// The attention that its stages are.
    pub attention: Option<Attention>,
    /// The derivatives of attention that its stages are.
    pub attention_gradient: Option<AttentionGradient>,
    /// Of padded buffers: for each dimension the low padding and the size without padding.
    pub pads: HashMap<usize, Vec<(i64, Poly)>>,
}

impl Kernel {
    /// The op of the kernel's function that an op it was read from stands for.
    pub fn original(&self, op: Op) -> Op {
        self.copy.as_ref().map_or(op, |c| c.original(op))
    }
    /// The value of the kernel's function that a value it was read from stands for.
    pub fn original_value(&self, v: Value) -> Value {
        self.copy.as_ref().map_or(v, |c| c.original_value(v))
    }
}

/// The functions of all kernels with a body: of the modules below `root`, itself included, with the
/// attribute `kiln.kernel`.
pub fn kernels_of(root: Op) -> Vec<Op> {
    let body = |f: &Op| f.regions().first().is_some_and(|r| !r.is_empty());
    let inside = |f: &Op| {
        f.isa::<func::Func>()
            && body(f)
            && f.parent().is_some_and(|m| m.attr("kiln.kernel").is_some())
    };
    walk(root).into_iter().filter(inside).collect()
}

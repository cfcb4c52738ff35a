//! A kernel on level `linalg` as plain data: buffers, and stages that read and write them at
//! addresses linear in loop dimensions.
//!
//! Tensors of a kernel are contiguous, so that every access is an element of a flat buffer and
//! reshapes are nothing at all.
pub(crate) mod attention;
pub(crate) mod buffers;
pub(crate) mod combine;
pub(crate) mod facts;
pub(crate) mod index_expr;
pub(crate) mod merge;
pub(crate) mod nest;
pub(crate) mod poly;
pub(crate) mod read;
pub mod sizes;

pub use crate::analysis::attention::{Attention, CAUSAL, Limits};
pub use crate::analysis::buffers::SCRATCH;
pub use crate::analysis::combine::{Combine, MERGES};
pub use crate::analysis::facts::{DIVISOR, LEAST, said};
pub use crate::analysis::nest::{Nest, Plan, drop_units, nests};
pub use crate::analysis::poly::{Div, Lin, Poly, row_major};
pub use crate::analysis::read::read;

use kiln_dialects::ir::{Block, Op, Type, Value, walk};
use std::collections::HashMap;

/// What a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The kernel's tensor argument of that number among all arguments.
    Input(usize),
    /// The kernel's result of that number.
    Output(usize),
    /// Neither.
    Temporary,
    /// The kernel's tensor argument of that number among all arguments with zeros around it, which
    /// is nowhere in memory: see [`Kernel::pads`].
    Padded(usize),
}

/// A flat buffer.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Its element type.
    pub element: Type,
    /// Its sizes; the elements lie in row-major order.
    pub sizes: Vec<Poly>,
    /// What it is.
    pub role: Role,
}

/// A tensor value: where its elements are.
#[derive(Clone, Debug)]
pub struct Place {
    /// The buffer.
    pub buffer: usize,
    /// The first element.
    pub offset: Poly,
    /// The tensor's sizes.
    pub sizes: Vec<Poly>,
    /// The distance of neighbours in each dimension.
    pub strides: Vec<Poly>,
}

impl Place {
    /// The address of an element.
    pub fn at(&self, index: &[Lin]) -> Lin {
        let start = Lin::fixed(self.offset.clone());
        index.iter().zip(&self.strides).fold(start, |sum, (i, s)| sum.plus(&i.times(s)))
    }
}

/// One element that an iteration reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Access {
    /// The buffer.
    pub buffer: usize,
    /// The address in it.
    pub at: Lin,
}

/// What an output holds before.
#[derive(Clone, Debug)]
pub enum Init {
    /// Nothing that is read.
    None,
    /// A scalar, SSA in the kernel's function.
    Fill(Value),
    /// What is stored there.
    Load(Access),
}

/// What a stage writes.
#[derive(Clone, Debug)]
pub struct Output {
    /// Where.
    pub access: Access,
    /// The same per dimension of the tensor.
    pub index: Vec<Lin>,
    /// What is there before.
    pub init: Init,
    /// Whether iterations of reduction dimensions write the same element.
    pub reduces: bool,
    /// How partial results are combined, if that is known.
    pub combine: Option<Combine>,
}

/// What an iteration computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The block of a `linalg.generic`.
    Block(Block),
    /// The input.
    Copy,
    /// A scalar of the kernel's function.
    Fill(Value),
}

/// One `linalg.generic`, or what counts as one.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Where it comes from.
    pub op: Op,
    /// Sizes of the loop dimensions.
    pub extents: Vec<Poly>,
    /// Which of them are reductions.
    pub reduction: Vec<bool>,
    /// What it reads.
    pub inputs: Vec<Access>,
    /// What it writes.
    pub outputs: Vec<Output>,
    /// What it computes.
    pub body: Body,
    /// Buffers that its body reads by `tensor.extract`.
    pub captured: Vec<usize>,
    /// Loop dimensions of the op whose number its body asks for.
    pub indexed: Vec<usize>,
    /// The op's loop dimensions in terms of those that remain.
    pub dims: Vec<Lin>,
    /// Whether its body makes one of two partial results of all outputs together: see [`MERGES`].
    pub merges: bool,
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The function.
    pub func: Op,
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// All stages in order.
    pub stages: Vec<Stage>,
    /// Where the elements of each tensor are.
    pub views: HashMap<Value, Place>,
    /// Scalar ops of the function in order.
    pub scalars: Vec<Op>,
    /// Of padded buffers: how many zeros are in front of each dimension, and how large it is
    /// without zeros.
    pub pads: HashMap<usize, Vec<(i64, Poly)>>,
}

/// The functions of all kernels that have a body: of the modules below `root`, itself included,
/// that say `kiln.kernel`.
pub fn kernels_of(root: Op) -> Vec<Op> {
    let body = |f: &Op| f.regions().first().is_some_and(|r| !r.is_empty());
    let inside = |f: &Op| {
        f.is("func.func") && body(f) && f.parent().is_some_and(|m| m.attr("kiln.kernel").is_some())
    };
    walk(root).into_iter().filter(inside).collect()
}

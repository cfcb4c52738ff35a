//! How fusion treats an op: its class, and its role in the function.

/// How fusion treats an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// One result element from elements at the same or at computed indices.
    Pointwise,
    /// A reduction along some dimensions.
    Reduce,
    /// A contraction: rereads its operands.
    Contract,
    /// Two contractions with a softmax between them.
    Attention,
    /// A prefix scan along an axis, inclusive.
    Scan,
    /// Any other op: a kernel of its own.
    Single,
}

/// The role of an op in the function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Host,
    Stored,
    Generator,
    Move,
    /// Fused into its only reader, which is stored.
    Inner,
    View,
    Compute(Class),
    Library,
}

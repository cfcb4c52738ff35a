//! Tensors of callers, and errors.

/// The dtype of an operand or a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// 32-bit floats.
    F32,
    /// 64-bit floats.
    F64,
    /// 32-bit integers: pivots, rows and `info`.
    I32,
}

/// A dtype and a shape.
pub type Type = (Element, Vec<usize>);

/// Elements of an operand, row-major.
#[derive(Clone, Copy, Debug)]
pub enum Slice<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// 64-bit floats.
    F64(&'a [f64]),
    /// 32-bit integers.
    I32(&'a [i32]),
}

/// Elements of a result, row-major.
#[derive(Debug)]
pub enum SliceMut<'a> {
    /// 32-bit floats.
    F32(&'a mut [f32]),
    /// 64-bit floats.
    F64(&'a mut [f64]),
    /// 32-bit integers.
    I32(&'a mut [i32]),
}

/// An operand.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Its sizes.
    pub shape: &'a [usize],
    /// Its elements.
    pub data: Slice<'a>,
}

/// A result.
#[derive(Debug)]
pub struct Output<'a> {
    /// Its sizes.
    pub shape: &'a [usize],
    /// Its elements.
    pub data: SliceMut<'a>,
}

/// Why a factorization has no results.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Operands or results of other dtypes, sizes or number than the factorization takes.
    #[error("takes {wanted}, not {given}")]
    Operands {
        /// What it takes.
        wanted: &'static str,
        /// What it was given.
        given: String,
    },
    /// An iteration that does not converge.
    #[error(
        "{0}: The algorithm failed to converge because the input matrix contained non-finite values."
    )]
    NotFinite(&'static str),
    /// An iteration that does not converge on finite elements.
    #[error(
        "{0}: The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated values."
    )]
    NoConvergence(&'static str),
    /// A failure that `info` reports.
    #[error("{0}")]
    Failed(String),
}

impl Input<'_> {
    pub(crate) fn element(&self) -> Element {
        match self.data {
            Slice::F32(_) => Element::F32,
            Slice::F64(_) => Element::F64,
            Slice::I32(_) => Element::I32,
        }
    }
    /// Its dtype and sizes.
    pub fn ty(&self) -> Type {
        (self.element(), self.shape.to_vec())
    }
}

impl Output<'_> {
    pub(crate) fn ty(&self) -> Type {
        let element = match self.data {
            SliceMut::F32(_) => Element::F32,
            SliceMut::F64(_) => Element::F64,
            SliceMut::I32(_) => Element::I32,
        };
        (element, self.shape.to_vec())
    }
}

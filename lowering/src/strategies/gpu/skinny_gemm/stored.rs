//! How memory holds the weights of a skinny GEMM.
use kiln_dialects::value::DType;

/// Bytes of a vector access.
pub const VECTOR_BYTES: usize = 16;

/// 32-bit words of a vector access.
pub const WORDS: usize = VECTOR_BYTES / 4;

/// How memory holds the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stored {
    /// Elements of a type.
    Element(DType),
    /// Two integers from 0 to 15 in a byte, the first one in its lower half.
    Int4,
}

impl Stored {
    /// Bits of an element.
    pub fn bits(self) -> usize {
        match self {
            Stored::Element(d) => 8 * d.byte_size(),
            Stored::Int4 => 4,
        }
    }
    /// Elements of a thread's 16 bytes.
    pub fn vector(self) -> usize {
        8 * VECTOR_BYTES / self.bits()
    }
    /// Bytes of so many elements.
    pub fn bytes(self, elements: usize) -> usize {
        elements * self.bits() / 8
    }
    /// Whether pairs of `element` hold the differences of the elements and a number exactly.
    pub fn fits(self, element: DType, number: i64) -> bool {
        let most = exact(element);
        match self {
            Stored::Element(DType::I8) => number.abs() <= 128,
            Stored::Element(_) => number == 0,
            Stored::Int4 => number.abs() + bias(element) <= most,
        }
    }
}

/// Integers up to which a type has all of them.
fn exact(element: DType) -> i64 {
    if element == DType::BF16 { 256 } else { 2048 }
}

/// What a byte's bits are added to when they become the lower mantissa of an element.
pub fn bias(element: DType) -> i64 {
    if element == DType::BF16 { 128 } else { 1024 }
}

/// Whether tensor cores multiply a type of 16 bits.
pub fn narrow(d: &DType) -> bool {
    matches!(d, DType::BF16 | DType::F16)
}

//! Dtype codes of the call ABI.

/// Dtype codes of the call ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub enum Code {
    /// `f64`
    F64,
    /// `f32`
    F32,
    /// `f16`
    F16,
    /// `bf16`
    Bf16,
    /// `i64`
    I64,
    /// `i32`
    I32,
    /// `i16`
    I16,
    /// `i8`
    I8,
    /// `ui8`
    Ui8,
    /// `i1`, a byte
    I1,
    /// `f8E4M3FN`
    F8E4M3Fn,
    /// `f8E5M2`
    F8E5M2,
}

impl Code {
    const ALL: [(Code, &str); 12] = [
        (Code::F64, "f64"),
        (Code::F32, "f32"),
        (Code::F16, "f16"),
        (Code::Bf16, "bf16"),
        (Code::I64, "i64"),
        (Code::I32, "i32"),
        (Code::I16, "i16"),
        (Code::I8, "i8"),
        (Code::Ui8, "ui8"),
        (Code::I1, "i1"),
        (Code::F8E4M3Fn, "f8E4M3FN"),
        (Code::F8E5M2, "f8E5M2"),
    ];
    /// The code of an element type, by MLIR's name; `None` if the runtime kernels do not support
    /// it.
    pub fn of(name: &str) -> Option<Code> {
        Code::ALL.iter().find(|(_, n)| *n == name).map(|(c, _)| *c)
    }
    pub(super) fn from_word(word: i64) -> Option<Code> {
        usize::try_from(word).ok().and_then(|i| Code::ALL.get(i)).map(|(c, _)| *c)
    }
}

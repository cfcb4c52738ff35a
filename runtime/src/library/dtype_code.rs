//! Dtype codes of the call ABI.

/// Dtype codes of the call ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub enum DtypeCode {
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

impl DtypeCode {
    const ALL: [(DtypeCode, &str); 12] = [
        (DtypeCode::F64, "f64"),
        (DtypeCode::F32, "f32"),
        (DtypeCode::F16, "f16"),
        (DtypeCode::Bf16, "bf16"),
        (DtypeCode::I64, "i64"),
        (DtypeCode::I32, "i32"),
        (DtypeCode::I16, "i16"),
        (DtypeCode::I8, "i8"),
        (DtypeCode::Ui8, "ui8"),
        (DtypeCode::I1, "i1"),
        (DtypeCode::F8E4M3Fn, "f8E4M3FN"),
        (DtypeCode::F8E5M2, "f8E5M2"),
    ];
    /// The code of an element type, by MLIR's name; `None` if the runtime kernels do not support
    /// it.
    pub fn of(name: &str) -> Option<DtypeCode> {
        DtypeCode::ALL.iter().find(|(_, n)| *n == name).map(|(c, _)| *c)
    }
    pub(super) fn from_word(word: i64) -> Option<DtypeCode> {
        usize::try_from(word).ok().and_then(|i| DtypeCode::ALL.get(i)).map(|(c, _)| *c)
    }
}

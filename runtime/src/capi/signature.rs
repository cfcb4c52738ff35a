//! A program's signature, as C structs.
use crate::{
    Program,
    program::{Dim, Tensor},
};
use std::ffi::{CString, c_char};

/// One dimension of a tensor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KilnDim {
    /// The size; -1 if it is dynamic.
    pub size: i64,
    /// The size as text: a number, a symbol such as "s0", or an expression of symbols such as "(s0
    /// + 1)". Equal texts are equal sizes.
    pub text: *const c_char,
    /// Lower bound of the size.
    pub min: i64,
    /// Upper bound of the size; -1 if there is none, or if the size is an expression.
    pub max: i64,
    /// Divides every value of the size.
    pub divisor: i64,
}

/// An input or output tensor. Its pointers are valid for the program's lifetime.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KilnTensorInfo {
    /// Its name in the model.
    pub name: *const c_char,
    /// The element type in MLIR's spelling: "f32", "bf16", "i64", "ui8", "i1" (a byte), …
    pub dtype: *const c_char,
    /// Number of dimensions.
    pub rank: usize,
    /// The dimensions; null if there are none.
    pub dims: *const KilnDim,
}

/// A program's signature, with the strings that C callers read.
pub struct Signature {
    inputs: Vec<Info>,
    outputs: Vec<Info>,
}

struct Info {
    name: CString,
    dtype: CString,
    dims: Vec<KilnDim>,
    /// Owns the strings that `dims` points to.
    _texts: Vec<CString>,
}
// SAFETY: the pointers are to strings that this value owns and nobody changes.
unsafe impl Send for Info {}
// SAFETY: as above.
unsafe impl Sync for Info {}

fn string(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

impl Signature {
    pub fn of(p: &Program) -> Signature {
        let all = |tensors: &[Tensor]| tensors.iter().map(|t| Info::of(t, p)).collect();
        Signature { inputs: all(&p.inputs), outputs: all(&p.outputs) }
    }
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }
    pub fn input(&self, index: usize) -> Option<KilnTensorInfo> {
        self.inputs.get(index).map(Info::c)
    }
    pub fn output(&self, index: usize) -> Option<KilnTensorInfo> {
        self.outputs.get(index).map(Info::c)
    }
}

impl Info {
    fn of(t: &Tensor, p: &Program) -> Info {
        let texts: Vec<CString> = t.dims.iter().map(|d| string(&p.size_text(*d))).collect();
        let dim = |(d, text): (&Dim, &CString)| {
            let (min, max, divisor) = match d {
                Dim::Known(n) => (*n, *n, 1),
                Dim::Symbol(i) => p
                    .symbols
                    .get(*i)
                    .map_or((0, -1, 1), |s| (s.min, s.max.unwrap_or(-1), s.divisor.max(1))),
                Dim::Expr(_) => (0, -1, 1),
            };
            KilnDim {
                size: if let Dim::Known(n) = d { *n } else { -1 },
                text: text.as_ptr(),
                min,
                max,
                divisor,
            }
        };
        Info {
            name: string(&t.name),
            dtype: string(&t.dtype),
            dims: t.dims.iter().zip(&texts).map(dim).collect(),
            _texts: texts,
        }
    }
    fn c(&self) -> KilnTensorInfo {
        let dims = if self.dims.is_empty() { std::ptr::null() } else { self.dims.as_ptr() };
        KilnTensorInfo {
            name: self.name.as_ptr(),
            dtype: self.dtype.as_ptr(),
            rank: self.dims.len(),
            dims,
        }
    }
}

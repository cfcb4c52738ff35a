//! The `kiln` dialect: the op table and its columns, the `ir` module over MLIR's C API, reference
//! semantics and the interpreter.
//!
//! `td/` declares the ops; `build.rs` generates [`ops::OpKind`] and one plain struct per op. The
//! semantics are in [`rules`] (types and verification), [`reference`](mod@reference) (single ops)
//! and [`interp`] (programs).
include!(concat!(env!("OUT_DIR"), "/macros.rs"));

pub mod algebra;
pub mod error;
pub mod ffi;
pub mod interp;
pub mod ir;
pub mod ops;
pub mod reference;
pub mod rules;
pub mod sym;
pub mod value;

pub use error::{Error, Result};

//! Nothing: the crate is its build script, which has no dependencies and so runs before that of
//! `mlir-sys`, whose error names no remedy.

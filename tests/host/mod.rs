//! Host code generation: kernels in text through conversion, LLVM and the linker to calls.
mod codegen;
pub(crate) mod expand_math;
mod kernel_abi;

use kiln_dialects::ir::*;
use kiln_lowering::{RunOptions, run_pipeline};
use kiln_lowering::{
    cpu::{
        KERNEL_TO_LLVM,
        llvm::{CodeGen, HOST_PASSES, UNROLLING_KERNEL_PASSES},
    },
    target::cpu::Target,
};
use kiln_runtime::link::{LinkError, LinkedCode, library_symbols};
use std::ffi::c_void;

pub fn parse(c: &Context, text: &str) -> Module {
    crate::watchdog::arm();
    kiln_lowering::driver::table::register_all().expect("registered");
    Module::parse(c.ctx(), text.as_bytes(), "test.mlir").unwrap_or_else(|e| panic!("{e}")).0
}

/// Compiles a kernel on memrefs to an object.
pub fn kernel(text: &str, target: &Target) -> Vec<u8> {
    let c = Context::new();
    let m = parse(&c, text);
    let pipeline = format!("builtin.module(kiln-kernel-abi,{KERNEL_TO_LLVM})");
    run_pipeline(&m, &pipeline, &RunOptions::default(), &|_, _, _| ())
        .unwrap_or_else(|e| panic!("{e}"));
    CodeGen::new(target)
        .and_then(|g| g.object(m.op(), UNROLLING_KERNEL_PASSES))
        .unwrap_or_else(|e| panic!("{e}"))
}

/// Compiles a function of the llvm and omp dialects to an object.
pub fn program(text: &str) -> Vec<u8> {
    let c = Context::new();
    let m = parse(&c, text);
    let target = Target::host().expect("this machine");
    CodeGen::new(&target)
        .and_then(|g| g.object(m.op(), HOST_PASSES))
        .unwrap_or_else(|e| panic!("{e}"))
}

/// Links objects with the pool's entry points and the library's functions.
pub fn link(objects: &[&[u8]]) -> LinkedCode {
    try_link(objects).unwrap_or_else(|e| panic!("{e}"))
}

pub fn try_link(objects: &[&[u8]]) -> Result<LinkedCode, LinkError> {
    LinkedCode::link(objects.iter().map(|o| ("test", *o)), &symbols())
}

pub fn symbols() -> Vec<(&'static str, *const c_void)> {
    [kiln_runtime::symbols(), library_symbols()].concat()
}

pub fn address(code: &LinkedCode, name: &str) -> *const c_void {
    code.address(name).unwrap_or_else(|e| panic!("{e}"))
}

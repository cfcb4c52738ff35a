//! Host code generation: kernels as text, through the conversions, LLVM and ORC, to calls with numbers.
mod codegen;
mod expand_math;
mod kernel_abi;

use kiln_dialects::ir::*;
use kiln_lowering::host::{
    KERNEL_TO_LLVM,
    llvm::{CodeGen, HOST_PASSES, Jit, Target, UNROLLING_KERNEL_PASSES, library_symbols},
};
use kiln_lowering::{RunOptions, run_pipeline};
use std::ffi::c_void;

pub fn parse(c: &Context, text: &str) -> Module {
    crate::watchdog::arm();
    kiln_lowering::table::register_all().expect("registered");
    Module::parse(c.ctx(), text.as_bytes(), "test.mlir").unwrap_or_else(|e| panic!("{e}")).0
}

/// A kernel on memrefs to an object.
pub fn kernel(text: &str, target: &Target) -> Vec<u8> {
    let c = Context::new();
    let m = parse(&c, text);
    let pipeline = format!("builtin.module(kiln-kernel-abi,{KERNEL_TO_LLVM})");
    run_pipeline(&m, &pipeline, &RunOptions::default(), &|_, _, _| ()).unwrap_or_else(|e| panic!("{e}"));
    CodeGen::new(target).and_then(|g| g.object(m.op(), UNROLLING_KERNEL_PASSES)).unwrap_or_else(|e| panic!("{e}"))
}

/// A function of the llvm and omp dialects to an object.
pub fn program(text: &str) -> Vec<u8> {
    let c = Context::new();
    let m = parse(&c, text);
    let target = Target::host().expect("this machine");
    CodeGen::new(&target).and_then(|g| g.object(m.op(), HOST_PASSES)).unwrap_or_else(|e| panic!("{e}"))
}

/// Objects, the pool's entry points and the library's functions, linked.
pub fn link(objects: &[&[u8]]) -> Jit {
    let jit = Jit::new(&symbols()).expect("a linker");
    objects.iter().for_each(|o| jit.add_object(o).expect("an object"));
    jit
}

pub fn symbols() -> Vec<(&'static str, *const c_void)> {
    [kiln_runtime::symbols(), library_symbols()].concat()
}

pub fn address(jit: &Jit, name: &str) -> *const c_void {
    jit.lookup(name).unwrap_or_else(|e| panic!("{e}"))
}

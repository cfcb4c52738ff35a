//! The single integration-test binary: MLIR is linked statically, so each binary costs 160 MB and a
//! link.

mod attention;
mod capture;
mod compiled;
mod composites;
mod docs;
mod filecheck;
mod front;
mod gpu;
mod gradients;
mod host;
mod interpreter;
mod kiln_opt;
mod layering;
mod machinery;
mod ops;
mod passes;
mod random_graph;
mod reference;
mod run;
mod support;
mod tolerance;
mod tracer;
mod tune;
mod watchdog;
mod write_a_pass;

//! `kiln-opt`: the counterpart of mlir-opt for kiln's levels.
fn main() -> std::process::ExitCode {
    kiln::opt::main(std::env::args_os().collect()).into()
}

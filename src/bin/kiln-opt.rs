//! `kiln-opt`: mlir-opt's habits on kiln's levels.
fn main() -> std::process::ExitCode {
    kiln::opt::main(std::env::args_os().collect()).into()
}

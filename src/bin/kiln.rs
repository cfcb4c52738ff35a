//! `kiln`: compiles and runs models.
fn main() -> std::process::ExitCode {
    kiln::cli::main().into()
}

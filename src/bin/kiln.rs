//! `kiln`: compiles and runs models.
fn main() -> std::process::ExitCode {
    // Where nobody reads any more (`kiln options | head`) it ends quietly, as other commands do,
    // instead of with a panic of println.
    // SAFETY: there is one thread yet, and nothing of the process handles the signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    kiln::cli::main().into()
}

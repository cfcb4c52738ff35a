//! `kiln`: compiles and runs models.
fn main() -> std::process::ExitCode {
    // A closed pipe (`kiln options | head`) ends the process quietly instead of panicking in
    // println.
    // SAFETY: the process has one thread and no other handler for this signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    kiln::cli::main().into()
}

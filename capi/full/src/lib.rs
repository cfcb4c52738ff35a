//! `libkiln.so`: all functions of `include/kiln.h`, including the one that compiles.
use compiler::{Exit, Options, load};
pub use runtime::capi::*;
use std::ffi::c_char;

/// Only in `libkiln.so`. Compiles a model: a .pt2 archive, IR (.mlir), or a package (.kpkg) with
/// its weights next to it. Code is cached on disk in `KILN_CACHE_DIR`. `target` is the compilation
/// target, such as "x86_64:haswell" or "cuda:sm_90a", or null for this machine's CPU. `options` may
/// be null. `*out` is the program, which the caller owns, or null on failure.
///
/// # Safety
/// `path` is a NUL-terminated string, `target` and `options` are null or valid, `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_program_compile(
    path: *const c_char,
    target: *const c_char,
    options: *const KilnOptions,
    out: *mut *mut KilnProgram,
) -> KilnStatus {
    guarded(|| {
        let made = || -> Result<KilnProgram, Failure> {
            // SAFETY: the caller's promise.
            let (path, options) = unsafe { (text(path, "path")?, options.as_ref()) };
            let target = match target.is_null() {
                true => None,
                // SAFETY: the caller's promise.
                false => Some(unsafe { text(target, "target")? }.to_string()),
            };
            let mut how = Options::from_env()
                .map_err(|e| Failure(KilnStatus::KILN_ERROR_ARGUMENT, e.to_string()))?;
            how.target = target.or(how.target);
            let model = load(path).map_err(failure)?;
            let (mut package, _) = model.build(&how, &|_, _| ()).map_err(failure)?;
            if package.program.target.is_cuda() {
                model.embed_weights(&mut package, &how).map_err(failure)?;
            }
            let mut finder = model.finder(&package, &how);
            KilnProgram::open(&package, options, &mut |g| finder.find(g))
        };
        // SAFETY: the caller's promise.
        unsafe { return_program(made(), out) }
    })
}

fn failure(e: compiler::Error) -> Failure {
    let status = match e.exit() {
        Exit::Unsupported => KilnStatus::KILN_ERROR_UNSUPPORTED,
        Exit::Device => KilnStatus::KILN_ERROR_DEVICE,
        Exit::Failed => KilnStatus::KILN_ERROR_COMPILE,
        _ => KilnStatus::KILN_ERROR_FILE,
    };
    Failure(status, e.to_string())
}

//! Runtime kernels for ops that are not compiled to loop nests: scans, sorts, scatters, Fourier
//! transforms.
//!
//! Every thread of a team calls one as `void f(const i64* words, i64 tid, i64 nth)`. The words are
//! the number of tensors; for each tensor (inputs, then outputs) its address, [`DtypeCode`], rank
//! and sizes; then the number of attributes and the attributes. An unused output has address 0.
//! Tensors are contiguous, an `i1` takes a byte.
//!
//! Each thread writes its own share of the outputs; results do not depend on the number of threads.
//! Semantics, NaN order and bits are those of the reference interpreter. Out-of-range indices,
//! which eager PyTorch rejects, are skipped by writes.
mod abi;
mod dtype_code;
mod element;
mod float8;
mod fourier;
mod scan;
mod scatter;
mod sort;
#[cfg(test)]
mod tests;

pub use dtype_code::DtypeCode;
pub use fourier::transform;

use abi::Call;
use std::ffi::c_void;

/// Runs this thread's share of a call; `None` if the words are malformed.
type Run = fn(&Call) -> Option<()>;

fn run(name: &str, f: Run, words: *const i64, tid: i64, nth: i64) {
    // SAFETY: the entry points below pass on what their callers promise.
    let call = unsafe { Call::read(words, tid, nth) };
    if call.as_ref().and_then(f).is_none() {
        tracing::error!(target: "kiln::library", name, "was called with tensors or parameters that it does not take; nothing is computed");
    }
}

macro_rules! entries {
    ($($entry:ident: $run:path;)*) => {
        $(unsafe extern "C" fn $entry(words: *const i64, tid: i64, nth: i64) {
            run(stringify!($entry), $run, words, tid, nth);
        })*
        /// Names and addresses, for a linker. Callers pass words as the module describes them;
        /// nobody else writes the tensors meanwhile.
        pub fn symbols() -> Vec<(&'static str, *const c_void)> {
            vec![$((stringify!($entry), $entry as *const c_void)),*]
        }
    };
}

entries! {
    kiln_cumulative: scan::cumulative;
    kiln_fft: fourier::fft;
    kiln_sort: sort::sort;
    kiln_top_k: sort::top_k;
    kiln_scatter: scatter::scatter;
    kiln_dynamic_update_slice: scatter::dynamic_update_slice;
}

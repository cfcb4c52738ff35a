//! Ops that are no loop nests, as functions of whole tensors: scans, sorts, scatters, random
//! numbers.
//!
//! Compiled code calls one as `void f(const i64* words, i64 tid, i64 nth)` on every thread of a
//! team. The words are the number of tensors; for each tensor (operands, then results) its address,
//! [`Code`], rank and sizes; then the number of parameters and the parameters. A result that nobody
//! reads has the address 0. Tensors are contiguous, an `i1` is a byte.
//!
//! Every thread writes its own part of the results, and none depends on the number of threads.
//! Semantics, NaN order and bits are those of the reference interpreter; positions out of range,
//! which eager PyTorch refuses, are ignored when written to.
mod element;
mod float8;
mod random;
mod scan;
mod scatter;
mod sort;
#[cfg(test)]
mod tests;
mod words;

pub use words::Code;

use std::ffi::c_void;
use words::Call;

/// Runs on this thread's part of a call; `None` if the words are not what the function takes.
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
        /// Names and addresses, for a linker. Callers pass words as described at the top, whose
        /// tensors nobody else writes meanwhile.
        pub fn symbols() -> Vec<(&'static str, *const c_void)> {
            vec![$((stringify!($entry), $entry as *const c_void)),*]
        }
    };
}

entries! {
    kiln_cumulative: scan::cumulative;
    kiln_sort: sort::sort;
    kiln_top_k: sort::top_k;
    kiln_scatter: scatter::scatter;
    kiln_dynamic_update_slice: scatter::dynamic_update_slice;
    kiln_random_bits: random::bits;
    kiln_random_uniform: random::uniform;
    kiln_random_normal: random::normal;
}

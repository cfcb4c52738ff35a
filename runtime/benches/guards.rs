//! Cost of checking guards.
#![allow(missing_docs)]
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::time::Duration;

use kiln_runtime::{
    View,
    guards::{DYNAMIC, Guards, InputGuard, Layout, LeafView, Same, TensorGuard, dtype_word},
    program::Symbol,
};

/// Guards of `n` tensors f32[s, 64], or f32[32, 64] without symbols.
fn guards(n: usize, symbolic: bool) -> Guards {
    let tensor = |i: usize| {
        InputGuard::Tensor(TensorGuard {
            dtype: dtype_word("f32"),
            rank: 2,
            first: 2 * i,
            gpu: None,
            layout: Layout::Rows,
            align: 16,
        })
    };
    let size = if symbolic { DYNAMIC } else { 32 };
    let symbol = Symbol { name: "s0".into(), min: 2, max: None, divisor: 1, input: 0, dim: 0 };
    Guards {
        inputs: (0..n).map(tensor).collect(),
        names: (0..n).map(|i| format!("arg{i}")).collect(),
        sizes: [size, 64].repeat(n),
        symbols: if symbolic { vec![symbol] } else { vec![] },
        same: if symbolic {
            (1..n).map(|input| Same { input, dim: 0, symbol: 0 }).collect()
        } else {
            vec![]
        },
        ..Default::default()
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

fn bench(c: &mut Criterion) {
    let (bytes, shape, strides) = (vec![0u64; 1024], [32usize, 64], [64isize, 1]);
    // SAFETY: 32 x 64 elements of 4 bytes.
    let view = unsafe { View::strided("f32", &shape, &strides, bytes.as_ptr().cast()) };
    let mut group = c.benchmark_group("guards");
    for n in [1, 10, 100] {
        let leaves: Vec<LeafView> = vec![LeafView::Tensor(view); n];
        for (name, g) in [("static", guards(n, false)), ("symbolic", guards(n, true))] {
            let check = || {
                std::hint::black_box(std::hint::black_box(&g).check(std::hint::black_box(&leaves)))
            };
            // CPU time, so that other work on the machine matters little.
            let timed = |rounds: u64| {
                let start = cpu_time();
                (0..rounds).for_each(|_| assert!(check()));
                cpu_time() - start
            };
            group.bench_function(BenchmarkId::new(name, n), |b| b.iter_custom(timed));
        }
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);

//! Cost of calling a compiled function, and of an eager op. Guards alone: `cargo bench -p
//! kiln-runtime`. Measures CPU time of the calling thread, which does all the work, so other load
//! matters little.
#![allow(missing_docs)]
use criterion::{Criterion, criterion_group, criterion_main};
use kiln::Tensor;
use std::{hint::black_box, time::Duration};

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// CPU time of a call.
fn timed<R>(c: &mut Criterion, name: &str, call: impl Fn() -> R) {
    let rounds = |rounds: u64| {
        let start = cpu_time();
        (0..rounds).for_each(|_| drop(black_box(call())));
        cpu_time() - start
    };
    c.bench_function(name, |b| b.iter_custom(rounds));
}

fn bench(c: &mut Criterion) {
    let f = kiln::compile(|x: Tensor| x + 1).options([("threads", "1")]);
    let x = Tensor::from_slice(&[8], &[1.0f32; 8]).expect("a tensor");
    f.call(&x).expect("a result");
    timed(c, "call of one small kernel", || f.call(&x).expect("a result"));
    let many = kiln::compile(|all: Vec<Tensor>| &all[0] + 1).options([("threads", "1")]);
    let args = vec![x.clone(); 100];
    many.call(args.clone()).expect("a result");
    timed(c, "call with 100 tensors", || many.call(args.clone()).expect("a result"));
    let added =
        kiln::compile(|all: Vec<Tensor>| all.iter().skip(1).fold(all[0].clone(), |sum, t| sum + t))
            .options([("threads", "1")]);
    added.call(args.clone()).expect("a result");
    timed(c, "call that adds 100 tensors", || added.call(args.clone()).expect("a result"));
    // Cost of passing the tensors, which is part of the call.
    timed(c, "100 handles made and dropped", || args.clone());
    timed(c, "an op that runs at once", || &x + 1);
    // Wall time, since other threads compile too.
    let anew = kiln::compile(|x: Tensor| x * 2 + 1).options([("cache_dir", "off")]);
    let made = || {
        anew.reset();
        anew.call(&x).expect("a result")
    };
    c.bench_function("a call that compiles anew", |b| b.iter(made));
    // Graph breaks, by the number of ops before the read: the marginal cost of one more. All are
    // one kernel.
    for ops in [10, 110] {
        let chain = move |x: Tensor| (0..ops).fold(x, |x, _| x + 1);
        let read =
            kiln::compile(move |x: Tensor| chain(x).item::<f64>()).options([("threads", "1")]);
        let one = Tensor::from_slice(&[1], &[1.0f32]).expect("a tensor");
        read.call(&one).expect("a result");
        read.call(&one).expect("a result");
        timed(c, &format!("call with {ops} ops and a read"), || read.call(&one).expect("a result"));
    }
    // By the number of loop steps: the marginal cost of one more.
    for steps in [10, 110] {
        let f = move |x: Tensor| {
            kiln::while_loop(move |x: Tensor| x.select(0, 0).lt(steps), |x: Tensor| x + 1, x)
        };
        let looped = kiln::compile(f).options([("threads", "1")]);
        let zero = Tensor::from_slice(&[8], &[0.0f32; 8]).expect("a tensor");
        looped.call(&zero).expect("a result");
        timed(c, &format!("call with {steps} steps of a loop"), || {
            looped.call(&zero).expect("a result")
        });
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);

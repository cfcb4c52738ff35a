//! What a call of a compiled function costs, and an op that runs at once. The check of guards alone: `cargo bench -p kiln-runtime`.
#![allow(missing_docs)]
use criterion::{Criterion, criterion_group, criterion_main};
use kiln::Tensor;

fn bench(c: &mut Criterion) {
    let f = kiln::compile(|x: Tensor| x + 1).options([("threads", "1")]);
    let x = Tensor::of(&[8], &[1.0f32; 8]).expect("a tensor");
    f.call(&x).expect("a result");
    c.bench_function("call of one small kernel", |b| b.iter(|| f.call(&x).expect("a result")));
    let many = kiln::compile(|all: Vec<Tensor>| &all[0] + 1).options([("threads", "1")]);
    let args = vec![x.clone(); 100];
    many.call(args.clone()).expect("a result");
    c.bench_function("call with 100 tensors", |b| b.iter(|| many.call(args.clone()).expect("a result")));
    c.bench_function("an op that runs at once", |b| b.iter(|| &x + 1));
    // Of functions that read a value, by how many ops are noted before: what one more costs. They are one kernel.
    for ops in [10, 110] {
        let chain = move |x: Tensor| (0..ops).fold(x, |x, _| x + 1);
        let read = kiln::compile(move |x: Tensor| chain(x).item::<f64>()).options([("threads", "1")]);
        let one = Tensor::of(&[1], &[1.0f32]).expect("a tensor");
        read.call(&one).expect("a result");
        read.call(&one).expect("a result");
        c.bench_function(&format!("call with {ops} ops and a read"), |b| b.iter(|| read.call(&one).expect("a result")));
    }
    // By how many steps a loop takes: what one more costs.
    for steps in [10, 110] {
        let f = move |x: Tensor| kiln::while_loop(move |x: Tensor| x.select(0, 0).lt(steps), |x: Tensor| x + 1, x);
        let looped = kiln::compile(f).options([("threads", "1")]);
        let zero = Tensor::of(&[8], &[0.0f32; 8]).expect("a tensor");
        looped.call(&zero).expect("a result");
        c.bench_function(&format!("call with {steps} steps of a loop"), |b| b.iter(|| looped.call(&zero).expect("a result")));
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);

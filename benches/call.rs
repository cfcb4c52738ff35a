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
}

criterion_group!(benches, bench);
criterion_main!(benches);

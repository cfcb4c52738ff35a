//! One compiled model, called from many threads with different batch sizes.
//!
//!   cargo run --example serve
use kiln::{
    Tensor,
    nn::{Linear, Module, Scope, Sequential},
};

fn main() -> Result<(), kiln::Error> {
    run(16, 1000).map(|text| println!("{text}"))
}

/// Sends `requests` requests from each of `threads` threads.
pub fn run(threads: usize, requests: usize) -> Result<String, kiln::Error> {
    let model = Sequential::new(&Scope::root())
        .layer(|s| Linear::new(s, 8, 16))
        .apply(|x| x.gelu())
        .layer(|s| Linear::new(s, 16, 3));
    let model =
        kiln::compile(move |x: Tensor| model.forward(&x).softmax(-1)).name("model").fullgraph(true);
    let batch = |n: usize| Tensor::from_slice(&[n, 8], &vec![0.25f32; 8 * n]);
    // Warm up before the first request: one program serves every batch size.
    let first = batch(4)?;
    kiln::mark_dynamic(&first, 0, 2..=64)?;
    model.call(&first)?;
    let served = std::thread::scope(|scope| {
        let (model, batch) = (&model, &batch);
        let serve = move |t: usize| -> Result<usize, kiln::Error> {
            for i in 0..requests {
                let n = 2 + (t + i) % 63;
                let sum: f64 = model.call(&batch(n)?)?.sum(.., false).item()?;
                assert!((sum - n as f64).abs() < 1e-3, "{n} rows sum to {sum}");
            }
            Ok(requests)
        };
        let all: Vec<_> = (0..threads).map(|t| scope.spawn(move || serve(t))).collect();
        all.into_iter().map(|t| t.join().unwrap_or(Ok(0))).sum::<Result<usize, _>>()
    })?;
    Ok(format!("{served} requests by {} program", model.programs()))
}

//! Losses over large products in chunks of rows (`kiln-chunk-rows`): the same gradients, and less
//! memory between kernels.
use kiln::{
    Error, Tensor,
    tensor::{CrossEntropy, TraceError},
};

const ROWS: usize = 300;
const WIDTH: usize = 8;
const CLASSES: usize = 256;

fn numbers(shape: &[usize], seed: f32) -> Tensor {
    let n: usize = shape.iter().product();
    let all: Vec<f32> = (0..n).map(|i| (i as f32 * 0.7 + seed).sin()).collect();
    Tensor::from_slice(shape, &all).unwrap()
}

/// Classes, of which some are ignored if that is asked for.
fn classes(ignores: bool) -> Tensor {
    let class =
        |i: usize| if ignores && i.is_multiple_of(7) { -100 } else { (i * 37 % CLASSES) as i64 };
    Tensor::from_slice(&[ROWS], &(0..ROWS).map(class).collect::<Vec<i64>>()).unwrap()
}

/// The loss, its gradients by both operands, and the bytes between kernels, with this limit.
fn step(
    loss: impl Fn((Tensor, Tensor), Tensor) -> Result<Tensor, TraceError>
    + Clone
    + Send
    + Sync
    + 'static,
    arguments: (&Tensor, &Tensor, &Tensor),
    limit: &str,
) -> Result<(Vec<Tensor>, u64), Error> {
    let f = move |x: Tensor, w: Tensor, t: Tensor| -> Result<_, TraceError> {
        kiln::value_and_grad(loss.clone()).call(((x, w), t))
    };
    let f = kiln::compile(f).fullgraph(true).options([("chunk_bytes", limit)]);
    let (x, w, t) = arguments;
    let (loss, (by_x, by_w)) = f.call((x, w, t))?;
    let arena = f.explain().graphs[0].arena.parse().expect("bytes");
    Ok((vec![loss, by_x, by_w], arena))
}

fn close(a: &[Tensor], b: &[Tensor]) {
    for (a, b) in a.iter().zip(b) {
        let (x, y) = (a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
        let near = |(x, y): (&f32, &f32)| (x - y).abs() <= 1e-5 * (1.0 + y.abs());
        assert!(x.len() == y.len() && x.iter().zip(&y).all(near), "{x:?}, not {y:?}");
    }
}

/// The last of three chunks has 44 rows.
#[test]
fn chunks_change_no_gradient_and_need_less_memory() -> Result<(), Error> {
    let (x, w) = (numbers(&[ROWS, WIDTH], 1.0), numbers(&[CLASSES, WIDTH], 2.0));
    let ways =
        [CrossEntropy::default(), CrossEntropy { label_smoothing: 0.1, ..CrossEntropy::default() }];
    for (k, how) in ways.into_iter().enumerate() {
        let loss = move |(x, w): (Tensor, Tensor), t: Tensor| {
            Ok(x.linear(&w, None).cross_entropy(t, how.clone()))
        };
        let t = classes(true);
        let (stored, all) = step(loss.clone(), (&x, &w, &t), "0")?;
        let (chunked, few) = step(loss, (&x, &w, &t), "64K")?;
        close(&chunked, &stored);
        let logits = (ROWS * CLASSES * 4) as u64;
        assert!(all >= logits, "{k}: {all} bytes for logits of {logits}");
        assert!(few * 2 <= all, "{k}: {few} bytes in chunks, {all} without");
    }
    Ok(())
}

#[test]
fn weights_that_are_embeddings_too() -> Result<(), Error> {
    let (x, w) = (numbers(&[ROWS, WIDTH], 1.0), numbers(&[CLASSES, WIDTH], 2.0));
    let loss = |(x, w): (Tensor, Tensor), t: Tensor| {
        let first = w.embedding(&t);
        Ok((x + first).linear(&w, None).cross_entropy(t, CrossEntropy::default()))
    };
    let t = classes(false);
    let (stored, _) = step(loss, (&x, &w, &t), "0")?;
    let (chunked, _) = step(loss, (&x, &w, &t), "64K")?;
    close(&chunked, &stored);
    Ok(())
}

/// Each row is divided by a norm of all: nothing is chunked.
#[test]
fn rows_that_depend_on_each_other_are_stored() -> Result<(), Error> {
    let (x, w) = (numbers(&[ROWS, WIDTH], 1.0), numbers(&[CLASSES, WIDTH], 2.0));
    let loss = |(x, w): (Tensor, Tensor), t: Tensor| {
        let logits = x.linear(&w, None);
        let norm = logits.square().sum(.., false);
        Ok((logits / norm).cross_entropy(t, CrossEntropy::default()))
    };
    let t = classes(true);
    let (stored, all) = step(loss, (&x, &w, &t), "0")?;
    let (same, bytes) = step(loss, (&x, &w, &t), "64K")?;
    close(&same, &stored);
    assert_eq!(all, bytes);
    Ok(())
}

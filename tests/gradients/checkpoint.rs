//! `kiln::checkpoint`: the same gradients with less memory, in every mode.
use kiln::{
    Error, Tensor,
    nn::{self, BatchNorm, Dropout, Module, Scope},
    tensor::TraceError,
};

type Made = Result<Tensor, TraceError>;

fn numbers(shape: &[usize], seed: f64) -> Tensor {
    let n: usize = shape.iter().product();
    let all: Vec<f32> = (0..n).map(|i| (i as f32 * 0.7 + seed as f32).sin()).collect();
    Tensor::from_slice(shape, &all).unwrap()
}

fn close(a: &Tensor, b: &Tensor) {
    let (x, y) = (a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
    let near = x.iter().zip(&y).all(|(x, y)| (x - y).abs() <= 1e-5 * (1.0 + y.abs()));
    assert!(x.len() == y.len() && near, "{x:?}, not {y:?}");
}

/// Four layers, each of which wants its input and what is inside of it.
fn block(x: Tensor, w: Tensor) -> Tensor {
    (0..4).fold(x, |x, _| x.linear(&w, None).tanh().sin())
}

fn plain(x: Tensor, w: Tensor) -> Made {
    Ok((0..4).fold(x, |x, _| block(x, w.clone())).sum(.., false))
}

fn saving(x: Tensor, w: Tensor) -> Made {
    let mut x = x;
    for _ in 0..4 {
        x = kiln::checkpoint(block).call((&x, &w))?;
    }
    Ok(x.sum(.., false))
}

#[test]
fn a_checkpoint_saves_memory_and_changes_nothing() -> Result<(), Error> {
    let (x, w) = (numbers(&[64, 32], 1.0), numbers(&[32, 32], 2.0));
    let (a, b) = (kiln::compile(kiln::grad(plain)), kiln::compile(kiln::grad(saving)));
    let (a, b) = (a.fullgraph(true), b.fullgraph(true));
    let wanted = a.call((&x, &w))?;
    close(&b.call((&x, &w))?, &wanted);
    close(&kiln::grad(saving).call((&x, &w))?, &wanted);
    close(&saving(x.clone(), w.clone())?, &plain(x.clone(), w.clone())?);
    let bytes =
        |f: &kiln::compile::Explanation| -> u64 { f.graphs[0].arena.parse().expect("bytes") };
    let (all, few) = (bytes(&a.explain()), bytes(&b.explain()));
    assert!(few * 4 < all * 3, "{few} bytes with checkpoints, {all} without");
    Ok(())
}

#[test]
fn checkpoints_nest_and_return_structures() -> Result<(), Error> {
    let (x, w) = (numbers(&[4, 3], 1.0), numbers(&[3, 3], 2.0));
    let inner = |x: Tensor| x.exp().sin();
    let outer = |(x, w): (Tensor, Tensor)| -> Result<(Tensor, Vec<Tensor>), TraceError> {
        let y = kiln::checkpoint(inner).call(x.linear(w, None))?;
        Ok((y.clone() * &x, vec![y.cos(), x]))
    };
    let through = |(x, w): (Tensor, Tensor), keep: bool| -> Made {
        let (a, list) = match keep {
            true => kiln::checkpoint(outer).call(((x, w),))?,
            false => outer((x, w))?,
        };
        Ok((a * &list[0] + &list[1]).sum(.., false))
    };
    let by = |keep: bool| kiln::compile(kiln::grad(move |p: (Tensor, Tensor)| through(p, keep)));
    let (found, wanted) = (by(true).call(((x.clone(), w.clone()),))?, by(false).call(((x, w),))?);
    close(&found.0, &wanted.0);
    close(&found.1, &wanted.1);
    // A second derivative goes through what is computed again.
    let cube = |x: Tensor| &x * &x * &x;
    let second = kiln::grad(move |x: Tensor| {
        kiln::grad(move |x: Tensor| kiln::checkpoint(cube).call(x)).call(x)
    });
    assert_eq!(second.call(Tensor::scalar(2.0f64)?)?.item::<f64>()?, 12.0);
    Ok(())
}

/// What a checkpoint computes again drops the same elements, and updates statistics once.
#[test]
fn training_mode_goes_through_checkpoints() -> Result<(), Error> {
    let (drop, norm) = (Dropout::new(0.5), BatchNorm::new(&Scope::root(), 6));
    let layer = |x: Tensor| norm.forward(&drop.forward(&drop.forward(&x).sin()));
    let buffers = norm.buffers();
    let loss = |x: Tensor, key: Tensor, keep: bool| {
        nn::train(&buffers, key, || -> Made {
            let y = if keep { kiln::checkpoint(layer).call(&x)? } else { layer(x) };
            Ok((drop.forward(&y) * &y).sum(.., false))
        })
    };
    let by = |keep| {
        let f = move |x: Tensor, key: Tensor| loss(x, key, keep);
        kiln::compile(kiln::value_and_grad(f)).fullgraph(true)
    };
    let (x, key) = (numbers(&[8, 6], 1.0), Tensor::from_slice(&[2], &[3i64, 0])?);
    let ((a, statistics), by_x) = by(true).call((&x, &key))?;
    let ((b, wanted), by_wanted) = by(false).call((&x, &key))?;
    close(&a, &b);
    close(&by_x, &by_wanted);
    assert_eq!(statistics.len(), 3);
    for (found, wanted) in statistics.iter().zip(&wanted).take(2) {
        close(found, wanted);
    }
    assert_eq!(statistics[2].item::<i64>()?, 1);
    Ok(())
}

#[test]
fn errors_inside_of_a_checkpoint_have_their_line() {
    let x = numbers(&[2, 3], 1.0);
    let wrong = |x: Tensor| x.reshape([7]);
    let line = line!() - 1;
    let f = kiln::grad(move |x: Tensor| -> Made {
        Ok(kiln::checkpoint(wrong).call(x)?.sum(.., false))
    });
    let e = f.call(&x).unwrap_err().to_string();
    assert!(e.contains(&format!("checkpoint.rs:{line}")) && e.contains("reshape"), "{e}");
}

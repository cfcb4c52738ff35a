//! Losses and their gradients against PyTorch's (`record.py`).
use super::network::{Recorded, close};
use kiln::{
    Error, Tensor,
    dialects::value::DType,
    tensor::Reduction::{self, Mean, None as Each, Sum},
};

/// A loss by its input.
type Loss = Box<dyn Fn(Tensor, Reduction) -> Tensor>;

#[test]
fn losses_are_pytorchs() -> Result<(), Error> {
    let recorded = Recorded::open();
    let get = |name: &str| recorded.get(&format!("losses/{name}"));
    let (y, q, w, t) = (get("y"), get("q"), get("w"), get("t"));
    let log_target = y.log_softmax(1);
    let cases: Vec<(&str, &str, Loss)> = vec![
        (
            "mse",
            "x",
            Box::new({
                let y = y.clone();
                move |x, r| x.mse_loss(&y, r)
            }),
        ),
        (
            "l1",
            "x",
            Box::new({
                let y = y.clone();
                move |x, r| x.l1_loss(&y, r)
            }),
        ),
        (
            "smooth_l1",
            "x",
            Box::new({
                let y = y.clone();
                move |x, r| x.smooth_l1_loss(&y, 0.7, r)
            }),
        ),
        ("huber", "x", Box::new(move |x, r| x.huber_loss(&y, 0.7, r))),
        (
            "kl_div",
            "log",
            Box::new({
                let q = q.clone();
                move |x, r| x.kl_div(&q, false, r)
            }),
        ),
        ("kl_div_log", "log", Box::new(move |x, r| x.kl_div(&log_target, true, r))),
        (
            "bce",
            "p",
            Box::new({
                let q = q.clone();
                move |x, r| x.binary_cross_entropy(&q, r)
            }),
        ),
        (
            "bce_logits",
            "x",
            Box::new({
                let w = w.clone();
                move |x, r| x.binary_cross_entropy_with_logits(&q, Some(w.clone()), r)
            }),
        ),
        ("nll", "log", Box::new(move |x, r| x.nll_loss(&t, Some(w.clone()), 0, r))),
    ];
    for (name, input, loss) in cases {
        for (how, reduction) in [("none", Each), ("mean", Mean), ("sum", Sum)] {
            let f = |x: Tensor| {
                let value = loss(x, reduction);
                (value.sum(.., false), value)
            };
            let ((_, value), by) = kiln::value_and_grad(f).call(get(input))?;
            close(name, &value, &get(&format!("{name}/{how}")));
            close(&format!("the gradient of {name}"), &by, &get(&format!("{name}/{how}/by")));
        }
    }
    Ok(())
}

/// Where a logarithm is infinite, against PyTorch's numbers.
#[test]
fn certain_probabilities_have_gradients() -> Result<(), Error> {
    let (x, t) = ([0.0, 1.0, 0.0, 1.0, 0.5, 1e-20], [0.0, 1.0, 1.0, 0.0, 0.25, 1.0]);
    let losses = [0.0, 0.0, 100.0, 100.0, std::f64::consts::LN_2, 46.051_70];
    let (by_x, by_t) =
        ([0.0, 0.0, -1e12, 1e12, 1.0, -1e12], [100.0, -100.0, 100.0, -100.0, 0.0, 46.051_70]);
    let given = |all: &[f64]| Ok::<_, Error>(Tensor::from_slice(&[all.len()], all)?.to(DType::F32));
    for (name, reduction, count) in [("none", Each, 1.0), ("sum", Sum, 1.0), ("mean", Mean, 6.0)] {
        let f = move |x: Tensor, t: Tensor| x.binary_cross_entropy(t, reduction).sum(.., false);
        let (loss, found) = kiln::value_and_grad(f).call((given(&x)?, given(&t)?))?;
        close(name, &loss, &given(&[losses.iter().sum::<f64>() / count])?);
        close(name, &found, &given(&by_x.map(|g| g / count))?);
        let g = move |t: Tensor, x: Tensor| f(x, t);
        let (_, found) = kiln::value_and_grad(g).call((given(&t)?, given(&x)?))?;
        close(name, &found, &given(&by_t.map(|g| g / count))?);
    }
    let each = given(&x)?.binary_cross_entropy(given(&t)?, Each);
    close("each", &each, &given(&losses)?);
    Ok(())
}

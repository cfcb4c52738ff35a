//! A network with batch norm, trained as PyTorch trains it (`record.py`).
use kiln::{
    Error, Tensor,
    capture::weight::{self, Weight},
    nn::{self, BatchNorm, Conv2d, Linear, Module, Scope, Sequential},
    optim::{AdamW, Optimizer, State},
    tensor::{Array, Convolution, CrossEntropy, TraceError},
};
use std::{collections::BTreeMap, path::Path, sync::Arc};

const STEPS: usize = 4;

fn network() -> Sequential {
    let same = Convolution { padding: [1, 1], ..Convolution::default() };
    Sequential::new(&Scope::root())
        .layer(|s| Conv2d::without_bias(s, 2, 4, [3, 3], same))
        .layer(|s| BatchNorm::new(s, 4))
        .apply(|x| x.relu())
        .apply(|x| x.flatten(1, -1))
        .layer(|s| Linear::without_bias(s, 64, 6))
        .layer(|s| BatchNorm::new(s, 6).with_momentum(0.3))
        .layer(|s| Linear::new(s, 6, 3))
}

/// What PyTorch computed.
pub struct Recorded(BTreeMap<String, Weight>);

impl Recorded {
    pub fn open() -> Recorded {
        Recorded::of_file("network")
    }
    pub fn of_file(name: &str) -> Recorded {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/training");
        Recorded(weight::open(&folder.join(format!("{name}.safetensors"))).unwrap())
    }
    pub fn get(&self, name: &str) -> Tensor {
        let found = self.0.get(name).unwrap_or_else(|| panic!("no {name}"));
        Tensor::from(Arc::new(Array::from_weight(found).unwrap()))
    }
    /// The values of a network's weights, under the names that it gives them.
    fn of(&self, at: &str, net: &Sequential) -> Vec<Tensor> {
        net.parameters().iter().map(|p| self.get(&format!("{at}/{}", p.name()))).collect()
    }
}

fn numbers(t: &Tensor) -> Vec<f64> {
    t.to(kiln::dialects::value::DType::F64).to_vec().unwrap()
}

pub fn close(what: &str, found: &Tensor, wanted: &Tensor) {
    let (a, b) = (numbers(found), numbers(wanted));
    let near = a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 2e-5 * (1.0 + b.abs()));
    assert!(a.len() == b.len() && near, "{what}: {a:?}\nPyTorch: {b:?}");
}

#[test]
fn a_network_with_batch_norm_trains_as_pytorchs() -> Result<(), Error> {
    let recorded = Recorded::open();
    let net = network();
    nn::assign(&net.parameters(), &recorded.of("first", &net))?;
    let (weights, buffers) = (net.trainable(), net.buffers());
    assert_eq!((weights.len(), buffers.len()), (8, 6));
    let adamw = AdamW { rate: 0.02.into(), ..AdamW::default() };
    let loss = |x: Tensor, t: Tensor| {
        nn::train(&buffers, None, || net.forward(&x).cross_entropy(t, CrossEntropy::default()))
    };
    let step = |x: Tensor, t: Tensor, s: State| -> Result<_, TraceError> {
        let ((loss, statistics), by) = nn::value_and_grad(weights.clone(), loss).call((x, t))?;
        let (new, s) = adamw.apply(nn::values(&weights), by, s)?;
        Ok((loss, statistics, new, s))
    };
    let compiled = kiln::compile(step).fullgraph(true);
    let mut state = adamw.init(&nn::values(&weights))?;
    for at in 0..STEPS {
        let row = |name: &str| recorded.get(name).select(0, at as i64);
        let (x, t) = (row("x"), row("t"));
        let (loss, statistics, new);
        // The first step also eagerly: modules without a program.
        if at == 0 {
            let (eager, now, ..) = step(x.clone(), t.clone(), state.clone())?;
            close("the eager loss", &eager, &recorded.get("0/loss"));
            for (p, now) in buffers.iter().zip(&now) {
                close(
                    &format!("eager {}", p.name()),
                    now,
                    &recorded.get(&format!("0/{}", p.name())),
                );
            }
        }
        (loss, statistics, new, state) = compiled.call((x, t, state))?;
        nn::assign(&weights, &new)?;
        nn::assign(&buffers, &statistics)?;
        close("the loss", &loss, &recorded.get(&format!("{at}/loss")));
        for (p, wanted) in net.parameters().iter().zip(recorded.of(&at.to_string(), &net)) {
            let found = nn::values(&[p]).remove(0);
            assert_eq!(found.dtype()?, wanted.dtype()?);
            close(&format!("{} after step {at}", p.name()), &found, &wanted);
        }
    }
    assert_eq!(compiled.programs(), 1);
    close(
        "in evaluation mode",
        &net.forward(&recorded.get("x").select(0, 0)),
        &recorded.get("evaluated"),
    );
    Ok(())
}

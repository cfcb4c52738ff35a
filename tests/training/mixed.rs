//! Mixed precision against PyTorch's (`record.py`): autocast, and dynamic loss scaling.
use super::network::{Recorded, close};
use kiln::{
    Error, Tensor, autocast, compile,
    compile::Topic,
    dialects::value::DType,
    nn::{self, LayerNorm, Linear, Module, Scope, Sequential},
    optim::{LossScale, Optimizer, Scale, Sgd, State},
    tensor::{CrossEntropy, TraceError, without_autocast},
    tolerance,
};

fn network() -> Sequential {
    Sequential::new(&Scope::root())
        .layer(|s| Linear::new(s, 8, 16))
        .apply(|x| x.gelu())
        .layer(|s| LayerNorm::new(s, &[16]))
        .layer(|s| Linear::new(s, 16, 4))
}

/// Within the tolerance of bf16, in the dtype that PyTorch gives.
fn as_bf16(what: &str, have: &Tensor, want: &Tensor) -> Result<(), Error> {
    assert_eq!(have.dtype()?, want.dtype()?, "{what}");
    let (have, want) = (have.to(DType::BF16).value()?, want.to(DType::BF16).value()?);
    let found = tolerance::compare(&have, &want).expect("one type");
    assert!(found.ok, "{what}: {found}");
    Ok(())
}

#[test]
fn a_network_under_autocast_is_pytorchs() -> Result<(), Error> {
    let (recorded, net) = (Recorded::of_file("autocast"), network());
    let weights = net.parameters();
    let values: Vec<Tensor> = weights.iter().map(|w| recorded.get(w.name())).collect();
    nn::assign(&weights, &values)?;
    let forward = |x: Tensor, t: Tensor| -> Result<(Tensor, Tensor), TraceError> {
        autocast("cpu", DType::BF16, || {
            let y = net.forward(&x);
            (y.cross_entropy(&t, CrossEntropy::default()), y)
        })
    };
    let step = |x: Tensor, t: Tensor| nn::value_and_grad(weights.clone(), forward).call((x, t));
    let step = compile(step).fullgraph(true).name("step");
    let (x, t) = (recorded.get("x"), recorded.get("t"));
    let ((loss, y), by) = step.call((&x, &t))?;
    as_bf16("results", &y, &recorded.get("y"))?;
    as_bf16("the loss", &loss, &recorded.get("loss"))?;
    for (w, by) in weights.iter().zip(&by) {
        as_bf16(w.name(), by, &recorded.get(&format!("by/{}", w.name())))?;
    }
    let told: Vec<String> = step
        .remarks()
        .into_iter()
        .filter(|r| r.topic == Topic::Autocast)
        .map(|r| r.message)
        .collect();
    let linear = "linear takes 5 times bf16 where it is given f32";
    assert!(told.iter().any(|m| m == linear) && told.len() == 2, "{told:?}");
    Ok(())
}

/// Eager, by each policy of both lists.
#[test]
fn ops_take_the_precision_of_the_lists() -> Result<(), Error> {
    let x = Tensor::from_slice(&[2, 2], &[0.5f32, 1.0, 1.5, 2.0])?;
    let half = x.to(DType::F16);
    let under = |device: &str, f: &dyn Fn() -> Tensor| -> Result<DType, TraceError> {
        autocast(device, DType::F16, f)?.dtype()
    };
    for (device, f, want) in [
        ("cpu", &(|| x.matmul(&x)) as &dyn Fn() -> Tensor, DType::F16),
        ("cpu", &|| half.exp(), DType::F16),
        ("cuda", &|| half.exp(), DType::F32),
        ("cuda", &|| half.sum(1, false), DType::F32),
        ("cuda", &|| &half + 1, DType::F16),
        ("cpu", &|| x.graph().cat(&[x.clone(), half.clone()], 0), DType::F32),
        ("cpu", &|| half.graph().cat(&[half.clone(), half.clone()], 0), DType::F16),
        ("cuda", &|| without_autocast(|| half.exp()), DType::F16),
        ("cuda", &|| x.to(DType::F64).matmul(x.to(DType::F64)), DType::F64),
    ] {
        assert_eq!(under(device, f)?, want);
    }
    let told = |e: Option<TraceError>| e.map_or(String::new(), |e| e.to_string());
    assert!(told(autocast("cpu", DType::F64, || x.clone()).err()).contains("autocasts to f64"));
    assert!(told(autocast("tpu", DType::F16, || x.clone()).err()).contains("'tpu' is no device"));
    // Its program would hold for this context alone.
    let f = compile(|x: Tensor| x.matmul(&x));
    let inside = autocast("cpu", DType::BF16, || {
        f.call(&x).map_err(|e| TraceError::User(e.to_string().into()))
    });
    assert!(told(inside.err()).contains("autocast goes inside of what is compiled"));
    assert_eq!(f.call(&x)?.dtype()?, DType::F32);
    Ok(())
}

#[test]
fn steps_that_overflow_are_left_out() -> Result<(), Error> {
    let recorded = Recorded::of_file("autocast");
    let scaler = LossScale { initial: 1024.0, interval: 3, ..LossScale::default() };
    let sgd = Sgd { rate: 0.1.into(), momentum: 0.9, ..Sgd::default() };
    let step = |w: Tensor, factor: Tensor, state: State, scale: Scale| -> Result<_, TraceError> {
        let loss = |w: Tensor| scaler.scale(&(w.square() * &factor).sum(.., false), &scale);
        let by = kiln::grad(loss).call(&w)?;
        let (by, finite) = scaler.unscale(by, &scale)?;
        scaler.apply(&sgd, w, by, &finite, state, scale)
    };
    let step = compile(step).fullgraph(true);
    let mut w = recorded.get("scaled/w");
    let (mut state, mut scale) = (sgd.init(&w)?, scaler.init()?);
    let factors = [1.0, f32::INFINITY, 2.0, f32::NAN, 3.0, 1.0, 0.5, 1.0];
    for (i, factor) in factors.into_iter().enumerate() {
        (w, state, scale) = step.call((w, Tensor::scalar(factor)?, state, scale))?;
        close("the weight", &w, &recorded.get(&format!("scaled/{i}/w")));
        close("the scale", &scale.scale, &recorded.get(&format!("scaled/{i}/scale")));
    }
    assert_eq!((step.programs(), state.count.item::<f64>()?), (1, 6.0));
    Ok(())
}

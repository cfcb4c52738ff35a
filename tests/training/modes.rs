//! Training mode, dropout, and initial values of weights.
use kiln::{
    Error, Tensor,
    nn::{self, Attention, BatchNorm, Dropout, Init, Linear, Module, Scope, Sequential},
};

fn key(seed: i64) -> Tensor {
    Tensor::from_slice(&[2], &[seed, 0]).unwrap()
}

fn ones(n: usize) -> Tensor {
    Tensor::from_slice(&[n], &vec![1.0f32; n]).unwrap()
}

#[test]
fn dropout_drops_in_training_mode_only() -> Result<(), Error> {
    let (layer, x) = (Dropout::new(0.25), ones(4000));
    assert_eq!(layer.forward(&x).to_vec::<f32>()?, x.to_vec::<f32>()?);
    let run = |seed| nn::train(&[], key(seed), || layer.forward(&x)).unwrap().0;
    let first = run(1).to_vec::<f32>()?;
    let kept = first.iter().filter(|y| (**y - 4.0 / 3.0).abs() < 1e-6).count();
    assert_eq!(first.iter().filter(|y| **y == 0.0).count(), 4000 - kept);
    assert!((2900..3100).contains(&kept), "{kept} of 4000 are kept");
    assert_eq!(first, run(1).to_vec::<f32>()?);
    assert_ne!(first, run(2).to_vec::<f32>()?);
    // Training mode has ended, also after an error.
    let failed = nn::train(&[], None, || layer.forward(&x)).unwrap();
    let e = failed.0.to_vec::<f32>().unwrap_err().to_string();
    assert!(e.contains("has no key: nn::train takes one for it"), "{e}");
    assert_eq!(layer.forward(&x).to_vec::<f32>()?, x.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn each_dropout_of_a_step_draws_its_own() -> Result<(), Error> {
    let (layer, x) = (Dropout::new(0.5), ones(1000));
    let ((a, b), _) = nn::train(&[], key(3), || (layer.forward(&x), layer.forward(&x)))?;
    let (a, b) = (a.to_vec::<f32>()?, b.to_vec::<f32>()?);
    let same = a.iter().zip(&b).filter(|(a, b)| a == b).count();
    assert!((400..600).contains(&same), "{same} of 1000");
    Ok(())
}

/// The gradient sees the mask of the forward pass, compiled or not, and the key is an input: one
/// program serves all.
#[test]
fn dropout_is_the_same_in_the_backward_pass() -> Result<(), Error> {
    let (layer, x) = (Dropout::new(0.5), ones(512));
    let loss =
        |x: Tensor, key: Tensor| nn::train(&[], key, || layer.forward(&x).square().sum(.., false));
    let both = kiln::compile(kiln::value_and_grad(loss)).fullgraph(true);
    for seed in [4, 5] {
        let ((loss_, _), gradient) = both.call((x.clone(), key(seed)))?;
        let y = nn::train(&[], key(seed), || layer.forward(&x))?.0.to_vec::<f32>()?;
        let wanted: Vec<f32> = y.iter().map(|y| 4.0 * y).collect();
        assert_eq!(gradient.to_vec::<f32>()?, wanted);
        assert_eq!(loss_.item::<f64>()?, f64::from(y.iter().map(|y| y * y).sum::<f32>()));
    }
    assert_eq!(both.programs(), 1);
    Ok(())
}

#[test]
fn statistics_of_a_layer_that_is_used_twice_are_updated_twice() -> Result<(), Error> {
    let layer = BatchNorm::new(&Scope::root(), 1);
    let x = Tensor::from_slice(&[2, 1], &[0.0f32, 2.0])?;
    let buffers = layer.buffers();
    let names: Vec<&str> = buffers.iter().map(|p| p.name()).collect();
    assert_eq!(names, ["running_mean", "running_var", "num_batches_tracked"]);
    let (_, new) = nn::train(&buffers, None, || (layer.forward(&x), layer.forward(&x)))?;
    let mean = new[0].item::<f64>()?;
    assert!((mean - 0.19).abs() < 1e-6, "{mean}");
    // The unbiased variance is 2.
    assert!((new[1].item::<f64>()? - 1.19).abs() < 1e-6);
    assert_eq!(new[2].item::<i64>()?, 2);
    // Nothing is stored until it is assigned.
    assert_eq!(nn::values(&buffers)[0].item::<f64>()?, 0.0);
    Ok(())
}

fn values(p: &nn::Parameter) -> Vec<f64> {
    p.value().unwrap().read().unwrap().as_f().unwrap().to_vec()
}

#[test]
fn initial_values_have_their_variance() {
    let shape = [32, 16, 3, 3];
    let weight = Scope::root().parameter("w", &shape, Init::Constant(0.0));
    // Fan-in 144, fan-out 288: PyTorch's formulas.
    let cases = [
        (Init::xavier_uniform(&shape, 2.0), 2.0 * (6.0f64 / 432.0).sqrt(), true),
        (Init::xavier_normal(&shape, 1.0), (2.0f64 / 432.0).sqrt(), false),
        (Init::kaiming_uniform(&shape, 5f64.sqrt()), 1.0 / 12.0, true),
        (Init::kaiming_normal(&shape, 0.0), (2.0f64 / 144.0).sqrt(), false),
    ];
    for (init, wanted, uniform) in cases {
        let init = init.unwrap();
        weight.fill(init).unwrap();
        let all = values(&weight);
        let n = all.len() as f64;
        let mean = all.iter().sum::<f64>() / n;
        let std = (all.iter().map(|v| v * v).sum::<f64>() / n).sqrt();
        let most = all.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        let (bound, deviation) =
            if uniform { (wanted, wanted / 3f64.sqrt()) } else { (wanted * 5.0, wanted) };
        assert!(mean.abs() < 0.05 * deviation && (std / deviation - 1.0).abs() < 0.05, "{init:?}");
        assert!(most <= bound * (1.0 + 1e-6), "{init:?}: {most}");
    }
    let e = Init::xavier_normal(&[4], 1.0).unwrap_err().to_string();
    assert!(e.contains("shape [4]: fans need two dimensions"), "{e}");
}

#[test]
fn seeds_give_other_values() {
    let weight = |seed| values(Linear::new(&Scope::root().with_seed(seed), 3, 4).parameters()[0]);
    assert_eq!(weight(1), weight(1));
    assert_ne!(weight(1), weight(2));
    assert_eq!(weight(0), values(Linear::new(&Scope::root(), 3, 4).parameters()[0]));
}

#[test]
fn weights_have_pytorchs_names() {
    let net = Sequential::new(&Scope::root())
        .layer(|s| Attention::new(s, 4, 2))
        .layer(|_| Dropout::new(0.1))
        .layer(|s| BatchNorm::new(s, 4));
    let names: Vec<&str> = net.parameters().iter().map(|p| p.name()).collect();
    let wanted = [
        "0.in_proj_weight",
        "0.in_proj_bias",
        "0.out_proj.weight",
        "0.out_proj.bias",
        "2.weight",
        "2.bias",
        "2.running_mean",
        "2.running_var",
        "2.num_batches_tracked",
    ];
    assert_eq!(names, wanted);
    assert_eq!(net.trainable().len(), 6);
}

/// Outside of what is compiled or differentiated, training mode would change what is compiled, or
/// take values out of it.
#[test]
fn training_mode_goes_inside() -> Result<(), Error> {
    let (layer, x) = (Dropout::new(0.5), ones(4));
    let compiled = kiln::compile(|x: Tensor| layer.forward(&x));
    let mut outside = None;
    nn::train(&[], key(1), || outside = Some(compiled.call(&x)))?;
    let e = outside.expect("a result").unwrap_err().to_string();
    assert!(e.contains("nn::train goes inside of what is compiled or differentiated"), "{e}");
    let norm = BatchNorm::new(&Scope::root(), 1);
    let by = kiln::grad(|x: Tensor| norm.forward(&x).sum(.., false));
    let e = nn::train(&[], None, || by.call(x.reshape([4, 1]))).unwrap_err().to_string();
    assert!(e.contains("batch_norm") && e.contains("goes inside"), "{e}");
    let each = |x: Tensor| {
        nn::train(&[], key(1), || kiln::map(|x: Tensor| layer.forward(&x), x)).map(|(y, _)| y)
    };
    let e = kiln::compile(each).fullgraph(true).call(x).unwrap_err().to_string();
    assert!(e.contains("holds in no body of cond or scan"), "{e}");
    Ok(())
}

#[test]
fn methods_of_training_mode() -> Result<(), Error> {
    let x = Tensor::from_slice(&[2, 2], &[0.0f32, 1.0, 4.0, 3.0])?;
    let c = |v: f32| Tensor::from_slice(&[2], &[v; 2]);
    let (y, [mean, variance]) =
        x.batch_norm_training(c(1.0)?, c(1.0)?, [c(2.0)?, c(0.5)?], 0.5, 0.0);
    assert_eq!(y.to_vec::<f32>()?, [-1.5, -1.5, 2.5, 2.5]);
    assert_eq!(mean.to_vec::<f32>()?, [1.5, 1.5]);
    assert_eq!(variance.to_vec::<f32>()?, [4.5, 1.5]);
    let e = x.dropout_by(key(1), 1.5).to_vec::<f32>().unwrap_err().to_string();
    assert!(e.contains("between 0 and 1"), "{e}");
    let e = x.dropout_by(&x, 0.5).to_vec::<f32>().unwrap_err().to_string();
    assert!(e.contains("key"), "{e}");
    Ok(())
}

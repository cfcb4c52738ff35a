//! Optimizers against PyTorch's (`record.py`): eager and compiled, with state saved between steps.
use kiln::{
    Error, Tensor,
    capture::weight,
    nn::WeightsError,
    optim::{
        self, Adafactor, Adam, AdamW, Lion, Mask, Muon, Optimizer, Scaling, Schedule, Sgd, State,
    },
    tensor::{Array, TraceError},
};
use std::{collections::BTreeMap, path::Path, sync::Arc};

const STEPS: usize = 4;
const ALL: [&str; 4] = ["matrix", "wide", "vector", "kernel"];
const MATRICES: [&str; 2] = ["matrix", "wide"];

/// What PyTorch computed.
struct Recorded(BTreeMap<String, weight::Weight>);

impl Recorded {
    fn open() -> Recorded {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/optim/torch.safetensors");
        Recorded(weight::open(&path).unwrap())
    }
    fn get(&self, name: &str) -> Tensor {
        let found = self.0.get(name).unwrap_or_else(|| panic!("no {name}"));
        Tensor::from(Arc::new(Array::from_weight(found).unwrap()))
    }
    fn all(&self, names: &[&str], name: impl Fn(&str) -> String) -> Vec<Tensor> {
        names.iter().map(|n| self.get(&name(n))).collect()
    }
}

fn close(what: &str, found: &Tensor, wanted: &Tensor, tolerance: f32) {
    let (a, b) = (found.to_vec::<f32>().unwrap(), wanted.to_vec::<f32>().unwrap());
    let near = a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= tolerance * (1.0 + b.abs()));
    assert!(a.len() == b.len() && near, "{what}: {a:?}\nPyTorch: {b:?}");
}

/// The recorded updates, once eagerly and once as a compiled function.
fn check<O: Optimizer + Clone + 'static>(case: &str, names: &[&str], optimizer: O, tolerance: f32) {
    let recorded = Recorded::open();
    let first = recorded.all(names, |n| format!("{n}.weight"));
    let state = optimizer.init(&first).unwrap();
    let own = optimizer.clone();
    let compiled =
        kiln::compile(move |w: Vec<Tensor>, g: Vec<Tensor>, s: State| -> Result<_, TraceError> {
            own.apply(w, g, s)
        })
        .fullgraph(true);
    let (mut eager, mut fused) = ((first.clone(), state.clone()), (first, state));
    for step in 0..STEPS {
        let gradients = || recorded.all(names, |n| format!("{n}.gradient.{step}"));
        eager = optimizer.apply(eager.0, gradients(), eager.1).unwrap();
        fused = compiled.call((fused.0, gradients(), fused.1)).unwrap();
        for (i, name) in names.iter().enumerate() {
            let wanted = recorded.get(&format!("{case}.{name}.{step}"));
            close(
                &format!("{case}, eager, {name} after step {step}"),
                &eager.0[i],
                &wanted,
                tolerance,
            );
            close(
                &format!("{case}, compiled, {name} after step {step}"),
                &fused.0[i],
                &wanted,
                tolerance,
            );
        }
    }
    assert_eq!(compiled.programs(), 1, "{case}");
}

#[test]
fn sgd_is_pytorchs() {
    let sgd = Sgd { rate: 0.1.into(), ..Sgd::default() };
    check("sgd", &ALL, sgd.clone(), 1e-6);
    let sgd = Sgd { momentum: 0.9, weight_decay: 0.01, ..sgd };
    check("sgd_momentum", &ALL, Sgd { dampening: 0.25, ..sgd.clone() }, 1e-6);
    check("sgd_nesterov", &ALL, Sgd { nesterov: true, ..sgd }, 1e-6);
}

#[test]
fn adam_and_adamw_are_pytorchs() {
    check("adam", &ALL, Adam::default(), 1e-6);
    let adam = Adam { rate: 0.01.into(), betas: [0.8, 0.95], epsilon: 1e-6, ..Adam::default() };
    check("adam_penalty", &ALL, Adam { weight_decay: 0.1, ..adam }, 2e-6);
    check("adamw", &ALL, AdamW::default(), 1e-6);
    let adamw = AdamW { rate: 0.01.into(), weight_decay: 0.3, ..AdamW::default() };
    check("adamw_decay", &ALL, adamw, 2e-6);
}

#[test]
fn lion_is_the_papers() {
    let lion = Lion { rate: 0.01.into(), weight_decay: 0.1, ..Lion::default() };
    check("lion", &ALL, lion, 1e-6);
}

#[test]
fn adafactor_is_pytorchs() {
    check("adafactor", &ALL, Adafactor::default(), 1e-6);
    let other = Adafactor {
        rate: 0.5.into(),
        beta2_decay: -0.7,
        epsilon: (Some(1e-6), 0.1),
        clip: 1.2,
        weight_decay: 0.1,
        mask: Mask::All,
    };
    check("adafactor_decay", &ALL, other, 5e-6);
}

#[test]
fn muon_is_pytorchs() {
    check("muon", &MATRICES, Muon::default(), 5e-6);
    // PyTorch's own iteration in bf16, on updates of the size of the rate.
    check("muon_bf16", &MATRICES, Muon::default(), 1e-4);
    let other = Muon {
        rate: 0.02.into(),
        momentum: 0.9,
        nesterov: false,
        weight_decay: 0.3,
        scaling: Scaling::MatchRmsAdamw,
        ..Muon::default()
    };
    check("muon_rms", &MATRICES, other, 2e-5);
    let vector = Recorded::open().get("vector.weight");
    let refused = Muon::default().init(&vector).unwrap_err().to_string();
    assert!(refused.contains("Muon updates matrices, not f32[7]"), "{refused}");
}

#[test]
fn schedules_are_pytorchs() -> Result<(), Error> {
    let recorded = Recorded::open();
    let linear = Schedule::Linear { start: 0.5, end: 0.1, steps: 8 };
    let cosine = Schedule::WarmupCosine { start: 0.05, peak: 0.5, end: 0.05, warmup: 3, steps: 10 };
    for (name, schedule) in [("rates.linear", linear), ("rates.warmup_cosine", cosine)] {
        let wanted = recorded.get(name).to_vec::<f64>()?;
        let rate = kiln::compile(move |count: Tensor| schedule.at(&count));
        // PyTorch goes up again after the last step of a cosine.
        for (n, wanted) in wanted.iter().enumerate().take(11) {
            let found = rate.call(Tensor::scalar(n as f64)?)?.item::<f64>()?;
            assert!((found - wanted).abs() < 1e-7, "{name} at {n}: {found}, PyTorch {wanted}");
        }
    }
    Ok(())
}

#[test]
fn a_schedule_changes_the_rate_of_one_program() -> Result<(), Error> {
    let sgd = Sgd { rate: Schedule::Linear { start: 1.0, end: 0.0, steps: 4 }, ..Sgd::default() };
    let mut now = (Tensor::scalar(10.0f32)?, sgd.init(&Tensor::scalar(0.0f32)?)?);
    let step = kiln::compile(move |w: Tensor, s: State| sgd.apply(w, Tensor::scalar(1.0f32)?, s));
    for wanted in [9.0, 8.25, 7.75, 7.5, 7.5] {
        now = step.call(now)?;
        assert_eq!(now.0.item::<f64>()?, wanted);
    }
    assert_eq!(step.programs(), 1);
    Ok(())
}

#[test]
fn gradients_are_clipped_as_pytorch_clips_them() -> Result<(), Error> {
    let recorded = Recorded::open();
    let gradients = recorded.all(&ALL, |n| format!("{n}.gradient.0"));
    let (clipped, norm) = optim::clip_by_global_norm(gradients.clone(), 1.5)?;
    close("the norm", &norm, &recorded.get("clip.norm"), 1e-6);
    for (name, found) in ALL.iter().zip(&clipped) {
        close(name, found, &recorded.get(&format!("clip.{name}")), 1e-6);
    }
    let (same, _) = optim::clip_by_global_norm(gradients.clone(), 1e3)?;
    close("short gradients", &same[0], &gradients[0], 0.0);
    Ok(())
}

#[test]
fn the_mask_says_what_decays() -> Result<(), Error> {
    let weights = vec![Tensor::from_slice(&[2, 2], &[2.0f32; 4])?, Tensor::scalar(2.0f32)?];
    let zeros: Vec<Tensor> = weights.iter().map(Tensor::zeros_like).collect();
    let decayed = |mask: Mask| -> Result<Vec<bool>, TraceError> {
        let adamw = AdamW { rate: 0.5.into(), weight_decay: 0.5, mask, ..AdamW::default() };
        let (new, _) = adamw.apply(weights.clone(), zeros.clone(), adamw.init(&weights)?)?;
        new.iter().map(|w| Ok(w.to_vec::<f32>()?[0] == 1.5)).collect()
    };
    assert_eq!(decayed(Mask::All)?, [true, true]);
    assert_eq!(decayed(Mask::Matrices)?, [true, false]);
    assert_eq!(decayed(Mask::Each(vec![false, true]))?, [false, true]);
    let short = decayed(Mask::Each(vec![true])).unwrap_err().to_string();
    assert!(short.contains("the decay mask has 1 entries, weight 1 none"), "{short}");
    Ok(())
}

#[test]
fn narrow_weights_are_updated_in_f32() -> Result<(), Error> {
    use kiln::dialects::value::DType;
    let w = Tensor::from_slice(&[2], &[1.0f32, -1.0])?.to(DType::BF16);
    let adam = Adam::default();
    let state = adam.init(&w)?;
    assert_eq!(state.slots[0][0].dtype()?, DType::F32);
    // A gradient whose square bf16 would round.
    let (new, state) = adam.apply(w.clone(), w.full_like(0.3), state)?;
    assert_eq!(new.dtype()?, DType::BF16);
    let square = state.slots[0][1].to_vec::<f32>()?[0];
    assert!((square - 0.001 * 0.30078125f32.powi(2)).abs() < 1e-9, "{square}");
    let whole = Tensor::from_slice(&[1], &[1i64])?;
    let refused = adam.init(&whole).unwrap_err().to_string();
    assert!(refused.contains("updates weights of floats, not of i64"), "{refused}");
    Ok(())
}

#[test]
fn a_state_of_other_weights_is_refused() -> Result<(), Error> {
    let (one, two) = (Tensor::scalar(1.0f32)?, vec![Tensor::scalar(1.0f32)?; 2]);
    let adam = Adam::default();
    let e = adam.apply(two.clone(), two.clone(), adam.init(&one)?).unwrap_err().to_string();
    assert!(e.contains("is of 1 weights, not 2"), "{e}");
    let e = adam.apply(one.clone(), one.clone(), Sgd::default().init(&one)?).unwrap_err();
    assert!(e.to_string().contains("the state is of another optimizer"), "{e}");
    Ok(())
}

#[test]
fn an_average_follows_the_weights() -> Result<(), Error> {
    let (a, w) = (Tensor::scalar(1.0f32)?, Tensor::scalar(2.0f32)?);
    let average = kiln::compile(|a: Tensor, w: Tensor| optim::ema(a, &w, 0.75));
    assert_eq!(average.call((&a, &w))?.item::<f64>()?, 1.25);
    Ok(())
}

#[test]
fn a_state_goes_to_a_file_and_back() -> Result<(), Error> {
    let recorded = Recorded::open();
    let weights = recorded.all(&ALL, |n| format!("{n}.weight"));
    let gradients = recorded.all(&ALL, |n| format!("{n}.gradient.0"));
    let optimizer = Adafactor::default();
    let (weights, state) =
        optimizer.apply(weights.clone(), gradients, optimizer.init(&weights)?)?;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    optimizer.save(&weights, &ALL, &state, &path).unwrap();
    let names: Vec<String> = weight::open(&path).unwrap().into_keys().collect();
    let wanted = [
        "count",
        "kernel.col_var",
        "kernel.row_var",
        "matrix.col_var",
        "matrix.row_var",
        "vector.variance",
        "wide.col_var",
        "wide.row_var",
    ];
    assert_eq!(names, wanted);
    let read = optimizer.load(&weights, &ALL, &path).unwrap();
    assert_eq!(read.count.item::<f64>()?, 1.0);
    for (a, b) in read.slots.iter().flatten().zip(state.slots.iter().flatten()) {
        close("the state", a, b, 0.0);
    }
    let other = Adam::default().load(&weights, &ALL, &path).unwrap_err();
    let WeightsError::Mismatch { missing, unexpected, .. } = other else { panic!("{other}") };
    assert!(missing.contains(&"matrix.exp_avg".into()), "{missing:?}");
    assert!(unexpected.contains(&"matrix.row_var".into()), "{unexpected:?}");
    let twice = optimizer.save(&weights, &["a", "a", "b", "c"], &state, &path).unwrap_err();
    assert!(matches!(twice, WeightsError::Names(_)), "{twice}");
    Ok(())
}

#[test]
fn weights_of_modules_are_read_and_assigned() -> Result<(), Error> {
    use kiln::nn::{self, Linear, Module, Scope};
    let net = Linear::new(&Scope::root(), 2, 1);
    let (weights, x) = (net.parameters(), Tensor::from_slice(&[1, 2], &[1.0f32, 1.0])?);
    let run = (&net).compile();
    let mut new = nn::values(&weights);
    new[1] = Tensor::from_slice(&[1], &[4.0f32])?;
    let before = run.call(&x)?.item::<f64>()?;
    nn::assign(&weights, &new)?;
    let after = run.call(&x)?.item::<f64>()?;
    assert_eq!(run.programs(), 1);
    assert!((after - before).abs() > 1e-3, "{before} and {after}");
    // All or nothing.
    let wrong = [new[0].full_like(7.0), Tensor::scalar(1.0f32)?];
    let e = nn::assign(&weights, &wrong).unwrap_err().to_string();
    assert!(e.contains("bias is f32[], but f32[1] is expected"), "{e}");
    assert_eq!(run.call(&x)?.item::<f64>()?, after);
    let e = nn::assign(&weights, &new[..1]).unwrap_err().to_string();
    assert!(e.contains("1 values are given for 2 weights"), "{e}");
    Ok(())
}

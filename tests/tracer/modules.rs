//! `nn`: PyTorch's weights and results, and mismatched files.
use super::*;
use kiln::dialects::value::DType::*;
use kiln::nn::{self, Module, Parameter, Scope, WeightsError};

/// The model of `tests/models/nn.py`.
struct Model {
    embed: nn::Embedding,
    norm: nn::LayerNorm,
    attention: nn::Attention,
    rms: nn::RmsNorm,
    mlp: nn::Sequential,
    image: nn::Sequential,
}

impl Model {
    fn new() -> Model {
        let s = Scope::root();
        let first =
            Convolution { stride: [2, 1], padding: [1, 1], groups: 2, ..Default::default() };
        Model {
            embed: nn::Embedding::new(&s.child("embed"), 11, 8),
            norm: nn::LayerNorm::new(&s.child("norm"), &[8]),
            attention: nn::Attention::new(&s.child("attention"), 8, 2).causal(),
            rms: nn::RmsNorm::new(&s.child("rms"), &[8]),
            mlp: nn::Sequential::new(&s.child("mlp"))
                .layer(|s| nn::Linear::new(s, 8, 12))
                .apply(|x| x.gelu())
                .layer(|s| nn::Linear::without_bias(s, 12, 8)),
            image: nn::Sequential::new(&s.child("image"))
                .layer(|s| nn::Conv2d::new(s, 2, 4, [3, 3], first))
                .layer(|s| nn::BatchNorm::new(s, 4))
                .apply(|x| x.relu())
                .layer(|s| nn::Conv2d::without_bias(s, 4, 3, [1, 2], Convolution::default())),
        }
    }
    fn trace(&self) -> Result<Traced, TraceError> {
        kiln::trace_all(|g| {
            let ids = g.input("ids", I64, (g.dim("batch", 1..=8), g.dim("length", 1..=16)));
            let pixels = g.input("pixels", F32, (g.dim("images", 1..=8), 2, 6, 5));
            Ok(vec![self.forward(&ids), self.image.forward(&pixels)])
        })
    }
}

impl Module for Model {
    fn forward(&self, ids: &Tensor) -> Tensor {
        let x = self.embed.forward(ids);
        let x = &x + self.attention.forward(&self.norm.forward(&x));
        &x + self.mlp.forward(&self.rms.forward(&x))
    }
    fn parameters(&self) -> Vec<&Parameter> {
        let layers: [&dyn Module; 6] =
            [&self.embed, &self.norm, &self.attention, &self.rms, &self.mlp, &self.image];
        layers.iter().flat_map(|m| m.parameters()).collect()
    }
}

fn numbers(prefix: &str) -> Vec<value::Tensor> {
    tensors(&root().join("models/nn.numbers.safetensors"), prefix)
}

#[test]
fn weights_and_results_as_pytorch() {
    crate::watchdog::arm();
    let model = Model::new();
    model.load(root().join("models/nn.safetensors")).expect("the weights");
    let traced = model.trace().expect("a program");
    let wrong = differences(&traced.captured, &numbers("input"), &numbers("output"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    lower(&traced.captured);
    let wrong = differences(&traced.captured, &numbers("input"), &numbers("output"));
    assert!(wrong.is_empty(), "at prims: {}", wrong.join("\n"));
    let text = traced.module().op().print(PrintOptions::default());
    assert!(
        text.contains("@mlp.0.weight : tensor<12x8xf32> from \"nn.safetensors#mlp.0.weight\""),
        "{text}"
    );
    assert!(!text.contains("mutable"), "weights of a file are frozen");
}

#[test]
fn saved_weights_round_trip() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.safetensors");
    let (a, b) = (Model::new(), Model::new());
    let weight = a.mlp.parameters()[0];
    let other = value::Tensor::floats(F32, vec![12, 8], (0..96).map(f64::from).collect())
        .expect("a tensor");
    weight.set(&other).expect("it fits");
    a.save(&path).expect("saved");
    b.load(&path).expect("loaded");
    // Over the file from which the weights are memory-mapped.
    b.save(&path).expect("saved again");
    for (x, y) in a.parameters().iter().zip(b.parameters()) {
        assert_eq!(x.name(), y.name());
        assert_eq!(
            x.value().and_then(|v| v.read()),
            y.value().and_then(|v| v.read()),
            "{}",
            x.name()
        );
    }
    assert_eq!(b.mlp.parameters()[0].value().and_then(|v| v.read()), Ok(other));
    assert!(
        weight.set(&value::Tensor::floats(F32, vec![2], vec![0.0; 2]).expect("a tensor")).is_err()
    );
}

#[test]
fn initialised_weights_are_mutable_and_deterministic() {
    let (a, b) = (Model::new(), Model::new());
    let text = a.trace().expect("a program").module().op().print(PrintOptions::default());
    assert!(
        text.contains("mutable @mlp.0.weight : tensor<12x8xf32> from \"#mlp.0.weight\""),
        "{text}"
    );
    let values = |m: &Model| {
        m.parameters().iter().map(|p| p.value().and_then(|v| v.read())).collect::<Vec<_>>()
    };
    assert_eq!(values(&a), values(&b));
    let bound = 1.0 / 8f64.sqrt();
    let w = a.mlp.parameters()[0].value().and_then(|v| v.read()).expect("a value");
    let w = w.as_f().expect("floats");
    assert!(w.iter().all(|x| x.abs() <= bound) && w.iter().any(|x| x.abs() > bound / 2.0));
    let half = nn::Linear::new(&Scope::root().with_dtype(BF16), 2, 2);
    assert!(
        half.parameters()
            .iter()
            .all(|p| p.dtype() == BF16 && p.value().is_ok_and(|v| v.dtype == BF16))
    );
}

#[test]
fn all_mismatches_are_reported() {
    let s = Scope::root();
    let model = nn::Sequential::new(&s.child("mlp"))
        .layer(|s| nn::Linear::new(s, 8, 13))
        .apply(|x| x.relu())
        .layer(|s| nn::Linear::new(s, 12, 8))
        .layer(|s| nn::LayerNorm::new(s, &[8]));
    let e = model.load(root().join("models/nn.safetensors")).expect_err("another model");
    let WeightsError::Mismatch { missing, unexpected, misshapen, .. } = &e else { panic!("{e}") };
    assert_eq!(missing, &["mlp.2.bias", "mlp.3.weight", "mlp.3.bias"]);
    assert_eq!(misshapen.len(), 2);
    assert!(
        misshapen[0].contains("mlp.0.weight is f32[12, 8], but f32[13, 8] is expected"),
        "{misshapen:?}"
    );
    assert!(
        unexpected.contains(&"embed.weight".to_string())
            && !unexpected.contains(&"mlp.2.weight".to_string())
    );
    let text = e.to_string();
    assert!(
        text.contains("nn.safetensors does not fit: it lacks mlp.2.bias")
            && text.contains("nothing takes attention.in_proj_bias"),
        "{text}"
    );
    // Nothing was changed.
    assert!(model.parameters().iter().all(|p| p.value().is_ok_and(|v| !v.in_file())));
}

#[test]
fn files_that_cannot_be_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.safetensors");
    let layer = nn::Linear::new(&Scope::root(), 2, 2);
    let reason = |e: WeightsError| {
        if let WeightsError::File { reason, .. } = e { reason } else { panic!("{e}") }
    };
    assert!(reason(layer.load(&path).expect_err("no file")).contains("No such file"));
    assert!(reason(layer.load(folder.path()).expect_err("a folder")).contains("is a directory"));
    for bytes in [&b""[..], b"not a file", &[255; 64]] {
        std::fs::write(&path, bytes).expect("written");
        layer.load(&path).expect_err("no safetensors file");
    }
    layer.save(folder.path().join("no/such/folder.safetensors")).expect_err("no folder");
    let twice = nn::Linear::new(&Scope::root(), 2, 2);
    let both: Vec<_> = [layer.parameters(), twice.parameters()].concat();
    assert_eq!(
        nn::save(&both, &path),
        Err(WeightsError::Names(vec!["weight".into(), "bias".into()]))
    );
}

#[test]
fn errors_in_layers_have_the_users_location() {
    let line = line!() + 2;
    let model =
        nn::Sequential::new(&Scope::root()).layer(|s| nn::Linear::new(s, 5, 2)).apply(|x| x.relu());
    let mut call = 0;
    let r = kiln::trace_all(|g| {
        let x = g.input("x", F32, (3, 4));
        call = line!() + 1;
        let alone = nn::Linear::new(&Scope::root().child("b"), 6, 2).forward(&x);
        Ok(vec![model.forward(&x), alone])
    });
    let Err(TraceError::Ops(all)) = r else { panic!("it was traced") };
    let places: Vec<_> = all.iter().map(|e| (e.file.as_str(), e.line, e.op.as_str())).collect();
    assert_eq!(places, [(file!(), call, "linear"), (file!(), line, "linear")]);
}

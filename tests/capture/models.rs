//! Whole models at `graph` and `prims`, with their export sizes and with others.
use super::*;

fn check(archive: &str, numbers: &str, at_prims: bool) {
    crate::watchdog::arm();
    let c = Context::new();
    let folder = root().join("models");
    let captured = import(&c, &folder.join(format!("{archive}.pt2")));
    let file = folder.join(format!("{numbers}.safetensors"));
    let (inputs, want) = (tensors(&file, "input"), tensors(&file, "output"));
    assert!(!want.is_empty());
    let wrong = differences(&captured, &inputs, &want);
    assert!(
        wrong.is_empty(),
        "{archive} at graph: {}",
        wrong.join("\n").chars().take(2000).collect::<String>()
    );
    lower(&captured);
    if at_prims {
        let wrong = differences(&captured, &inputs, &want);
        assert!(
            wrong.is_empty(),
            "{archive} at prims: {}",
            wrong.join("\n").chars().take(2000).collect::<String>()
        );
    }
}

#[test]
fn mlp_as_pytorch() {
    check("mlp", "mlp", true);
    check("mlp.core", "mlp", true);
}

#[test]
fn lenet_as_pytorch() {
    check("lenet", "lenet", true);
    check("lenet.core", "lenet", true);
}

#[test]
fn elementwise_as_pytorch() {
    check("elementwise", "elementwise", true);
}

#[test]
fn gpt2_as_pytorch() {
    check("gpt2_tiny", "gpt2_tiny", true);
}

#[test]
fn bert_as_pytorch() {
    check("bert_tiny", "bert_tiny", true);
    check("bert_tiny.core", "bert_tiny", true);
}

#[test]
fn written_attention_as_pytorch() {
    check("written_attention", "written_attention", true);
    check("written_attention.bf16", "written_attention.bf16", true);
}

#[test]
fn convolutions_as_pytorch() {
    check("convolutions", "convolutions", true);
    check("convolutions.dynamic", "convolutions", true);
}

#[test]
fn gradients_as_pytorch() {
    check("gradients", "gradients", true);
}

#[test]
fn mobilenetv3_as_pytorch() {
    check("mobilenetv3_small", "mobilenetv3_small", true);
}

/// One archive serves all sizes that its symbols allow.
#[test]
fn other_sizes_than_exported() {
    for name in ["mlp", "lenet", "gpt2_tiny"] {
        check(name, &format!("{name}.other"), true);
    }
}

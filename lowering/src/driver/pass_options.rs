//! Pass options that depend on the target.
use crate::target::{Chip, Features, Target, cpu};

/// Pass options, by the pass's entry in the pipeline table.
pub type PassOptions = Vec<(&'static str, String)>;

/// The options of passes that depend on the target.
pub fn pass_options(target: &Target) -> PassOptions {
    match target {
        Target::Host(t) => cpu_options(t),
        Target::Cuda { chip, features } => chip_options(*chip, *features),
    }
}

fn cpu_options(target: &cpu::Target) -> PassOptions {
    let (bf16, bits) = (target.bf16(), target.vector_bits());
    vec![
        ("kiln-schedule", format!("bf16={bf16} vector-bits={bits}")),
        ("kiln-pack{mutable=true}", format!("pairs={}", bf16 != "widen")),
        ("kiln-fuse", "split-rows=false".into()),
        ("kiln-expand-math", format!("scalef={} rare-functions=true", bits == 512)),
    ]
}

/// The pass options that describe a GPU.
pub fn chip_options(chip: Chip, features: Features) -> PassOptions {
    let passes = [
        "kiln-raise-attention",
        "kiln-decompose{keep=kernels}",
        "kiln-merge-groups",
        "kiln-weight-gradients",
        "kiln-expose-padding",
        "kiln-space-to-depth",
        "kiln-pad-biases",
        "kiln-narrow-products",
        "kiln-pad-products",
        "kiln-split-products",
        "kiln-prologues",
        "kiln-online-reductions",
        "kiln-gpu-schedule",
        "kiln-gpu-module",
    ];
    let more =
        |pass: &str| if features.tf32 && pass == "kiln-gpu-schedule" { " tf32=true" } else { "" };
    let mut all: PassOptions =
        passes.map(|pass| (pass, format!("chip={}{}", chip.name(), more(pass)))).to_vec();
    if features.cufft {
        all.push(("kiln-fft-calls", "cufft=true".into()));
    }
    if features.fast_math {
        all.push(("kiln-gpu-math", "fast=true".into()));
    }
    all.push((
        "kiln-fuse",
        if chip == Chip::Sm90a {
            "pairs=true constants=true launch=4000 fold-transposes=true".into()
        } else {
            "fold-transposes=true".into()
        },
    ));
    all
}

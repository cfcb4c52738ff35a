//! Autotuned schedules, and cuBLASLt and cuDNN calls where available: correct, also as a graph
//! whose addresses change, and tuned once.
use super::*;
use crate::{
    compiled::graphs::against,
    gpu::{
        cudnn::{self, CONVOLUTIONS, Support},
        gemm::{self, GEMMS, table},
    },
    support::{functions, inputs},
};
use kiln::{
    dialects::{
        ir::{Context, Module},
        value::Tensor,
    },
    load,
    runtime::{
        cuda::{Mode, libraries},
        library_call::{CUBLASLT, CUDNN},
    },
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

pub static SUITE: Suite = Suite {
    name: "tuning",
    count: || 2 * (GEMMS.len() + CONVOLUTIONS.len()) as u64,
    label,
    check,
    whole: true,
    emulated: 8,
};

/// A matmul or convolution: name, module, a schedule that names its library, whether the program
/// has the call, and whether the library must support it.
struct One {
    name: &'static str,
    text: String,
    schedule: &'static str,
    library: &'static str,
    told: bool,
    surely: bool,
}

fn one(item: u64) -> One {
    let i = item as usize / 2;
    match GEMMS.get(i) {
        Some(p) => One {
            name: p.0,
            text: gemm::text(p),
            schedule: gemm::schedule(p.2),
            library: CUBLASLT,
            told: p.4,
            surely: p.4,
        },
        None => {
            let c = &CONVOLUTIONS[i - GEMMS.len()];
            let (told, surely) = (c.support != Support::Unsupported, c.support == Support::Always);
            One {
                name: c.name,
                text: cudnn::text(c),
                schedule: cudnn::schedule(c),
                library: CUDNN,
                told,
                surely,
            }
        }
    }
}

fn label(item: u64) -> String {
    let (one, tuned) = (one(item), item.is_multiple_of(2));
    format!(
        "{}, {}",
        one.name,
        if tuned { "measured".into() } else { format!("by {}", one.library) }
    )
}

fn check(item: u64) -> Outcome {
    let (one, measured) = (one(item), item.is_multiple_of(2));
    // Nothing runs without a GPU, and library calls do not depend on one.
    if ["cpu", "ptx"].contains(&device().as_str()) || !(measured || one.told) {
        return Outcome::Agrees;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (path, file) = (folder.path().join("m.mlir"), folder.path().join("table"));
    std::fs::write(&path, &one.text).expect("a file");
    let mut wrong = vec![];
    for mode in [Mode::Default, Mode::ReduceOverhead] {
        let mut options = Options {
            mode,
            cache: CachePolicy::Dir(folder.path().join("cache")),
            schedules: Some(file.clone()),
            ..options()
        };
        if measured {
            options = Options {
                max_autotune: true,
                autotune_budget: Duration::from_secs(24 * 3600),
                autotune_candidates: 4,
                ..options
            };
        } else {
            let model = load(&path).expect("a model");
            std::fs::write(&file, table(&model, &options, "sm_90a", one.schedule).to_string())
                .expect("a file");
        }
        let count = Arc::new(AtomicUsize::new(0));
        let told = count.clone();
        let made = load(&path).and_then(|m| {
            m.autotune_progress(move |_, total, _| told.store(total, Ordering::Relaxed))
                .compile(&options)
        });
        let exe = match made {
            Ok(exe) => exe,
            Err(e) => return failed(&e),
        };
        // The first mode has tuned for both.
        let expected = usize::from(measured && mode == Mode::Default);
        if count.load(Ordering::Relaxed) != expected {
            wrong.push(format!(
                "{mode:?}: {} kernels were measured, not {expected}",
                count.load(Ordering::Relaxed)
            ));
        }
        let Some(loaded) = exe.cuda() else { return Outcome::Wrong("is not on the card".into()) };
        let calls = usize::from(libraries::present(one.library));
        if !measured
            && (loaded.library_calls() > calls || one.surely && loaded.library_calls() < calls)
        {
            wrong.push(format!(
                "{mode:?}: {} library calls; {:?}",
                loaded.library_calls(),
                loaded.remarks()
            ));
        }
        let context = Context::new();
        let (module, _) = Module::parse(context.ctx(), one.text.as_bytes(), one.name)
            .unwrap_or_else(|e| panic!("{e}"));
        let call = |inputs: &[Tensor]| {
            let all: Vec<&Tensor> = inputs.iter().collect();
            // Twice: the second call replays a graph.
            (0..2)
                .map(|_| exe.call_values(&all).map_err(|e| e.to_string()))
                .collect::<Result<Vec<_>, _>>()
        };
        wrong.extend(
            against(&module, &inputs(functions(&module)[0], item), |_| Ok(&call))
                .err()
                .map(|e| format!("{mode:?}: {e}")),
        );
    }
    Outcome::of(wrong)
}

//! Schedules measured on the card, and products by cuBLASLt, where it is found: right, also as a graph whose addresses change, and measured once.
use super::*;
use crate::{
    compiled::graphs::against,
    gpu::gemm::{PRODUCTS, schedule, table, text},
    support::{functions, inputs},
};
use kiln::{
    dialects::{
        ir::{Context, Module},
        value::Tensor,
    },
    load,
    runtime::cuda::{Mode, cublaslt},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

pub static SUITE: Suite = Suite { name: "tuning", count: || 2 * PRODUCTS.len() as u64, label, check, whole: true };

fn label(item: u64) -> String {
    let (p, tuned) = (&PRODUCTS[item as usize / 2], item.is_multiple_of(2));
    format!("{}, {}", p.0, if tuned { "measured" } else { "by the library" })
}

fn check(item: u64) -> Outcome {
    let (p, measured) = (&PRODUCTS[item as usize / 2], item.is_multiple_of(2));
    // Nothing runs where there is no card, and a library's description is no matter of one.
    if ["cpu", "ptx"].contains(&device().as_str()) || !(measured || p.4) {
        return Outcome::Agrees;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (path, file) = (folder.path().join("m.mlir"), folder.path().join("table"));
    std::fs::write(&path, text(p)).expect("a file");
    let mut wrong = vec![];
    for mode in [Mode::Default, Mode::ReduceOverhead] {
        let mut options =
            Options { mode, cache: CachePolicy::Dir(folder.path().join("cache")), schedules: Some(file.clone()), ..options() };
        if measured {
            (options.max_autotune, options.autotune_budget) = (true, Duration::from_secs(8));
        } else {
            let model = load(&path).expect("a model");
            std::fs::write(&file, table(&model, &options, "sm_90a", schedule(p.2)).to_string()).expect("a file");
        }
        let count = Arc::new(AtomicUsize::new(0));
        let told = count.clone();
        let made = load(&path).and_then(|m| m.measuring(move |_, total, _| told.store(total, Ordering::Relaxed)).compile(&options));
        let exe = match made {
            Ok(exe) => exe,
            Err(e) => return failed(&e),
        };
        // The first mode has measured for both.
        let expected = usize::from(measured && mode == Mode::Default);
        if count.load(Ordering::Relaxed) != expected {
            wrong.push(format!("{mode:?}: {} kernels were measured, not {expected}", count.load(Ordering::Relaxed)));
        }
        let Some(loaded) = exe.cuda() else { return Outcome::Wrong("is not on the card".into()) };
        if !measured && loaded.library_calls() != usize::from(cublaslt::present()) {
            wrong.push(format!("{mode:?}: {} library calls; {:?}", loaded.library_calls(), loaded.remarks()));
        }
        let context = Context::new();
        let (module, _) = Module::parse(context.ctx(), text(p).as_bytes(), p.0).unwrap_or_else(|e| panic!("{e}"));
        let call = |inputs: &[Tensor]| {
            let all: Vec<&Tensor> = inputs.iter().collect();
            // Twice: the second time a graph is there already.
            (0..2).map(|_| exe.call_values(&all).map_err(|e| e.to_string())).collect::<Result<Vec<_>, _>>()
        };
        wrong.extend(against(&module, &inputs(functions(&module)[0], item), |_| Ok(&call)).err().map(|e| format!("{mode:?}: {e}")));
    }
    Outcome::of(wrong)
}

//! Split-K matmuls by clusters, against the interpreter.
use super::*;
use crate::{
    compiled::graphs::against,
    gpu::parts::{CASES, schedules, text},
    support::{functions, inputs},
};
use kiln::{
    dialects::{
        ir::{Context, Module},
        value::Tensor,
    },
    load,
};

pub static SUITE: Suite = Suite {
    name: "parts",
    count: || CASES.len() as u64,
    label: |item| CASES[item as usize].0.into(),
    check,
    whole: true,
    emulated: 1,
};

fn check(item: u64) -> Outcome {
    let case = &CASES[item as usize];
    let folder = tempfile::tempdir().expect("a folder");
    let (path, file) = (folder.path().join("m.mlir"), folder.path().join("table"));
    std::fs::write(&path, text(case)).expect("a file");
    std::fs::write(&file, schedules(case, &path, &options())).expect("a file");
    let exe = match load(&path)
        .and_then(|m| m.compile(&Options { schedules: Some(file), ..options() }))
    {
        Ok(exe) => exe,
        Err(e) => return failed(&e),
    };
    let context = Context::new();
    let (module, _) = Module::parse(context.ctx(), text(case).as_bytes(), case.0)
        .unwrap_or_else(|e| panic!("{e}"));
    // Twice: shared memory then holds the first call's data.
    let call = |inputs: &[Tensor]| {
        (0..2)
            .map(|_| exe.call_values(&inputs.iter().collect::<Vec<_>>()).map_err(|e| e.to_string()))
            .collect()
    };
    Outcome::of(
        against(&module, &inputs(functions(&module)[0], item), |_| Ok(&call))
            .err()
            .into_iter()
            .collect(),
    )
}

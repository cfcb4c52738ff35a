//! Empty axes give PyTorch's results: interpreted as written, interpreted decomposed, and compiled.
use super::*;
use crate::support::{cases, functions, inputs_of_sizes, run};
use kiln::{
    dialects::{interp::Mode, ir::Context, rules::Level, value::Data},
    lowering::{pipeline_text, run_pipeline},
    tolerance,
};
use std::collections::HashMap;

/// The results for no elements, static or symbolic: empty (`NONE`); zeros (`ZEROS`), as
/// `torch.softmax`, `torch.log_softmax` and `torch.nn.functional.scaled_dot_product_attention`;
/// -inf (`INFINITE`), as `torch.logsumexp`.
#[test]
fn empty_axes_as_pytorch() {
    let mut wrong = vec![];
    for case in cases(include_str!("empty.mlir")) {
        for n in [0, 1, 17] {
            wrong.extend(
                check(&case.text, n).into_iter().map(|e| format!("{}, {n}: {e}", case.name)),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check(text: &str, n: i64) -> Vec<String> {
    let c = Context::new();
    // The static variant.
    let text = text.replace("{n}", &n.to_string());
    let (module, _) = Module::parse(c.ctx(), text.as_bytes(), "tests/compiled/empty.mlir")
        .unwrap_or_else(|e| panic!("{e}\n{text}"));
    let given = inputs_of_sizes(functions(&module)[0], 3, &HashMap::from([("n".to_string(), n)]));
    let pipeline = pipeline_text(Level::Graph, Level::Prims, None).expect("a pipeline");
    let prims = module.duplicate();
    run_pipeline(&prims, &pipeline, &Default::default(), &|_, _, _| ())
        .unwrap_or_else(|e| panic!("{e}"));
    let interpreted =
        |m: &Module| run(m, functions(m)[0], Mode::Exact, &given).map_err(|e| e.to_string());
    let compiled = |threads| {
        native(&module.duplicate(), "f", &|g| Err(format!("@{g} has no value")))
            .and_then(|p| call(&p, &given, threads))
    };
    let want = match interpreted(&module) {
        Ok(want) => want,
        Err(e) => return vec![format!("interpreted: {e}")],
    };
    let said = text
        .lines()
        .filter_map(|l| l.trim().strip_prefix("// EMPTY: "))
        .flat_map(str::split_whitespace);
    let mut wrong = vec![];
    for (t, said) in want.iter().zip(said).filter(|_| n == 0) {
        let Data::F(v) = t.data() else { continue };
        let all = |x: f64| !v.is_empty() && v.iter().all(|y| *y == x);
        if !(said == "NONE" && v.is_empty()
            || said == "ZEROS" && all(0.0)
            || said == "INFINITE" && all(f64::NEG_INFINITY))
        {
            wrong.push(format!("{v:?} is not {said}"));
        }
    }
    for (how, have) in [
        ("decomposed", interpreted(&prims)),
        ("compiled", compiled(1)),
        ("on two threads", compiled(2)),
    ] {
        match have {
            Err(e) => wrong.push(format!("{how}: {e}")),
            Ok(have) => wrong.extend(have.iter().zip(&want).filter_map(|(h, w)| {
                match tolerance::compare(h, w) {
                    Ok(c) if c.ok => None,
                    Ok(c) => Some(format!("{how}: {c}")),
                    Err(e) => Some(format!("{how}: {e}")),
                }
            })),
        }
    }
    wrong
}

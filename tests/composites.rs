//! Every composite against its decomposition on random inputs, with static and dynamic types, in
//! f64 and rounded.
use crate::{support::*, tolerance};
use kiln::{
    dialects::{interp::Mode, ir::*, ops::OpKind, value::DType},
    lowering::{RunOptions, run_pipeline},
};
use std::collections::BTreeSet;

/// Arguments, results and body. `[n]` becomes `?` in the dynamic variant, `$T` is the dtype, `$W`
/// f32 for 16-bit floats and else the dtype, `$L` the dtype of a log-sum-exp.
const CASES: &str = include_str!("composites.txt");

const FLOATS: [DType; 6] =
    [DType::F8E4M3FN, DType::F8E5M2, DType::F64, DType::F32, DType::F16, DType::BF16];

struct Case {
    name: String,
    dtypes: Vec<DType>,
    /// Whether constants of the formula are inexact in some dtypes.
    inexact: bool,
    text: String,
}

fn read() -> Vec<Case> {
    let mut all = vec![];
    for block in CASES.split("\n\n").map(str::trim).filter(|b| !b.is_empty() && !b.starts_with('#'))
    {
        let (head, text) = block.split_once('\n').expect("a head line and a function");
        let mut words = head.split_whitespace();
        let name = words.next().unwrap().to_string();
        let words: Vec<&str> = words.collect();
        let dtypes: Vec<DType> = words.iter().filter_map(|w| DType::from_name(w)).collect();
        let dtypes = if dtypes.is_empty() { FLOATS.to_vec() } else { dtypes };
        all.push(Case {
            name,
            dtypes,
            inexact: words.contains(&"inexact"),
            text: text.to_string(),
        });
    }
    all
}

fn fill(text: &str, dtype: DType, dynamic: bool) -> String {
    let wide = if dtype.is_float() && dtype.bits() <= 16 { "f32" } else { dtype.name() };
    let parameter = if dtype.bits() == 16 { wide } else { dtype.name() };
    let text = text.replace("$T", dtype.name()).replace("$W", parameter).replace("$L", wide);
    let mut out = String::new();
    for (i, part) in text.split("tensor<").enumerate() {
        let Some((ty, rest)) = part.split_once('>').filter(|_| i > 0) else {
            out += part;
            continue;
        };
        let dims =
            ty.split('x').map(|d| match d.strip_prefix('[').and_then(|d| d.strip_suffix(']')) {
                Some(_) if dynamic => "?",
                Some(n) => n,
                None => d,
            });
        out += &format!("tensor<{}>{rest}", dims.collect::<Vec<_>>().join("x"));
    }
    out
}

#[test]
fn decompositions_equal_their_composites() {
    let (mut failures, mut seen, mut count) = (vec![], BTreeSet::new(), 0);
    for case in read() {
        for dtype in &case.dtypes {
            // Narrow dtypes are lowered as f16, so one variant is enough.
            for dynamic in if dtype.bits() == 8 { vec![true] } else { vec![false, true] } {
                count += 1;
                if let Err(e) = check(&case, *dtype, dynamic, &mut seen) {
                    failures.push(format!(
                        "{} {dtype}{}: {e}",
                        case.name,
                        if dynamic { " dynamic" } else { "" }
                    ));
                }
            }
        }
    }
    let missing: Vec<_> = OpKind::ALL
        .iter()
        .filter(|k| k.is_composite() && !seen.contains(*k))
        .map(|k| k.name())
        .collect();
    assert!(failures.is_empty(), "{} of {count} fail:\n{}", failures.len(), failures.join("\n"));
    assert!(missing.is_empty(), "no case of {missing:?}");
}

fn check(
    case: &Case,
    dtype: DType,
    dynamic: bool,
    seen: &mut BTreeSet<OpKind>,
) -> Result<(), String> {
    let context = Context::new();
    let parse = |text: &str| {
        Module::parse(context.ctx(), text.as_bytes(), "case")
            .map(|m| m.0)
            .map_err(|e| format!("{e}\n{text}"))
    };
    let fixed = parse(&fill(&case.text, dtype, false))?;
    let composite = parse(&fill(&case.text, dtype, dynamic))?;
    seen.extend(walk(composite.op()).into_iter().filter_map(Op::kind));
    let decomposed = composite.duplicate();
    let pipeline = "builtin.module(kiln-decompose{keep=})";
    run_pipeline(&decomposed, pipeline, &RunOptions::default(), &|_, _, _| ())
        .map_err(|e| e.to_string())?;
    if let Some(op) =
        walk(decomposed.op()).into_iter().find(|o| o.kind().is_some_and(OpKind::is_composite))
    {
        return Err(format!("is still there: {op}"));
    }
    let bound =
        if case.inexact && dtype != DType::F64 { tolerance::CONSTANTS } else { tolerance::EXACT };
    for seed in 0..2 {
        let inputs = inputs(functions(&fixed)[0], seed);
        let of = |m: &Module, mode| {
            run(m, functions(m)[0], mode, &inputs)
                .map_err(|e| format!("seed {seed}: {e}\n{}", m.op()))
        };
        let exact = of(&composite, Mode::Exact)?;
        let (reference, found) = (of(&composite, Mode::Rounded)?, of(&decomposed, Mode::Rounded)?);
        for (i, (found, exact)) in of(&decomposed, Mode::Exact)?.iter().zip(&exact).enumerate() {
            let error = relative_error(found, exact);
            if error > bound {
                return Err(format!(
                    "seed {seed}: result {i} is {error:e} off\n{found:?}\n{exact:?}\n{}",
                    decomposed.op()
                ));
            }
        }
        for (i, ((found, reference), exact)) in found.iter().zip(&reference).zip(&exact).enumerate()
        {
            tolerance::compare(found, reference, exact)
                .map_err(|e| format!("seed {seed}: rounded result {i} {e}\n{}", decomposed.op()))?;
        }
    }
    Ok(())
}

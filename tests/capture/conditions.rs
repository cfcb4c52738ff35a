//! Size conditions of an export, assertions or guards, are checked before a call, compiled or
//! interpreted.
use super::*;
use crate::compiled::{call, native};

/// Sizes of both inputs, and the message of the violated condition.
const CASES: &[([usize; 3], &str, &str)] = &[
    ([4, 8, 16], "", ""),
    ([38, 3, 5], "", ""),
    ([8, 20, 20], "", ""),
    ([5, 8, 16], "Eq(Mod(s77, 2), 0)", "(L['x'].size()[0] % 2) == 0"),
    ([6, 8, 16], "Ne(s77, 6)", "L['x'].size()[0] != 6"),
    (
        [8, 20, 19],
        "s27*s77 <= 3*s17 + 100",
        "L['x'].size()[1]*L['x'].size()[0] <= 100 + 3*L['y'].size()[0]",
    ),
    ([40, 2, 16], "39", "39"),
];

fn check(file: &str, words: impl Fn(&(&'static str, &'static str)) -> &'static str, place: &str) {
    crate::watchdog::arm();
    let c = Context::new();
    let captured = import(&c, &root().join(format!("capture/{file}.pt2")));
    let compiled = native(&captured.module.duplicate(), "main", &|_| Err("no weights".into()))
        .expect("a program");
    for (sizes, asserted, guarded) in CASES {
        let ones = |shape: &[usize]| {
            Tensor::new(
                DType::F32,
                shape.to_vec(),
                kiln::dialects::value::Data::F(vec![1.0; shape.iter().product()]),
            )
        };
        let inputs = [ones(&sizes[..2]).expect("a tensor"), ones(&sizes[2..]).expect("a tensor")];
        let ran = Interpreter::new(Mode::Exact)
            .run(captured.module.op(), "main", &inputs)
            .map_err(|e| e.to_string());
        let called = call(&compiled, &inputs, 1);
        let words = words(&(asserted, guarded));
        if words.is_empty() {
            assert_eq!(ran, called, "{file} {sizes:?}");
            assert_eq!(
                called.expect("results")[0].as_f().expect("floats")[0],
                (sizes[1] + sizes[2]) as f64
            );
        } else {
            for said in [ran, called] {
                let said = said.expect_err(&format!("{file} {sizes:?}"));
                assert!(
                    said.contains(words) && (words == "39" || said.contains(place)),
                    "{file} {sizes:?}: {said}"
                );
            }
        }
    }
}

#[test]
fn assertions_are_checked() {
    check("conditions", |w| w.0, "gen_conditions.py:10");
}

#[test]
fn guards_are_checked() {
    check("guards", |w| w.1, "a guard of the export");
}

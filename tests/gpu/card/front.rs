//! The functions of `tests/front/suite.rs` on the GPU: static sizes, symbols, and a value read
//! midway.
use super::*;
use crate::front::suite;

pub static SUITE: Suite = Suite {
    name: "front",
    count: || suite::all().count() as u64,
    label,
    check,
    whole: false,
    emulated: 1,
};

fn label(item: u64) -> String {
    suite::all().nth(item as usize).map_or(String::new(), |(name, ..)| name.to_string())
}

fn check(item: u64) -> Outcome {
    let case = suite::all().nth(item as usize).expect("a case");
    let wrong = suite::check_on(case, &device());
    match wrong.iter().all(|e| e.contains("has no compiled form")) {
        true if !wrong.is_empty() => Outcome::Refused(wrong.join("\n")),
        _ => Outcome::of(wrong),
    }
}

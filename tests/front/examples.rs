//! The examples, as `cargo run --example` runs them.
#[allow(dead_code)]
#[path = "../../examples/custom_backend.rs"]
mod custom_backend;
#[allow(dead_code)]
#[path = "../../examples/dynamic.rs"]
mod dynamic;
#[allow(dead_code)]
#[path = "../../examples/graph_break.rs"]
mod graph_break;
#[allow(dead_code)]
#[path = "../../examples/quickstart.rs"]
mod quickstart;
#[allow(dead_code)]
#[path = "../../examples/serve.rs"]
mod serve;

use super::numbers;

#[test]
fn quickstart_normalises() {
    crate::watchdog::arm();
    let y = numbers(&quickstart::run().expect("a result"));
    let root = 1.5f64.sqrt();
    assert!((y[0] + root).abs() < 1e-4 && y[1].abs() < 1e-6 && (y[3..].iter().sum::<f64>()).abs() < 1e-5, "{y:?}");
}

#[test]
fn dynamic_makes_two_programs_or_one() {
    crate::watchdog::arm();
    let text = dynamic::run().expect("a text");
    for part in ["arg0: f32[8, 4]", "arg0: f32[s0, 4]", "it was 8, now it is 16", "marked: 1 program", "in 2..=1024"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}

#[test]
fn a_graph_break_is_right_and_said() {
    crate::watchdog::arm();
    let text = graph_break::run().expect("a text");
    assert!(text.starts_with("[2, 4] [-2, -3]\n[2, 4] [-2, -3]\n"), "{text}");
    let line = include_str!("../../examples/graph_break.rs").lines().position(|l| l.contains("item::<f64>")).expect("a line") + 1;
    assert!(text.contains(&format!("graph_break.rs:{line}:")) && text.contains("fullgraph wants one graph"), "{text}");
}

#[test]
fn a_backend_of_ones_own() {
    crate::watchdog::arm();
    let text = custom_backend::run().expect("a text");
    assert!(text.starts_with("[0, 0.5, 2]\n") && text.contains("a relu only, not"), "{text}");
}

#[test]
fn serving_makes_one_program() {
    crate::watchdog::arm();
    assert_eq!(serve::run(8, 50).expect("a text"), "400 requests by 1 program");
}

//! The examples, as `cargo run --example` runs them.
#[allow(dead_code)]
#[path = "../../examples/attribute.rs"]
mod attribute;
#[allow(dead_code)]
#[path = "../../examples/custom_backend.rs"]
mod custom_backend;
#[allow(dead_code)]
#[path = "../../examples/custom_op.rs"]
mod custom_op;
#[allow(dead_code)]
#[path = "../../examples/custom_pass.rs"]
mod custom_pass;
#[allow(dead_code)]
#[path = "../../examples/digits.rs"]
mod digits;
#[allow(dead_code)]
#[path = "../../examples/dynamic.rs"]
mod dynamic;
#[allow(dead_code)]
#[path = "../../examples/embed_in_framework.rs"]
mod embed_in_framework;
#[allow(dead_code)]
#[path = "../../examples/generate.rs"]
mod generate;
#[allow(dead_code)]
#[path = "../../examples/gpt.rs"]
mod gpt;
#[allow(dead_code)]
#[path = "../../examples/graph_break.rs"]
mod graph_break;
#[allow(dead_code)]
#[path = "../../examples/load_pt2.rs"]
mod load_pt2;
#[allow(dead_code)]
#[path = "../../examples/melior.rs"]
mod melior;
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
    assert!(
        (y[0] + root).abs() < 1e-4
            && y[1].abs() < 1e-6
            && (y[3..].iter().sum::<f64>()).abs() < 1e-5,
        "{y:?}"
    );
}

#[test]
fn an_archive_is_loaded_and_called_with_arrays() {
    crate::watchdog::arm();
    let text = load_pt2::run("tests/models/mlp.pt2").expect("a text");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("argument x: f32[") && lines[0].ends_with(", 64]"), "{text}");
    assert!(lines[1].starts_with("result output_0: f32["), "{text}");
    assert!(lines[2].starts_with("[8, 10], the first element "), "{text}");
    let e = load_pt2::run("Cargo.toml").expect_err("no model").to_string();
    assert!(e.starts_with("Cargo.toml: is no .pt2 archive, no .kpkg package and no MLIR"), "{e}");
}

#[test]
fn dynamic_makes_two_programs_or_one() {
    crate::watchdog::arm();
    let text = dynamic::run().expect("a text");
    for part in [
        "arg0: f32[8, 4]",
        "arg0: f32[s0, 4]",
        "it was 8, now it is 16",
        "marked: 1 program",
        "in 2..=1024",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}

#[test]
fn a_graph_break_is_correct_and_reported() {
    crate::watchdog::arm();
    let text = graph_break::run().expect("a text");
    assert!(text.starts_with("[2, 4] [-2, -3]\n[2, 4] [-2, -3]\n"), "{text}");
    let line = include_str!("../../examples/graph_break.rs")
        .lines()
        .position(|l| l.contains("item::<f64>"))
        .expect("a line")
        + 1;
    assert!(
        text.contains(&format!("graph_break.rs:{line}:"))
            && text.contains("fullgraph wants one graph"),
        "{text}"
    );
}

#[test]
fn custom_backend_example() {
    crate::watchdog::arm();
    let text = custom_backend::run().expect("a text");
    assert!(text.starts_with("[0, 0.5, 2]\n") && text.contains("a relu only, not"), "{text}");
}

#[test]
fn serving_makes_one_program() {
    crate::watchdog::arm();
    assert_eq!(serve::run(8, 50).expect("a text"), "400 requests by 1 program");
}

#[test]
fn an_attribute_compiles_a_function() {
    crate::watchdog::arm();
    assert_eq!(attribute::run().expect("a text"), "[100, 200, 300]\n[400, 1000]");
}

#[test]
fn custom_op_example() {
    crate::watchdog::arm();
    let text = custom_op::run().expect("a text");
    // Counts 2, 3, 2 and 0, minus 2.
    assert!(
        text.starts_with("[0, 0.731")
            && text.contains("\nkernels: rem select; convert sub neg exp"),
        "{text}"
    );
}

#[test]
fn custom_pass_example() {
    crate::watchdog::arm();
    let text = custom_pass::run().expect("a text");
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].contains("div") && lines[1].contains("mul") && !lines[1].contains("div"),
        "{text}"
    );
    assert!(lines[2].contains("mul") && !lines[2].contains("div"), "{text}");
    assert!(lines.iter().all(|l| l.contains("[0.3333, 0.9061]")), "{text}");
    assert!(
        lines[0].ends_with(" 0 runs")
            && lines[1].ends_with(" 1 runs")
            && !lines[2].ends_with(" 0 runs"),
        "{text}"
    );
}

#[test]
fn a_framework_builds_ir() {
    crate::watchdog::arm();
    assert_eq!(embed_in_framework::run().expect("a text"), "[0.0, 0.0]\n[0.0, 0.0, 3.5, 1.5]");
}

#[test]
fn a_graph_and_a_pass_of_meliors_run() {
    crate::watchdog::arm();
    let text = melior::run().expect("a result");
    let lines: Vec<&str> = text.lines().collect();
    // Exact sums: -(-(x + y)) rounds once, with the pass and without it.
    let numbers = "[1.5, 0.0, 3.25, 5.0]";
    assert_eq!(
        lines,
        [
            format!("{numbers}, 0 runs"),
            format!("{numbers}, 1 runs"),
            "returns the result of kiln.add".into(),
            "1 function".into()
        ]
    );
}

#[test]
fn a_gpt_learns_to_write() {
    crate::watchdog::arm();
    let (text, losses) = gpt::run("cpu", 40, 20).expect("a text");
    // Of 60 characters each is as likely as the others at first: ln 60 = 4.1.
    assert!((3.8..5.0).contains(&losses[0]) && losses[39] < 3.2, "{losses:?}");
    assert!(text.contains("step 40: loss") && text.contains("From fairest creatures"), "{text}");
}

#[test]
fn digits_are_learnt() {
    crate::watchdog::arm();
    let (text, right) = digits::run(4).expect("a text");
    let losses: Vec<f64> =
        text.lines().filter_map(|l| l.split_once("loss ")?.1.parse().ok()).collect();
    assert!(losses.len() == 4 && losses.is_sorted_by(|a, b| a > b) && right > 90.0, "{text}");
}

#[test]
fn a_decoder_generates_text() {
    use clap::Parser;
    crate::watchdog::arm();
    let run = |more: &[&str]| {
        let mut given = vec!["generate", "--tokens", "12"];
        given.extend(more);
        let folder = crate::support::repository().join("examples/generate");
        let mut a = generate::Arguments::parse_from(given);
        (a.model, a.tokenizer) = (folder.join("model.pt2"), folder.join("tokenizer.json"));
        let mut text = vec![];
        let report = generate::run(&a, &mut text).expect("a text");
        assert_eq!(report.generated.len(), 12, "{report}");
        String::from_utf8(text).expect("UTF-8")
    };
    let text = run(&["--prompt", "Shall I compare thee"]);
    assert!(text.starts_with("Shall I compare thee to a"), "{text}");
    let drawn = |seed: &str| run(&["--temperature", "2", "--top-k", "40", "--seed", seed]);
    assert_eq!(drawn("1"), drawn("1"));
    assert_ne!(drawn("1"), drawn("2"));
}

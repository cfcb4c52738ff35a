//! `--verify-diagnostics`.
use super::*;

fn check(text: &str, more: &[&str]) -> Finished {
    pipe(&[&["--verify-diagnostics"], more].concat(), text)
}

#[test]
fn expected_diagnostics_pass_silently() {
    let done = run(&[&input("diagnostics.mlir"), "--split-input-file", "--verify-diagnostics"]);
    assert_eq!((done.code(), done.text(), done.stderr.as_str()), (0, "", ""));
    let done =
        run(&[&input("pass_diagnostics.mlir"), "--verify-diagnostics", "--kiln-verify-level"]);
    assert_eq!((done.code(), done.text(), done.stderr.as_str()), (0, "", ""));
}

#[test]
fn messages_lines_and_kinds_must_agree() {
    let op = |comment: &str| {
        format!(
            "func.func @f() {{\n  %0 = kiln.sym @n {{min = 7, max = 3}}{comment}\n  return\n}}\n"
        )
    };
    let good = op(" // expected-error {{has an empty range}}");
    assert_eq!(check(&good, &[]).code(), 0);
    let cases = [
        ("", "<stdin>:2: error: unexpected error: 'kiln.sym' op has an empty range [7, 3]"),
        (
            " // expected-error {{something else}}",
            "<stdin>:2: error: expected error \"something else\" was not produced",
        ),
        (
            " // expected-warning {{has an empty range}}",
            "<stdin>:2: error: expected warning \"has an empty range\" was not produced",
        ),
        (
            " // expected-error @+1 {{has an empty range}}",
            "<stdin>:2: error: expected error \"has an empty range\" at line 3 was not produced",
        ),
        (" // expected-error-re {{range {{[0-9]+}} to}}", "was not produced"),
        (
            "\n // expected-error @above {{has an empty range}}\n // expected-error @above {{has an empty range}}",
            "<stdin>:4: error: expected error",
        ),
        (
            " // expected-error@unknown {{has an empty range}}",
            "at an unknown location was not produced",
        ),
    ];
    for (comment, complaint) in cases {
        let done = check(&op(comment), &[]);
        assert_eq!(done.code(), 1, "{comment}\n{}", done.stderr);
        assert!(done.stderr.contains(complaint), "{complaint:?} is not in\n{}", done.stderr);
        assert!(done.text().is_empty());
    }
}

#[test]
fn lines_are_those_of_the_whole_file() {
    let text = "func.func @a() { return }\n// -----\n\nfunc.func @b() {\n  return %x : f32\n}\n";
    let done = check(text, &["--split-input-file"]);
    assert_eq!(done.code(), 1);
    assert!(
        done.stderr.contains("<stdin>:5: error: unexpected error: use of undeclared"),
        "{}",
        done.stderr
    );
    let done = pipe(&["--split-input-file"], text);
    assert!(
        done.stderr.contains("<stdin>:5:10: error: use of undeclared")
            && done.stderr.contains("\n         ^"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_passing_file_that_expects_an_error_fails() {
    let done = check("func.func @f() { return } // expected-error {{no such thing}}\n", &["--cse"]);
    assert_eq!(done.code(), 1);
    assert!(
        done.stderr.contains("expected error \"no such thing\" was not produced"),
        "{}",
        done.stderr
    );
    assert_eq!(check("func.func @f() { return }\n// expected-error-re {{{{(}}}}\n", &[]).code(), 2);
}

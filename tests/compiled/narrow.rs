//! Narrow elements computed from wider ones, with row tails of one element, against the
//! interpreter.
use super::*;
use crate::support::{functions, inputs, run};
use kiln::dialects::{interp::Mode, ir::Context};

/// Bytes after a row's last element, here a border, are not overwritten.
#[test]
fn row_tails_of_one_element() {
    let text = |from: &str, to: &str, n: usize| {
        let (x, y) = (format!("tensor<2x{n}x{from}>"), format!("tensor<2x{n}x{to}>"));
        format!(
            "func.func @main(%x: {x}) -> tensor<3x{}x{to}> {{\n  %0 = kiln.convert %x : {x} to {to}\n  %v = kiln.splat [], 7 : {to}\n  \
             %1 = kiln.pad %0, %v low = [0, 0] high = [1, 1] : {y}, tensor<{to}>\n  return %1 : tensor<3x{}x{to}>\n}}\n",
            n + 1,
            n + 1
        )
    };
    for (from, to) in [
        ("i64", "ui8"),
        ("i64", "i8"),
        ("i64", "i16"),
        ("i64", "i32"),
        ("i32", "i8"),
        ("i32", "i16"),
        ("i16", "i8"),
    ] {
        for n in [1, 9, 17, 33] {
            let c = Context::new();
            let (module, _) = Module::parse(c.ctx(), text(from, to, n).as_bytes(), "narrow.mlir")
                .expect("it parses");
            let given = inputs(functions(&module)[0], 1);
            let want = run(&module, functions(&module)[0], Mode::Exact, &given).expect("it runs");
            let program = native(&module, "main", &|g| Err(format!("@{g} has no value")))
                .expect("it compiles");
            assert_eq!(
                call(&program, &given, 1).expect("it is called"),
                want,
                "{from} to {to}, {n}"
            );
        }
    }
}

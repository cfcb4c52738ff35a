//! Transposes in blocks of vector registers, against the interpreter.
use super::*;
use crate::support::{functions, inputs, relative_error, run};
use kiln::{
    dialects::{interp::Mode, ir::Context},
    tolerance,
};

/// A transpose with another operand, and one into a padded tensor.
fn transposes(rows: usize, columns: usize) -> String {
    let (x, y) = (format!("tensor<{rows}x{columns}xf32>"), format!("tensor<{columns}x{rows}xf32>"));
    let bordered = format!("tensor<{}x{}xf32>", columns + 3, rows + 1);
    format!(
        "func.func @main(%x: {x}, %y: {y}) -> ({y}, {bordered}) {{\n  %0 = kiln.transpose %x permutation = [1, 0] : {x}\n  %1 = kiln.add %0, %y : {y}\n  \
         %v = kiln.splat [], 7.0 : f32\n  %2 = kiln.pad %0, %v low = [1, 0] high = [2, 1] : {y}, tensor<f32>\n  return %1, %2 : {y}, {bordered}\n}}\n"
    )
}

fn check(rows: usize, columns: usize, target: &Target) -> Result<(), String> {
    let c = Context::new();
    let (module, _) = Module::parse(c.ctx(), transposes(rows, columns).as_bytes(), "turned.mlir")
        .map_err(|e| e.to_string())?;
    let given = inputs(functions(&module)[0], 1);
    let want =
        run(&module, functions(&module)[0], Mode::Exact, &given).map_err(|e| e.to_string())?;
    let program =
        native_for(&module, "main", &|g| Err(format!("@{g} has no value")), target.clone())?;
    for threads in [1, 2] {
        for (i, (have, want)) in call(&program, &given, threads)?.iter().zip(&want).enumerate() {
            let error = relative_error(have, want);
            if error > tolerance::for_dtype(want.dtype()) || error.is_nan() {
                return Err(format!("result {i}, {threads} threads: off by {error:e}"));
            }
        }
    }
    Ok(())
}

#[test]
fn transposes_as_interpreted() {
    let mut targets = vec![Target::host().expect("this machine")];
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        targets.push(Target::parse("x86_64:haswell").expect("a processor"));
    }
    let mut wrong = vec![];
    for target in &targets {
        for (rows, columns) in
            [(16, 16), (5, 40), (16, 15), (33, 17), (64, 56), (40, 150), (100, 31)]
        {
            wrong.extend(
                check(rows, columns, target).err().map(|e| format!("{rows} by {columns}: {e}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

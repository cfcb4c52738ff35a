//! Interpreted MLIR programs: control flow and attention against PyTorch (cases.json, by
//! gen_cases.py), symbols, globals, calls, errors.
use crate::{reference::tensor, support::*, tolerance};
use kiln::dialects::{
    interp::{Interpreter, Mode},
    ir::*,
    value::{DType, Tensor},
};
use serde_json::Value as Json;
use std::collections::BTreeSet;

#[test]
fn programs_agree_with_pytorch() {
    let all = cases(include_str!("programs.mlir"));
    let runs: Vec<Json> = serde_json::from_str(include_str!("cases.json")).unwrap();
    let mut seen = BTreeSet::new();
    for case in &runs {
        let name = case["name"].as_str().unwrap();
        seen.insert(name);
        let program = all.iter().find(|p| p.name == name).unwrap();
        let context = Context::new();
        let (module, _) =
            Module::parse(context.ctx(), program.text.as_bytes(), "programs.mlir").unwrap();
        let list = |key: &str| case[key].as_array().unwrap().iter().map(tensor).collect::<Vec<_>>();
        let results = run(&module, functions(&module)[0], Mode::Exact, &list("in")).unwrap();
        assert_eq!(results.len(), list("out").len(), "{name}");
        for (i, (r, e)) in results.iter().zip(&list("out")).enumerate() {
            assert!(
                relative_error(r, e) < tolerance::EXACT,
                "{name}, result {i}: {r:?}, PyTorch {e:?}"
            );
        }
    }
    assert_eq!(seen.len(), all.len(), "programs with results: {seen:?}");
}

fn floats(shape: &[usize], v: &[f64]) -> Tensor {
    Tensor::floats(DType::F32, shape.to_vec(), v.to_vec()).unwrap()
}

/// Runs `@f` of a module.
fn outcome(text: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let context = Context::new();
    let (module, _) =
        Module::parse(context.ctx(), text.as_bytes(), "model.mlir").map_err(|e| e.to_string())?;
    run(&module, module.find("f").unwrap(), Mode::Rounded, inputs).map_err(|e| e.to_string())
}

fn refused(text: &str, inputs: &[Tensor], part: &str) {
    let error = outcome(text, inputs).unwrap_err();
    assert!(error.contains(part), "{error:?} lacks {part:?}");
}

const SYMBOLS: &str = "module {
  func.func @f(%x: tensor<?x?xf32>, %y: tensor<?xf32>) -> tensor<?xi64> {
    %s = kiln.sym @s {min = 2 : i64, max = 8 : i64, divisor = 2 : i64}
    %t = kiln.sym @t
    %n = kiln.sym_expr floordiv %s, %t
    kiln.bind_shape %x, [%s, %t] : tensor<?x?xf32>
    kiln.bind_shape %y, [%s] : tensor<?xf32>
    %0 = kiln.iota [%n] axis = 0 : i64
    return %0 : tensor<?xi64>
  }
}";

#[test]
fn inputs_bind_symbols() {
    let run = |s, t, y| {
        outcome(SYMBOLS, &[floats(&[s, t], &vec![0.0; s * t]), floats(&[y], &vec![0.0; y])])
    };
    assert_eq!(run(6, 2, 6).unwrap()[0].as_i().unwrap(), [0, 1, 2]);
    for (sizes, part) in [
        (
            (6, 2, 4),
            "model.mlir:7:5: 'kiln.bind_shape' binds @s to 4, but another input binds it to 6",
        ),
        ((10, 2, 10), "has @s = 10 outside of [2, 8]"),
        ((0, 2, 0), "has @s = 0 outside of [2, 8]"),
        ((5, 2, 5), "has @s = 5, which 2 does not divide"),
        ((4, 0, 4), "model.mlir:5:10: 'kiln.sym_expr' has no value: floordiv of 4 and 0"),
    ] {
        let error = run(sizes.0, sizes.1, sizes.2).unwrap_err();
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
    let unbound = "func.func @f() -> tensor<?xi64> {
      %s = kiln.sym @s
      %0 = kiln.iota [%s] axis = 0 : i64
      return %0 : tensor<?xi64>
    }";
    refused(unbound, &[], "has unbound symbol @s");
}

#[test]
fn bound_shapes_and_types_are_checked() {
    let fact = "module {
      func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
        %0 = kiln.concat %x, %x axis = 0 : tensor<?xf32>, tensor<?xf32>
        kiln.bind_shape %0, [5] : tensor<?xf32>
        return %0 : tensor<?xf32>
      }
    }";
    refused(
        fact,
        &[floats(&[2], &[1.0, 2.0])],
        "model.mlir:4:9: 'kiln.bind_shape' states size 5 of dimension 0, which has size 4",
    );
    let plain =
        "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {\n  return %x : tensor<2xf32>\n}";
    refused(plain, &[floats(&[3], &[0.0; 3])], "input 0 is f32 [3], which is not tensor<2xf32>");
    refused(plain, &[], "@f takes 1 input, but 0 are given");
    let size = "module {
      func.func @f(%x: tensor<2xf32>, %i: tensor<i64>) -> tensor<f32> {
        %0 = kiln.gather %x[%i] dims = [0] : tensor<2xf32>[tensor<i64>]
        return %0 : tensor<f32>
      }
    }";
    let at = Tensor::scalar_i(DType::I64, 2).unwrap();
    refused(
        size,
        &[floats(&[2], &[0.0; 2]), at],
        "model.mlir:3:14: 'kiln.gather' index 2 is out of range for dimension 0 of size 2",
    );
}

#[test]
fn errors_have_source_locations() {
    let text = "module {
      func.func @f(%x: tensor<i32>) -> tensor<i32> {
        %0 = kiln.sub %x, %x : tensor<i32>
        %1 = kiln.div %x, %0 : tensor<i32> loc(callsite(\"normalise\"(\"net.py\":12:3) at \"train.py\":40:1))
        return %1 : tensor<i32>
      }
    }";
    let error = outcome(text, &[Tensor::scalar_i(DType::I32, 7).unwrap()]).unwrap_err();
    assert_eq!(
        error,
        "\"normalise\" <- net.py:12:3 <- train.py:40:1: 'kiln.div' Div of 7 by 0 (element 0)"
    );
    let endless = "module {
      func.func @f(%x: tensor<i1>) -> tensor<i1> {
        %0 = kiln.while(%x) : (tensor<i1>) -> (tensor<i1>) {
        ^bb0(%a: tensor<i1>):
          kiln.yield %a : tensor<i1>
        } do {
        ^bb0(%a: tensor<i1>):
          kiln.yield %a : tensor<i1>
        }
        return %0 : tensor<i1>
      }
    }";
    refused(
        endless,
        &[Tensor::scalar_i(DType::I1, 1).unwrap()],
        "model.mlir:3:14: 'kiln.while' ran 1000 times without ending",
    );
}

#[test]
fn external_globals_and_calls() {
    let text = "module {
      kiln.global @w : tensor<2xf32> from \"layer/w\"
      kiln.global @one : tensor<2xf32> = dense<1.0> : tensor<2xf32>
      func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
        %0 = kiln.custom_call \"mine.scale\"(%x) config {by = 2 : i64} : (tensor<2xf32>) -> tensor<2xf32>
        return %0 : tensor<2xf32>
      }
      func.func @f() -> tensor<2xf32> {
        %w = kiln.get_global @w : tensor<2xf32>
        %1 = kiln.get_global @one : tensor<2xf32>
        %2 = kiln.add %w, %1 : tensor<2xf32>
        %3 = func.call @twice(%2) : (tensor<2xf32>) -> tensor<2xf32>
        return %3 : tensor<2xf32>
      }
    }";
    let context = Context::new();
    let (module, _) = Module::parse(context.ctx(), text.as_bytes(), "model.mlir").unwrap();
    let weights = |name: &str, source: &str| {
        assert_eq!((name, source), ("w", "layer/w"));
        Ok(floats(&[2], &[3.0, 4.0]))
    };
    let mut interpreter =
        Interpreter { globals: &weights, max_iterations: 1, ..Interpreter::new(Mode::Rounded) };
    let error = interpreter.run(module.op(), "f", &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "model.mlir:5:14: 'kiln.custom_call' calls 'mine.scale', which is not registered"
    );
    let scale = |inputs: &[std::rc::Rc<Tensor>], config: Option<Attr>| {
        let by =
            config.and_then(|c| c.entry("by")).and_then(Attr::as_i64).ok_or("has no 'by'")? as f64;
        Ok(vec![floats(&[2], &inputs[0].as_f()?.iter().map(|x| x * by).collect::<Vec<_>>())])
    };
    interpreter.custom_calls.insert("mine.scale".into(), Box::new(scale));
    assert_eq!(interpreter.run(module.op(), "f", &[]).unwrap(), [floats(&[2], &[8.0, 10.0])]);
    let without = Interpreter::new(Mode::Rounded);
    let error = without.run(module.op(), "f", &[]).unwrap_err();
    assert!(error.to_string().ends_with("has no value for @w from \"layer/w\""), "{error}");
    assert!(
        without.run(module.op(), "g", &[]).unwrap_err().to_string().contains("has no function @g")
    );
}

#[test]
fn only_rounded_mode_rounds() {
    let text = "func.func @f(%x: tensor<f16>) -> tensor<f16> {
      %0 = kiln.add %x, %x : tensor<f16>
      %1 = kiln.exp %0 : tensor<f16>
      return %1 : tensor<f16>
    }";
    let context = Context::new();
    let (module, _) = Module::parse(context.ctx(), text.as_bytes(), "model.mlir").unwrap();
    let x = Tensor::scalar_f(DType::F16, 0.25).unwrap();
    let of = |mode| {
        run(&module, functions(&module)[0], mode, std::slice::from_ref(&x)).unwrap()[0]
            .as_f()
            .unwrap()[0]
    };
    assert_eq!(of(Mode::Exact), 0.5f64.exp());
    // The nearest f16 of e^0.5.
    assert_eq!(of(Mode::Rounded), 1.6484375);
}

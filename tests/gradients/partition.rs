//! `kiln-partition`: the two functions together compute what the joint function does, whatever the
//! budget.
use super::{CASES, arguments, parsed, results_of, said};
use crate::support::*;
use kiln::{
    Model, Options,
    dialects::{
        interp::Mode,
        ir::*,
        ops::OpKind,
        value::{DType, Tensor},
    },
    lowering::{RunOptions, run_pipeline},
    model::{JointOptions, Saved},
    passes::autocast::Lower,
};
use kiln_dialects::rules::tensor_type;

fn piped(module: &Module, pipeline: &str) -> Module {
    let after = module.duplicate();
    let whole = format!("builtin.module({pipeline})");
    run_pipeline(&after, &whole, &RunOptions::default(), &|_, _, _| ())
        .unwrap_or_else(|e| panic!("{e}"));
    after
}

/// What the backward function reports.
fn report(module: &Module, name: &str) -> i64 {
    let back = functions(module)[1];
    let all = back.attr("kiln.partition").and_then(Attr::entries).expect("a report");
    all.iter().find(|(n, _)| n == name).and_then(|(_, a)| a.as_i64()).expect("a number")
}

#[test]
fn two_functions_compute_what_one_does() {
    let (mut saved, mut recomputed) = (0, 0);
    for case in cases(CASES) {
        let context = Context::new();
        let module = parsed(&context, &case);
        let results = results_of(&case, &module);
        let list = results.iter().map(|i| i.to_string()).collect::<Vec<_>>().join(",");
        let joint =
            piped(&module, &format!("kiln-differentiate{{results={list} cotangents=true}}"));
        let func = functions(&joint)[0];
        let n = functions(&module)[0].regions()[0].first().unwrap().terminator().unwrap();
        let n = n.operand_count();
        let first = arguments(functions(&module)[0], 3, said(&case.text, "RANGE"));
        let values = run(&module, functions(&module)[0], Mode::Exact, &first).unwrap();
        let mut random = Random(5);
        let cotangents: Vec<Tensor> =
            results.iter().map(|i| random.tensor(values[*i].dtype(), values[*i].shape())).collect();
        let wanted = run(&joint, func, Mode::Exact, &[first.clone(), cotangents.clone()].concat());
        let wanted = wanted.unwrap_or_else(|e| panic!("{}: {e}", case.name));
        if wanted.len() == n {
            continue;
        }
        let mut bytes = vec![];
        for budget in ["1", "0.5", "0"] {
            let c = cotangents.len();
            let pass = format!("kiln-partition{{results={n} cotangents={c} budget={budget}}}");
            let parts = piped(&joint, &pass);
            let [forward, backward] = functions(&parts)[..] else { panic!("{}", case.name) };
            let names = [forward, backward].map(|f| f.symbol().unwrap());
            assert_eq!(names, ["f_forward", "f_backward"]);
            let given = forward.regions()[0].first().unwrap().args().len();
            assert_eq!(given, first.len(), "{}", case.name);
            let mut made = run(&parts, forward, Mode::Exact, &first)
                .unwrap_or_else(|e| panic!("{} {budget}: {e}", case.name));
            let kept = [made.split_off(n), cotangents.clone()].concat();
            let types: Vec<_> = backward.regions()[0].first().unwrap().args();
            assert!(
                types
                    .iter()
                    .zip(&kept)
                    .all(|(v, t)| { tensor_type(v.ty()).unwrap().dtype == t.dtype() })
            );
            let back = run(&parts, backward, Mode::Exact, &kept)
                .unwrap_or_else(|e| panic!("{} {budget}: {e}\n{}", case.name, parts.op()));
            for (found, wanted) in made.iter().chain(&back).zip(&wanted) {
                assert!(relative_error(found, wanted) == 0.0, "{} {budget}", case.name);
            }
            assert_eq!(made.len() + back.len(), wanted.len());
            bytes.push(report(&parts, "bytes"));
            saved += report(&parts, "bytes_saved");
            recomputed += report(&parts, "flops_added");
        }
        assert!(bytes.is_sorted_by(|a, b| a >= b), "{}: {bytes:?}", case.name);
    }
    assert!(saved > 0 && recomputed > 0);
}

/// What a checkpoint recomputes is behind barriers, and in the backward function alone.
#[test]
fn checkpoints_are_recomputed_in_the_backward_function() {
    let case = cases(CASES).into_iter().find(|c| c.name == "checkpoint").expect("a case");
    let context = Context::new();
    let joint = piped(&parsed(&context, &case), "kiln-differentiate{results=0,1 cotangents=true}");
    let parts = piped(&joint, "kiln-partition{results=2 cotangents=2}");
    let [forward, backward] = functions(&parts)[..] else { panic!("{}", parts.op()) };
    let count =
        |func: Op, kind: OpKind| walk(func).into_iter().filter(|o| o.kind() == Some(kind)).count();
    assert_eq!(count(forward, OpKind::OptimizationBarrier), 0, "{}", parts.op());
    assert_eq!(count(forward, OpKind::Linear), 1, "{}", parts.op());
    assert!(count(backward, OpKind::OptimizationBarrier) > 0, "{}", parts.op());
    // The checkpoint itself is as heavy as the product in it: its results are saved.
    assert_eq!(count(backward, OpKind::Checkpoint), 0, "{}", parts.op());
}

/// Of a chain of layers everything is recomputed at budget 0, and half of it at most at 0.5.
#[test]
fn the_budget_bounds_the_bytes() {
    let mut text = String::from(
        "func.func @f(%x: tensor<16x32xf64>, %w: tensor<32x32xf64>) -> tensor<16x32xf64> {\n",
    );
    let mut last = "%x".to_string();
    for i in 0..8 {
        text +=
            &format!("  %l{i} = kiln.linear {last}, %w : tensor<16x32xf64>, tensor<32x32xf64>\n");
        text += &format!("  %t{i} = kiln.gelu %l{i} : tensor<16x32xf64>\n");
        last = format!("%t{i}");
    }
    text += &format!("  return {last} : tensor<16x32xf64>\n}}\n");
    let context = Context::new();
    let (module, _) = Module::parse(context.ctx(), text.as_bytes(), "chain.mlir").unwrap();
    let joint = piped(&module, "kiln-differentiate{cotangents=true}");
    let at =
        |budget: f64| piped(&joint, &format!("kiln-partition{{cotangents=1 budget={budget:?}}}"));
    let linears = |m: &Module| {
        let back = functions(m)[1];
        walk(back).into_iter().filter(|o| o.kind() == Some(OpKind::Linear)).count()
    };
    let each = 16 * 32 * 8;
    let (most, half, none) = (at(1.0), at(0.5), at(0.0));
    // At 1 the results of the products; gelu is recomputed.
    assert_eq!((report(&most, "bytes"), linears(&most)), (8 * each, 0));
    assert!(report(&most, "bytes_saved") >= 7 * each, "{}", report(&most, "bytes_saved"));
    assert_eq!((report(&half, "bytes"), linears(&half)), (4 * each, 4));
    assert_eq!((report(&none, "bytes"), linears(&none)), (0, 8));
    let flops = |m: &Module| report(m, "flops_added");
    assert!(flops(&most) < flops(&half) && flops(&half) < flops(&none));
}

/// `Model::joint`: two compiled programs give what the joint function does, and what is an argument
/// or a result of the first is no result once more.
#[test]
fn a_model_as_two_programs() {
    let text = "func.func @main(%x: tensor<6x8xf32>, %w: tensor<4x8xf32>, %v: tensor<3x4xf32>) -> (tensor<6x3xf32>, tensor<6x4xf32>) {
  %0 = kiln.linear %x, %w : tensor<6x8xf32>, tensor<4x8xf32>
  %1 = kiln.sigmoid %0 : tensor<6x4xf32>
  %2 = kiln.linear %1, %v : tensor<6x4xf32>, tensor<3x4xf32>
  %3 = kiln.exp %2 : tensor<6x3xf32>
  return %3, %0 : tensor<6x3xf32>, tensor<6x4xf32>
}";
    let context = Context::new();
    let (module, _) = Module::parse(context.ctx(), text.as_bytes(), "model.mlir").unwrap();
    let options =
        JointOptions { wrt: vec![0, 1, 2], results: vec![0, 1], budget: 1.0, autocast: Lower::Off };
    let joint = Model::from_graph(&module, Default::default()).joint(&options).unwrap();
    // The derivative of exp reads its result; that of sigmoid, and the second product, a sigmoid.
    let mut saved: Vec<String> = joint.saved.iter().map(|s| format!("{s:?}")).collect();
    saved.sort();
    let value = "Value(F32, [Some(6), Some(4)])";
    assert_eq!(saved, ["Argument(0)", "Argument(1)", "Argument(2)", "Result(0)", value]);
    assert_eq!(joint.bytes, (6 * 4 + 6 * 3) * 4);

    let mut random = Random(7);
    let mut tensors = |all: &[[usize; 2]]| -> Vec<Tensor> {
        all.iter().map(|shape| random.tensor(DType::F32, shape)).collect()
    };
    let (given, cotangents) = (tensors(&[[6, 8], [4, 8], [3, 4]]), tensors(&[[6, 3], [6, 4]]));
    let call = |model: &Model, given: &[&Tensor]| {
        let exe = model.compile(&Options::default()).unwrap_or_else(|e| panic!("{e}"));
        exe.call_values(given).unwrap_or_else(|e| panic!("{e}"))
    };
    let made = call(&joint.forward, &given.iter().collect::<Vec<_>>());
    assert_eq!(made.len(), 3);
    let mut kept = made[2..].iter();
    let mut taken: Vec<&Tensor> = vec![];
    for saved in &joint.saved {
        taken.push(match saved {
            Saved::Argument(k) => &given[*k],
            Saved::Result(k) => &made[*k],
            Saved::Value(..) => kept.next().unwrap(),
        });
    }
    taken.extend(&cotangents);
    let gradients = call(&joint.backward, &taken);

    let whole = piped(&module, "kiln-differentiate{wrt=0,1,2 results=0,1 cotangents=true}");
    let all = [given.clone(), cotangents.clone()].concat();
    let wanted = run(&whole, functions(&whole)[0], Mode::Exact, &all).unwrap();
    for (found, wanted) in made[..2].iter().chain(&gradients).zip(&wanted) {
        assert!(relative_error(found, wanted) < 1e-6, "{}", relative_error(found, wanted));
    }
    let wrong = JointOptions { wrt: vec![5], ..options };
    let error = Model::from_graph(&module, Default::default()).joint(&wrong).err().unwrap();
    assert!(error.to_string().contains("has no argument 5"), "{error}");

    let narrow = JointOptions {
        autocast: Lower::Bf16,
        wrt: vec![0, 1, 2],
        results: vec![0, 1],
        budget: 1.0,
    };
    let saved = Model::from_graph(&module, Default::default()).joint(&narrow).unwrap().saved;
    assert!(saved.contains(&Saved::Value(DType::BF16, vec![Some(6), Some(4)])), "{saved:?}");
}

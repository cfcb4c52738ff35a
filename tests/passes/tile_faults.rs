//! Tile programs with a fault: the interpreter finds what a GPU answers with wrong numbers or
//! never. Also those that are cases of `kiln-lower-tiles`, against numbers.
use super::{pipeline, reference};
use crate::support::*;
use kiln::{
    dialects::{
        interp::Mode,
        ir::*,
        ops::OpKind,
        value::{DType, Tensor},
    },
    lowering::{RunOptions, run_pipeline},
};

/// A program around the tile program of a case of `gpu_tile.mlir`.
fn tile_program(context: &Context, name: &str) -> Module {
    let file = include_str!("gpu_tile.mlir");
    let case = cases(file).into_iter().find(|c| c.name == name).expect("a case");
    let (module, _) =
        Module::parse(context.ctx(), case.text.as_bytes(), "gpu_tile.mlir").expect("a module");
    let program = reference::program(&module).expect("a program");
    let passes = pipeline(&case.text).or(pipeline(file)).expect("a pipeline");
    let passes = format!("builtin.module({passes})");
    run_pipeline(&program, &passes, &RunOptions::default(), &|_, _, _| ()).expect("a pass");
    program
}

fn outcome(module: &Module) -> Result<(), String> {
    let func = functions(module)[0];
    let inputs = inputs_of_sizes(func, 0, &symbol_values(func));
    run(module, func, Mode::Exact, &inputs).map(drop).map_err(|e| e.to_string())
}

/// Runs a program once without each of its ops of a kind, whose results are then its operands;
/// returns the errors.
fn without(module: &Module, kind: OpKind) -> Vec<Option<String>> {
    let of = |m: &Module| -> Vec<Op> {
        walk(m.op()).into_iter().filter(|o| o.kind() == Some(kind)).collect()
    };
    let one = |i: usize| {
        let copy = module.duplicate();
        let op = of(&copy)[i];
        for (i, result) in op.results().into_iter().enumerate() {
            let is_same = |v: &Value| v.ty() == result.ty();
            let own = op.operands().get(i).copied().filter(is_same);
            let operand = own.or(op.operands().into_iter().find(is_same));
            result.replace_uses(operand.expect("an operand of its type"));
        }
        op.erase();
        outcome(&copy).err()
    };
    (0..of(module).len()).map(one).collect()
}

/// Every op of a ring and every wait for a product is needed, but for the second wait for a stage
/// that each warp makes behind its products, for a wait for products where one alone is under way,
/// and for the stage behind the last one.
#[test]
fn a_missing_op_is_an_error() {
    use OpKind::{TileAcquire, TileMmaWait, TileNextStage, TileRelease, TileTmaLoad, TileWait};
    // Of each kind the numbers of the ops that are not needed, and part of the others' errors.
    let wait = ["without a kiln.tile.wait until it is full"].as_slice();
    let never = ["which never happens", "is filled and not released", "takes stages that are full"];
    let product = ["which a product under way reads"].as_slice();
    let acquired = ["which is not acquired"].as_slice();
    let phase = [
        "which never happens",
        "acquires stage",
        "which has been released",
        "is over",
        "which a product under way reads",
    ];
    type Spare = [(OpKind, &'static [usize])];
    let all: [(&str, &Spare); 4] = [
        ("attention", &[(TileWait, &[4]), (TileNextStage, &[1, 4])]),
        ("gemm_wgmma", &[(TileMmaWait, &[0])]),
        ("gemm_of_a_computed_operand", &[(TileWait, &[2])]),
        ("gemm_split_k_by_a_cluster", &[(TileMmaWait, &[0]), (TileNextStage, &[2])]),
    ];
    for (name, spare) in all {
        let context = Context::new();
        let module = tile_program(&context, name);
        assert_eq!(outcome(&module), Ok(()), "{name}");
        for (kind, parts) in [
            (TileWait, wait),
            (TileRelease, &never),
            (TileMmaWait, product),
            (TileAcquire, acquired),
            (TileTmaLoad, &never),
            (TileNextStage, &phase),
        ] {
            let spare = spare.iter().find(|(k, _)| *k == kind).map_or(&[][..], |(_, all)| *all);
            for (i, found) in without(&module, kind).into_iter().enumerate() {
                let said = found.as_ref().is_some_and(|e| parts.iter().any(|p| e.contains(p)));
                let right = if spare.contains(&i) { found.is_none() } else { said };
                assert!(right, "{name} without {kind:?} {i}: {found:?}");
            }
        }
    }
}

/// A product reads the registers of its left operand until it is waited for.
#[test]
fn an_operand_that_is_not_alive_is_an_error() {
    let context = Context::new();
    let text = tile_program(&context, "attention").print(PrintOptions::default());
    let alive = regex::Regex::new(r" alive\([^)]*\)").expect("a pattern");
    let inputs = |text: &str| {
        let (module, _) =
            Module::parse(context.ctx(), text.as_bytes(), "m.mlir").expect("a module");
        outcome(&module)
    };
    assert_eq!(inputs(&text), Ok(()));
    let error = inputs(&alive.replace_all(&text, "")).unwrap_err();
    assert!(error.contains("ends a product whose left operand is not `alive`"), "{error}");
}

/// A case of `lower_tiles.mlir` that is a tile program, with other text, and a function that
/// launches it.
fn direct(name: &str, changes: &[(&str, &str)], main: &str) -> String {
    let file = include_str!("lower_tiles.mlir");
    let case = cases(file).into_iter().find(|c| c.name == name).expect("a case");
    let mut text = case.text;
    let launched = ("module @k ", format!("{main}\nmodule @k "));
    let launched = [(launched.0, launched.1.as_str())];
    for (from, to) in changes.iter().chain(&launched) {
        assert!(text.contains(from), "{name} has no {from}");
        text = text.replace(from, to);
    }
    text
}

fn results(text: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let context = Context::new();
    let (module, _) = Module::parse(context.ctx(), text.as_bytes(), "program.mlir")
        .unwrap_or_else(|e| panic!("{e}\n{text}"));
    run(&module, functions(&module)[0], Mode::Rounded, inputs).map_err(|e| e.to_string())
}

#[test]
fn cases_of_lower_tiles_compute_what_they_say() {
    let maxima = direct(
        "maxima_of_rows",
        &[
            (
                "(%in: memref<512xf32>, %out: memref<64xf32>, %n: i32)",
                "(%in: memref<512xf32>, %out: memref<64xf32> {kiln.sizes = array<i64: 64>})",
            ),
            (
                "%zero = arith.constant 0 : i32",
                "%zero = arith.constant 0 : i32\n%n = arith.constant 40 : i32",
            ),
        ],
        "func.func @main(%x: tensor<512xf32>) -> tensor<64xf32> {
          %e = tensor.empty() : tensor<64xf32>
          %r = kiln.launch @k ins(%x : tensor<512xf32>) outs(%e : tensor<64xf32>) -> tensor<64xf32>
          return %r : tensor<64xf32>
        }",
    );
    let x = Random(1).tensor(DType::F32, &[512]);
    let found = results(&maxima, std::slice::from_ref(&x)).expect("maxima");
    for (i, (found, row)) in
        found[0].as_f().unwrap().iter().zip(x.as_f().unwrap().chunks(8)).enumerate()
    {
        let wanted = row.iter().fold(f64::MIN, |a, b| a.max(2.0 * b));
        // What is not stored is not a number.
        assert!(if i < 40 { *found == wanted } else { found.is_nan() }, "row {i}: {found}");
    }
    let map = "kiln.tensor_maps = [{argument = 0 : i64, box = array<i64: 64, 64>, element = bf16, \
               map = affine_map<() -> (0, 64, 64, 64)>}], kiln.threads";
    let copy = direct(
        "tile_read_from_shared_memory",
        &[
            (
                "(%map: !llvm.ptr, %out: memref<4096xbf16>)",
                "(%in: memref<64x64xbf16>, %out: memref<4096xbf16> {kiln.sizes = array<i64: 4096>}, %map: !llvm.ptr)",
            ),
            ("kiln.threads", map),
        ],
        "func.func @main(%x: tensor<64x64xbf16>) -> tensor<4096xbf16> {
          %e = tensor.empty() : tensor<4096xbf16>
          %r = kiln.launch @k ins(%x : tensor<64x64xbf16>) outs(%e : tensor<4096xbf16>) -> tensor<4096xbf16>
          return %r : tensor<4096xbf16>
        }",
    );
    let x = Random(2).tensor(DType::BF16, &[64, 64]);
    let found = results(&copy, std::slice::from_ref(&x)).expect("a copy");
    assert_eq!(found[0].as_f().unwrap(), x.as_f().unwrap());
    // A product under way is read: neither wait nor release stand in front.
    let program = include_str!("../kiln_opt/tiles.mlir");
    let x = std::slice::from_ref(&x);
    assert!(results(program, x).is_ok());
    let lines = program.lines().filter(|l| !["mma_wait", "release"].iter().any(|w| l.contains(w)));
    let early = lines.collect::<Vec<_>>().join("\n").replace("epilogue(%r", "epilogue(%p");
    let error = results(&early, x).unwrap_err();
    let part = "program.mlir:23:9: 'kiln.tile.epilogue' reads the result of a product that is no \
                result of a kiln.tile.mma_wait";
    assert!(error.contains(part), "{error}");
    // Half of a tile is loaded.
    let half = program.replace("box = array<i64: 64, 64>", "box = array<i64: 64, 32>");
    let error = results(&half, x).unwrap_err();
    let part = "waits until stage 0 is full, which never happens: the producer has ended";
    assert!(error.contains(part), "{error}");
    // What a tile program has not.
    let other = program.replace("arith.constant 0 : i32", "arith.constant 0 : i32\ngpu.barrier");
    let error = results(&other, x).unwrap_err();
    assert!(error.contains("'gpu.barrier' is not an op that the interpreter runs"), "{error}");
}

/// The interpreter runs no code of threads.
#[test]
fn other_kernels_of_gpus_are_refused() {
    let context = Context::new();
    let error = outcome(&tile_program(&context, "gemm_mma")).unwrap_err();
    let part =
        "'kiln.launch' launches a kernel that is code of a GPU's threads, not a tile program";
    assert!(error.contains(part), "{error}");
}

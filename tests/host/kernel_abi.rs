//! `kiln-kernel-abi`: signatures and errors.
use super::*;

fn run(text: &str) -> Result<String, String> {
    let c = Context::new();
    kiln_lowering::driver::table::register_all().expect("registered");
    let m = Module::parse(c.ctx(), text.as_bytes(), "test.mlir").map_err(|e| e.to_string())?.0;
    let done =
        run_pipeline(&m, "builtin.module(kiln-kernel-abi)", &RunOptions::default(), &|_, _, _| ());
    done.map(|_| m.print(PrintOptions::default())).map_err(|e| e.to_string())
}

#[test]
fn signatures() {
    let text = run("func.func @k(%a: memref<?x8xf32> {kiln.sizes = array<i64: -2, 8>, kiln.noalias}, %s: f32, %b: memref<f32> {llvm.align = 64 : i64}, %m: index, %n: index) {\n\
        %c0 = arith.constant 0 : index\n  %x = memref.load %a[%n, %c0] : memref<?x8xf32>\n  memref.store %x, %b[] : memref<f32>\n  return\n}\n\
        func.func private @declared(memref<4xf32>, index)")
    .expect("it applies");
    let has = |s: &str| assert!(text.contains(s), "no '{s}' in\n{text}");
    has(
        "@k(%arg0: !llvm.ptr {llvm.noalias}, %arg1: f32, %arg2: !llvm.ptr {llvm.align = 64 : i64}, %arg3: i64, %arg4: i64)",
    );
    has("@declared(!llvm.ptr, i64)");
    // The rows are the second index parameter.
    has("llvm.insertvalue %arg4, ");
    assert!(!text.contains("kiln."), "{text}");
}

#[test]
fn refusals() {
    for (param, what) in [
        ("memref<?xf32>", "needs kiln.sizes"),
        ("memref<?xf32> {kiln.sizes = array<i64: -2>}", "there are 1 index parameters"),
        ("memref<?xf32> {kiln.sizes = array<i64: 1, 2>}", "has 2 entries"),
        ("memref<?xf32> {kiln.noalias = 1 : i64}", "without a value"),
        ("memref<?xf32> {kiln.sizes = 3 : i64}", "needs array<i64"),
        ("index {kiln.divisor = 0 : i64}", "needs a number from 1 on as kiln.divisor"),
        (
            "memref<4xf32> {kiln.least = 1 : i64}",
            "needs a number from 0 on as kiln.least, on a size",
        ),
        ("memref<4xf32> {kiln.sizes = array<i64: 5>}", "has size 4"),
        ("memref<4xf32, strided<[2]>>", "not contiguous"),
        ("memref<4xf32, strided<[1], offset: 3>>", "not contiguous"),
    ] {
        let error = run(&format!("func.func @k(%a: {param}, %n: index) {{\n  return\n}}"))
            .expect_err(param);
        assert!(error.contains(what), "{param}: {error}");
    }
}

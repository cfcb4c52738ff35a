//! Invalid calls: one sentence that names the culprit, and nothing is written.
use super::*;
use kiln::runtime::CallError;

fn message(r: Result<(), CallError>) -> String {
    r.expect_err("refused").to_string()
}

#[test]
fn invalid_inputs_and_outputs_are_named() {
    let exe = load(models().join("mlp.pt2")).unwrap().compile(&options(1)).unwrap();
    let floats = |n: usize| vec![0u8; n * 4];
    let (x, mut y) = (floats(8 * 64), floats(80));
    let view = |shape: &'static [usize], bytes| View::new("f32", shape, bytes).unwrap();
    let good = view(&[8, 64], &x);
    let before = y.clone();
    let mut call = |inputs: &[View], dtype: &str, shape: &[usize]| {
        let n = shape.iter().product::<usize>() * kiln::runtime::view::byte_size(dtype).unwrap();
        let mut out = [ViewMut::new(dtype, shape, &mut y[..n]).unwrap()];
        message(exe.call(inputs, &mut out))
    };
    assert_eq!(call(&[], "f32", &[8, 10]), "takes 1 input, but 0 are given");
    assert_eq!(call(&[good, good], "f32", &[8, 10]), "takes 1 input, but 2 are given");
    let short = floats(8 * 63);
    assert_eq!(
        call(&[view(&[8, 63], &short)], "f32", &[8, 10]),
        "input 'x': has size 63 in dimension 1; the program takes 64"
    );
    assert_eq!(
        call(&[view(&[512], &x)], "f32", &[8, 10]),
        "input 'x': has 1 dimensions, the program takes 2"
    );
    let long = floats(513 * 64);
    let range = "size s77 (dimension 0 of input 'x') is 513; the program takes 2 to 512";
    assert_eq!(call(&[view(&[513, 64], &long)], "f32", &[8, 10]), range);
    let ints = View::new("i32", &[8, 64], &x).unwrap();
    assert_eq!(call(&[ints], "f32", &[8, 10]), "input 'x': is i32, the program takes f32");
    assert_eq!(
        call(&[good], "f32", &[4, 10]),
        "output 'output_0': has size 4 in dimension 0; the program writes 8"
    );
    assert_eq!(call(&[good], "f16", &[8, 10]), "output 'output_0': is f16, the program takes f32");
    assert_eq!(message(exe.call(&[good], &mut [])), "takes 1 output, but 0 are given");
    assert_eq!(y, before);
    assert!(
        View::new("f32", &[usize::MAX, 4], &x)
            .err()
            .unwrap()
            .to_string()
            .contains("larger than any memory")
    );
    assert!(
        View::new("f32", &[8, 64], &x[1..])
            .err()
            .unwrap()
            .to_string()
            .contains("needs 2048 bytes, 2047 are given")
    );
}

/// A module that kiln-opt wrote for a GPU.
#[test]
fn a_module_that_is_for_another_chip_says_so() {
    crate::watchdog::arm();
    let source = "module attributes {kiln.level = \"kernels\", kiln.target = \"cuda:sm_90a\"} {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}
";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lowered.mlir");
    let compiled = |source: &str| {
        std::fs::write(&path, source).unwrap();
        load(&path).unwrap().build(&options(1), &|_, _| ()).map(drop).map_err(|e| e.to_string())
    };
    let e = compiled(source).unwrap_err();
    assert!(
        e.contains("the module is for cuda:sm_90a from level kernels on")
            && e.contains("--target cuda:sm_90a"),
        "{e}"
    );
    compiled(&source.replace("cuda:sm_90a", "host")).unwrap();
    compiled(&source.replace("\"kernels\"", "\"graph\"")).unwrap();
}

/// A program with static sizes checks them differently, with the same messages.
#[test]
fn static_sizes_give_the_same_errors() {
    crate::watchdog::arm();
    let source = "module attributes {kiln.level = \"graph\"} {
  func.func @main(%x: tensor<2x3xf32>, %y: tensor<3xi64>) -> (tensor<2x3xf32>, tensor<3xi64>) {
    %0 = kiln.add %x, %x : tensor<2x3xf32>
    %1 = kiln.add %y, %y : tensor<3xi64>
    return %0, %1 : tensor<2x3xf32>, tensor<3xi64>
  }
}
";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fixed.mlir");
    std::fs::write(&path, source).unwrap();
    let exe = load(&path).unwrap().compile(&options(1)).unwrap();
    assert_eq!(exe.fixed_outputs(), Some(&[(vec![2, 3], 24), (vec![3], 24)][..]));
    let floats: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_ne_bytes()).collect();
    let ints: Vec<u8> = (0..3i64).flat_map(i64::to_ne_bytes).collect();
    let (x, y) =
        (View::new("f32", &[2, 3], &floats).unwrap(), View::new("i64", &[3], &ints).unwrap());
    let call = |inputs: &[View], outputs: [(&str, &[usize]); 2]| {
        let (mut a, mut b) = (vec![7u8; 24], vec![7u8; 24]);
        let done = {
            let bytes = |(dtype, shape): (&str, &[usize])| {
                shape.iter().product::<usize>() * kiln::runtime::view::byte_size(dtype).unwrap()
            };
            let (n, m) = (bytes(outputs[0]), bytes(outputs[1]));
            let mut out = [
                ViewMut::new(outputs[0].0, outputs[0].1, &mut a[..n]).unwrap(),
                ViewMut::new(outputs[1].0, outputs[1].1, &mut b[..m]).unwrap(),
            ];
            exe.call(inputs, &mut out)
        };
        done.map(|()| (a.clone(), b.clone()))
            .inspect_err(|_| assert!(a.iter().chain(&b).all(|x| *x == 7), "something was written"))
    };
    let good: [(&str, &[usize]); 2] = [("f32", &[2, 3]), ("i64", &[3])];
    let (doubled, twice) = call(&[x, y], good).unwrap();
    assert_eq!(doubled, (0..6).flat_map(|i| (2.0 * i as f32).to_ne_bytes()).collect::<Vec<u8>>());
    assert_eq!(twice, (0..3i64).flat_map(|i| (2 * i).to_ne_bytes()).collect::<Vec<u8>>());
    // The transposed matrix in memory: it is copied.
    let columns: Vec<u8> =
        [0, 3, 1, 4, 2, 5].iter().flat_map(|i| (*i as f32).to_ne_bytes()).collect();
    // SAFETY: 2 x 3 elements of 4 bytes.
    let strided = unsafe { View::strided("f32", &[2, 3], &[1, 2], columns.as_ptr()) };
    assert_eq!(call(&[strided, y], good).unwrap().0, doubled);
    let wrong = |inputs: &[View], outputs| message(call(inputs, outputs).map(|_| ()));
    assert_eq!(wrong(&[x], good), "takes 2 inputs, but 1 is given");
    assert_eq!(wrong(&[y, x], good), "input 'input_0': has 1 dimensions, the program takes 2");
    let flat = View::new("f32", &[3, 2], &floats).unwrap();
    assert!(wrong(&[flat, y], good).contains("has size 3 in dimension 0; the program takes 2"));
    let other = View::new("i32", &[2, 3], &floats).unwrap();
    assert!(wrong(&[other, y], good).contains("is i32, the program takes f32"));
    assert!(
        wrong(&[x, y], [("f32", &[3, 2]), good[1]])
            .contains("has size 3 in dimension 0; the program writes 2")
    );
    assert!(wrong(&[x, y], [("i32", &[2, 3]), good[1]]).contains("is i32, the program takes f32"));
}

#[test]
fn invalid_model_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        load(&path).and_then(|m| m.compile(&options(1))).err().expect("refused").to_string()
    };
    assert!(load(dir.path().join("none.pt2")).err().unwrap().to_string().contains("none.pt2"));
    assert!(at("a.mlir", b"func.func @main(").contains("a.mlir"));
    assert!(at("b.pt2", b"PK\x03\x04 and no more").contains("is no .pt2 archive"));
    assert!(at("c.kpkg", b"no zip").contains("zip") || at("c.kpkg", b"no zip").contains("package"));
    let other = at("d.mlir", b"func.func @other() { return }");
    assert!(other.contains("main"), "{other}");
}

#[test]
fn an_archive_cut_anywhere_is_an_error() {
    let bytes = std::fs::read(models().join("mlp.pt2")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.pt2");
    for n in (0..bytes.len()).step_by(bytes.len() / 40) {
        std::fs::write(&path, &bytes[..n]).unwrap();
        assert!(
            load(&path).and_then(|m| m.compile(&options(1))).is_err(),
            "{n} of {} bytes",
            bytes.len()
        );
    }
}

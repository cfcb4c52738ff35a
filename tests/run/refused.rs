//! What a call refuses: one sentence that names the thing, and nothing written.
use super::*;
use kiln::runtime::CallError;

fn message(r: Result<(), CallError>) -> String {
    r.expect_err("refused").to_string()
}

#[test]
fn wrong_inputs_and_outputs_are_named() {
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
    assert_eq!(call(&[], "f32", &[8, 10]), "takes 1 inputs, 0 are given");
    assert_eq!(call(&[good, good], "f32", &[8, 10]), "takes 1 inputs, 2 are given");
    let short = floats(8 * 63);
    assert_eq!(call(&[view(&[8, 63], &short)], "f32", &[8, 10]), "input 'x': has size 63 in dimension 1, which is 64 here");
    assert_eq!(call(&[view(&[512], &x)], "f32", &[8, 10]), "input 'x': has 1 dimensions, the program takes 2");
    let long = floats(513 * 64);
    let range = "size s77 (dimension 0 of input 'x') is 513; the program takes 2 to 512";
    assert_eq!(call(&[view(&[513, 64], &long)], "f32", &[8, 10]), range);
    let ints = View::new("i32", &[8, 64], &x).unwrap();
    assert_eq!(call(&[ints], "f32", &[8, 10]), "input 'x': is i32, the program takes f32");
    assert_eq!(call(&[good], "f32", &[4, 10]), "output 'output_0': has size 4 in dimension 0, which is 8 here");
    assert_eq!(call(&[good], "f16", &[8, 10]), "output 'output_0': is f16, the program takes f32");
    assert_eq!(message(exe.call(&[good], &mut [])), "takes 1 outputs, 0 are given");
    assert_eq!(y, before);
    assert!(View::new("f32", &[usize::MAX, 4], &x).err().unwrap().to_string().contains("larger than any memory"));
    assert!(View::new("f32", &[8, 64], &x[1..]).err().unwrap().to_string().contains("needs 2048 bytes, 2047 are given"));
}

#[test]
fn files_that_are_no_models_are_named() {
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
        assert!(load(&path).and_then(|m| m.compile(&options(1))).is_err(), "{n} of {} bytes", bytes.len());
    }
}

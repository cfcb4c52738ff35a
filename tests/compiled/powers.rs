//! Powers that `kiln-powers` writes as products and square roots, down to machine code.
use super::*;
use kiln::dialects::{ir::Context, value::DType};

/// x^exponent of f32 values, compiled.
fn powers(exponent: f64, x: &[f64]) -> Vec<f64> {
    let n = x.len();
    let text = format!(
        "func.func @main(%x: tensor<{n}xf32>) -> tensor<{n}xf32> {{\n  \
         %e = kiln.splat [{n}], {exponent:?} : f32\n  \
         %0 = kiln.pow %x, %e : tensor<{n}xf32>\n  return %0 : tensor<{n}xf32>\n}}\n"
    );
    let c = Context::new();
    let (module, _) = Module::parse(c.ctx(), text.as_bytes(), "power.mlir").expect("it parses");
    let program =
        native(&module, "main", &|g| Err(format!("@{g} has no value"))).expect("it compiles");
    let x = Tensor::floats(DType::F32, vec![n], x.to_vec()).expect("f32");
    let results = call(&program, &[x], 1).expect("it is called");
    results[0].as_f().expect("floats").to_vec()
}

/// Products are off by at most (n - 1) / 2 ulp, which is 2^-24 relative for each factor but one.
#[test]
fn integer_powers_are_within_their_bound() {
    let x: Vec<f64> =
        (0..67).map(|i| DType::F32.round((i as f64 - 33.0) * 0.0371 + 0.013)).collect();
    for n in [5, 6, 7, 11, 16, 31] {
        for (x, y) in x.iter().zip(powers(f64::from(n), &x)) {
            let want = x.powi(n);
            let bound = f64::from(n - 1) * 2f64.powi(-24) + 2f64.powi(-24);
            let normal = want.abs() >= f64::from(f32::MIN_POSITIVE);
            let off = (y - want).abs();
            assert!(if normal { off <= bound * want.abs() } else { off < 1e-44 }, "{x}^{n}: {y}");
        }
    }
    let limits = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1e38, -1e38];
    let seventh = powers(7.0, &limits);
    let want: Vec<f64> = limits.iter().map(|x| DType::F32.round(x.powi(7))).collect();
    assert_eq!(seventh, want);
    assert!(seventh[1].is_sign_negative() && powers(6.0, &limits)[1].is_sign_positive());
}

/// `pow` of IEEE 754-2019, not `sqrt`: they differ at -0 and -inf.
#[test]
fn a_half_is_a_square_root_but_for_two_values() {
    let x = [4.0, 2.0, -0.0, f64::NEG_INFINITY, f64::INFINITY, -1.0, f64::NAN];
    let y = powers(0.5, &x);
    assert_eq!(y[..2], [2.0, DType::F32.round(2f64.sqrt())]);
    assert!(y[2] == 0.0 && y[2].is_sign_positive(), "{y:?}");
    assert!(y[3] == f64::INFINITY && y[4] == f64::INFINITY, "{y:?}");
    assert!(y[5].is_nan() && y[6].is_nan(), "{y:?}");
}

/// `torch.pow(x, 0.5)` is `sqrt(x)`, `torch.pow(x, -0.5)` is `rsqrt(x)`.
#[test]
fn a_captured_half_is_what_pytorch_computes() {
    let x = [4.0f32, -0.0, f32::NEG_INFINITY];
    for compiled in [false, true] {
        let f = |x: kiln::Tensor| (x.pow(0.5), x.pow(-0.5));
        let x = kiln::Tensor::from_slice(&[3], &x).expect("a tensor");
        let (root, inverse) =
            if compiled { kiln::compile(f).call(&x).expect("results") } else { f(x) };
        let [root, inverse] = [root, inverse].map(|t| t.to_vec::<f32>().expect("f32"));
        assert!(root[0] == 2.0 && root[1].is_sign_negative() && root[2].is_nan(), "{root:?}");
        assert!(inverse[0] == 0.5 && inverse[1] == f32::NEG_INFINITY, "{inverse:?}");
    }
}

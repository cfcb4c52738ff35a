//! Ops that draw random numbers: moments of each distribution, the generator state, and the
//! interpreter's results against compiled ones.
use super::*;
use kiln::Executable;

/// Mean, variance and number of independent elements of each result of random.pt2 on ones.
const MOMENTS: &[(&str, f64, f64, f64)] = &[
    ("rand", 0.5, 1.0 / 12.0, 2000.0),
    ("rand_like", 0.5, 1.0 / 12.0, 2000.0),
    ("uniform_", 1.0, 3.0, 2000.0),
    ("randn", 0.0, 1.0, 2000.0),
    ("randn_like", 0.0, 1.0, 2000.0),
    ("normal.float_float", 3.0, 4.0, 2000.0),
    ("normal.Tensor_float", 0.5, 4.0, 2000.0),
    ("normal.float_Tensor", 1.0, 0.25, 2000.0),
    ("normal.Tensor_Tensor", 0.5, 0.25, 2000.0),
    ("normal_", 3.0, 4.0, 2000.0),
    ("log_normal_", 1.0317, 0.0687, 2000.0),
    ("exponential_", 0.25, 1.0 / 16.0, 2000.0),
    ("cauchy_ clamped to 2 around its median", 1.0, 1.0494, 2000.0),
    ("geometric_", 5.0, 20.0, 2000.0),
    ("randint", 4.0, 20.0 / 3.0, 2000.0),
    ("randint.low", 0.0, 10.0, 2000.0),
    ("randint_like", 1.0, 2.0 / 3.0, 2000.0),
    ("randint_like.low_dtype", 0.0, 2.0 / 3.0, 2000.0),
    ("random_.to", 3.0, 4.0, 2000.0),
    ("random_ of uint8", 127.5, 5461.25, 2000.0),
    ("randperm", 999.5, 333_333.0, 2000.0),
    ("bernoulli", 0.5, 0.25, 2000.0),
    ("bernoulli.p", 0.3, 0.21, 2000.0),
    ("bernoulli_.float", 0.3, 0.21, 2000.0),
    ("bernoulli_.Tensor", 0.5, 0.25, 2000.0),
    // Rows of weights 1, 0, 3 and of 1, 1, 0.
    ("multinomial with replacement", 1.0, 0.75, 4000.0),
    ("multinomial without", 999.5, 333_333.0, 1000.0),
    ("dropout", 1.0, 1.0 / 3.0, 2000.0),
    ("feature_dropout", 1.0, 1.0, 2000.0),
    ("alpha_dropout", 0.5180, 1.3608, 2000.0),
    ("feature_alpha_dropout", 0.4432, 1.4942, 2000.0),
    ("native_dropout", 1.0, 1.0 / 9.0, 2000.0),
    ("its mask", 0.9, 0.09, 2000.0),
    ("rrelu of -1", -0.2, 0.04 / 12.0, 2000.0),
    // All columns of a row have its weights.
    ("attention of ones", 1.0, 0.02, 50.0),
    ("rand.generator", 0.5, 1.0 / 12.0, 2000.0),
    ("randn.generator", 0.0, 1.0, 2000.0),
    ("randint.generator", 4.0, 20.0 / 3.0, 2000.0),
    ("randint.low_generator", 0.0, 10.0, 2000.0),
    ("randperm.generator", 999.5, 333_333.0, 2000.0),
    ("poisson of 3, by inversion", 3.0, 3.0, 2000.0),
    ("poisson of 50", 50.0, 50.0, 2000.0),
    ("binomial of 10, by inversion", 5.0, 2.5, 2000.0),
    ("binomial of 200", 40.0, 32.0, 2000.0),
    ("binomial of 200, rarely not", 180.0, 18.0, 2000.0),
    // The variance of a variance grows with the excess kurtosis, 12 and 1.5.
    ("gamma of 0.5", 0.5, 0.5, 285.0),
    ("gamma of 4", 4.0, 4.0, 1100.0),
    ("dirichlet of 1 and 3", 0.25, 0.0375, 1700.0),
];

fn inputs(x: &[usize], state: [f64; 2]) -> Vec<Tensor> {
    let ones = Tensor::floats(DType::F32, x.to_vec(), vec![1.0; x.iter().product()]);
    let state = DType::I64.decode(&[2], &state.map(|n| (n as i64).to_le_bytes()).concat());
    vec![ones.expect("a tensor"), state.expect("a state")]
}

fn compiled(path: &Path) -> Executable {
    let options = kiln::Options { threads: 2, ..Default::default() };
    kiln::load(path).and_then(|m| m.compile(&options)).unwrap_or_else(|e| panic!("{e}"))
}

fn call(exe: &Executable, inputs: &[Tensor]) -> Vec<Tensor> {
    exe.call_values(&inputs.iter().collect::<Vec<_>>()).expect("a call")
}

fn numbers(t: &Tensor) -> Vec<f64> {
    t.as_f()
        .map(<[f64]>::to_vec)
        .unwrap_or_else(|_| t.as_i().expect("integers").iter().map(|n| *n as f64).collect())
}

#[test]
fn moments_of_every_distribution() {
    crate::watchdog::arm();
    let results = call(&compiled(&root().join("capture/random.pt2")), &inputs(&[2000], [5.0, 0.0]));
    assert_eq!(results.len(), MOMENTS.len());
    for (t, (what, mean, variance, n)) in results.iter().zip(MOMENTS) {
        let all = numbers(t);
        let count = all.len() as f64;
        let have = all.iter().sum::<f64>() / count;
        let spread = all.iter().map(|x| (x - have).powi(2)).sum::<f64>() / count;
        // Five standard errors; those of the variance of a normal distribution.
        let bound = 5.0 * (variance / n).sqrt();
        assert!((have - mean).abs() <= bound, "{what}: mean {have}, not {mean}");
        let bound = 5.0 * variance * (2.0 / n).sqrt();
        assert!((spread - variance).abs() <= bound, "{what}: variance {spread}, not {variance}");
    }
    let mut indices = numbers(&results[20]);
    indices.sort_by(f64::total_cmp);
    assert!(indices.iter().enumerate().all(|(i, x)| *x == i as f64), "a permutation");
}

#[test]
fn interpreted_as_compiled_and_by_the_state() {
    crate::watchdog::arm();
    let archives =
        [("random", &[2000][..]), ("random.core", &[2000]), ("random_layers", &[5, 2, 4])];
    for (name, shape) in archives {
        let path = root().join(format!("capture/{name}.pt2"));
        let exe = compiled(&path);
        let given = inputs(shape, [7.0, 3.0]);
        let want = call(&exe, &given);
        let c = Context::new();
        let captured = import(&c, &path);
        assert_eq!(captured.inputs.last().map(String::as_str), Some("rng_state"));
        let wrong = differences(&captured, &given, &want);
        assert!(wrong.is_empty(), "{name} at graph: {}", wrong.join("\n"));
        lower(&captured);
        let wrong = differences(&captured, &given, &want);
        assert!(wrong.is_empty(), "{name} at prims: {}", wrong.join("\n"));
        assert_eq!(call(&exe, &given), want, "{name}: the same state again");
        for state in [[8.0, 3.0], [7.0, 1003.0]] {
            let other = call(&exe, &inputs(shape, state));
            assert!(other.iter().zip(&want).all(|(a, b)| a != b), "{name}: state {state:?}");
        }
    }
}

/// No state is asked for where no live op draws.
#[test]
fn dead_draws_take_no_state() {
    crate::watchdog::arm();
    let path = root().join("capture/random_dead.pt2");
    let given = Tensor::floats(DType::F32, vec![4], vec![1.0, -2.0, 3.0, 0.5]).expect("a tensor");
    let want = Tensor::floats(DType::F32, vec![4], vec![2.0, -4.0, 6.0, 1.0]).expect("a tensor");
    let c = Context::new();
    let captured = import(&c, &path);
    assert_eq!(captured.inputs, ["x"]);
    let wrong = differences(&captured, std::slice::from_ref(&given), std::slice::from_ref(&want));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(call(&compiled(&path), &[given]), [want]);
}

#[test]
fn loops_do_not_draw() {
    let c = Context::new();
    let e = pt2::import(c.ctx(), &root().join("capture/random_in_loop.pt2")).err().expect("no row");
    assert!(
        e.to_string().contains("aten.rand_like.default: draws random numbers in a loop"),
        "{e}"
    );
}

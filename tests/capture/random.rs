//! Ops that draw random numbers: moments of each distribution, the generator state, and the
//! interpreter's results against compiled ones.
use super::*;
use kiln::{Executable, capture::RandomOrder};

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

/// The interpreter gives these results, from the generator's state as the last input.
fn agrees_at_graph_and_prims(path: &Path, given: &[Tensor], want: &[Tensor]) {
    let c = Context::new();
    let captured = import(&c, path);
    assert_eq!(captured.inputs.last().map(String::as_str), Some("rng_state"));
    let wrong = differences(&captured, given, want);
    assert!(wrong.is_empty(), "{path:?} at graph: {}", wrong.join("\n"));
    lower(&captured);
    let wrong = differences(&captured, given, want);
    assert!(wrong.is_empty(), "{path:?} at prims: {}", wrong.join("\n"));
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
        agrees_at_graph_and_prims(&path, &given, &want);
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

/// Each step draws other numbers, and so does what follows the loop.
#[test]
fn steps_of_loops_draw_anew() {
    crate::watchdog::arm();
    let path = root().join("capture/random_in_loop.pt2");
    let exe = compiled(&path);
    let given = inputs(&[3, 500], [7.0, 3.0]);
    let want = call(&exe, &given);
    agrees_at_graph_and_prims(&path, &given, &want);
    // Rows: before, four steps of a while loop, three of a scan in whose steps a loop draws twice,
    // and after. No number occurs twice but by chance, of 2^24.
    let mut all: Vec<f64> = want.iter().flat_map(numbers).collect();
    let count = all.len();
    assert_eq!(count, 500 * (1 + 4 + 3 * 3 + 1));
    all.sort_by(f64::total_cmp);
    all.dedup();
    assert!(all.len() > count - 20, "{} of {count} numbers differ", all.len());
    assert!(all.iter().all(|x| (0.0..1.0).contains(x)));
}

/// A draw follows the one before it, also in the condition of a loop, whose last one ends it, and
/// in a loop in a branch.
#[test]
fn draws_of_conditions_and_branches_follow_each_other() {
    crate::watchdog::arm();
    let path = root().join("capture/random_in_condition.pt2");
    let exe = compiled(&path);
    let given = |offset: usize, x: f64| {
        let x = Tensor::floats(DType::F32, vec![3], vec![x; 3]).expect("a tensor");
        vec![x, inputs(&[3], [7.0, offset as f64])[1].clone()]
    };
    let drawn: Vec<f64> = (0..80).map(|k| numbers(&call(&exe, &given(k, 1.0))[0])[0]).collect();
    let mut counts = std::collections::BTreeSet::new();
    for offset in 0..40 {
        for x in [1.0, -1.0] {
            let mut draws = drawn[offset..].iter().copied();
            let mut draw = || draws.next().expect("a number");
            let push = |all: &mut Vec<f64>, x: f64| {
                all.remove(0);
                all.push(x);
            };
            let (first, mut steps, mut count) = (draw(), vec![0.0; 16], 0);
            while draw() < 0.8 && count < 16 {
                push(&mut steps, draw());
                count += 1;
            }
            let mut branch = vec![x; 3];
            (0..if x > 0.0 { 3 } else { 1 }).for_each(|_| push(&mut branch, draw()));
            let want = [vec![first], vec![f64::from(count)], steps, branch, vec![draw()]];
            let have = call(&exe, &given(offset, x));
            assert_eq!(have.iter().map(numbers).collect::<Vec<_>>(), want, "{offset}, {x}");
            counts.insert(count);
            if offset < 4 {
                agrees_at_graph_and_prims(&path, &given(offset, x), &have);
            }
        }
    }
    assert!(counts.len() > 4, "{counts:?}");
}

/// The GPU whose order the files of `gen_aligned_random.py` have.
const ORDER: RandomOrder = RandomOrder::Cuda { threads: 512 };
/// Sizes for which there are results of aligned_random.dynamic.pt2.
pub const SIZES: [usize; 6] = [3, 256, 258, 1028, 2600, 4099];
/// Results of the archives with logarithms, exponentials and sines, and one of an FMA of f64: the
/// others have PyTorch's bits.
const ROUNDED: &[usize] =
    &[7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 51];
const ROUNDED_DYNAMIC: &[usize] = &[5];

/// Input and state, results, and how far the offset moves.
fn aligned(name: &str) -> (Vec<Tensor>, Vec<Tensor>, u64) {
    let path = root().join(format!("capture/{name}.safetensors"));
    let bytes = std::fs::read(&path).expect("a file");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let increment = file.tensor("increment").expect("an increment").data().try_into();
    let increment = u64::from_le_bytes(increment.expect("8 bytes"));
    (tensors(&path, "input"), tensors(&path, "output"), increment)
}

/// What differs from the model of PyTorch's kernels in a call: results, bits, the increment.
pub fn misaligned(exe: &Executable, name: &str, rounded: &[usize]) -> Vec<String> {
    let (given, want, increment) = aligned(name);
    let mut wrong = vec![];
    for (i, (have, want)) in call(exe, &given).iter().zip(&want).enumerate() {
        match tolerance::compare(have, want) {
            Ok(close) if !close.ok => wrong.push(format!("{name}, result {i}: {close}")),
            Ok(_) if have == want || rounded.contains(&i) => {}
            Ok(_) => wrong.push(format!("{name}, result {i} has other bits")),
            Err(e) => wrong.push(format!("{name}, result {i} {e}")),
        }
    }
    let shapes: Vec<&[usize]> = given.iter().map(Tensor::shape).collect();
    match exe.rng_increment(&shapes) {
        Ok(n) if n == increment => {}
        other => wrong.push(format!("{name}: moves by {other:?}, not {increment}")),
    }
    wrong
}

/// As [`misaligned`], of the archive of static sizes and of that of dynamic ones.
pub fn all_misaligned(options: &kiln::Options) -> Result<Vec<String>, kiln::Error> {
    let align_random_eager = kiln::AlignRandom::Threads(512);
    let options = kiln::Options { align_random_eager, ..options.clone() };
    let compiled =
        |name: &str| kiln::load(root().join(format!("capture/{name}.pt2")))?.compile(&options);
    let mut wrong = misaligned(&compiled("aligned_random")?, "aligned_random", ROUNDED);
    let dynamic = compiled("aligned_random.dynamic")?;
    for n in SIZES {
        wrong.extend(misaligned(&dynamic, &format!("aligned_random.{n}"), ROUNDED_DYNAMIC));
    }
    Ok(wrong)
}

#[test]
fn compiled_numbers_of_pytorch_s_cuda_generator() {
    crate::watchdog::arm();
    let options = kiln::Options { threads: 2, ..Default::default() };
    let wrong = all_misaligned(&options).unwrap_or_else(|e| panic!("{e}"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn interpreted_numbers_of_pytorch_s_cuda_generator() {
    crate::watchdog::arm();
    let c = Context::new();
    let import = |name: &str| {
        let path = root().join(format!("capture/{name}.pt2"));
        pt2::import_in(c.ctx(), &path, ORDER).unwrap_or_else(|e| panic!("{e}"))
    };
    let captured = import("aligned_random");
    let (given, want, _) = aligned("aligned_random");
    for level in ["graph", "prims"] {
        let wrong = differences_in(Mode::Rounded, &captured, &given, &want);
        assert!(wrong.is_empty(), "at {level}: {}", wrong.join("\n"));
        if level == "graph" {
            lower(&captured);
        }
    }
    let captured = import("aligned_random.dynamic");
    for n in SIZES {
        let (given, want, _) = aligned(&format!("aligned_random.{n}"));
        let wrong = differences_in(Mode::Rounded, &captured, &given, &want);
        assert!(wrong.is_empty(), "{n}: {}", wrong.join("\n"));
    }
}

/// What PyTorch draws by kernels of their own is refused.
#[test]
fn ops_of_other_orders_are_refused() {
    let c = Context::new();
    let refused = |name: &str, what: &str| {
        let path = root().join(format!("capture/{name}.pt2"));
        let e = pt2::import_in(c.ctx(), &path, ORDER).err().expect("no row").to_string();
        assert!(e.contains(what), "{name}: {e}");
    };
    refused("random", "aten.randperm.default: draws random numbers by a GPU kernel of its own");
    refused("random_in_loop", "aten.rand_like.default: draws random numbers in a branch or a loop");
}

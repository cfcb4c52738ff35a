//! Factorizations multiply back to their matrix, across blocks; failures are reported.
use kiln_linalg::{Element, Error, Factorization, Input, Output, Slice, SliceMut};

/// Results of a call with f64 operands: floats, and integers as floats.
fn call(name: &str, inputs: &[(&[usize], &[f64])]) -> Result<Vec<Vec<f64>>, Error> {
    let inputs: Vec<Input> =
        inputs.iter().map(|(shape, data)| Input { shape, data: Slice::F64(data) }).collect();
    call_on(name, &inputs)
}

fn call_on(name: &str, inputs: &[Input]) -> Result<Vec<Vec<f64>>, Error> {
    let f = Factorization::find(&format!("kiln.linalg.{name}")).expect("a name");
    assert_eq!(f.name(), format!("kiln.linalg.{name}"));
    let types = f.results(&inputs.iter().map(Input::ty).collect::<Vec<_>>())?;
    let count = |shape: &[usize]| shape.iter().product::<usize>();
    let mut floats: Vec<Vec<f64>> = types.iter().map(|(_, s)| vec![0.0; count(s)]).collect();
    let mut ints: Vec<Vec<i32>> = types.iter().map(|(_, s)| vec![0; count(s)]).collect();
    let mut outputs: Vec<Output> = types
        .iter()
        .zip(floats.iter_mut().zip(&mut ints))
        .map(|((element, shape), (floats, ints))| Output {
            shape,
            data: if *element == Element::I32 {
                SliceMut::I32(ints)
            } else {
                SliceMut::F64(floats)
            },
        })
        .collect();
    f.call(inputs, &mut outputs)?;
    let made = types.iter().zip(floats.into_iter().zip(ints)).map(|((element, _), (f, i))| {
        if *element == Element::I32 { i.into_iter().map(f64::from).collect() } else { f }
    });
    Ok(made.collect())
}

/// Numbers between -1 and 1 without a pattern.
fn noise(n: usize) -> Vec<f64> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn product(x: &[f64], y: &[f64], (m, k, n): (usize, usize, usize)) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..k).map(|l| x[i * k + l] * y[l * n + j]).sum();
    (0..m * n).map(|i| at(i / n, i % n)).collect()
}

fn turned(x: &[f64], (m, n): (usize, usize)) -> Vec<f64> {
    (0..m * n).map(|i| x[i % m * n + i / m]).collect()
}

fn close(x: &[f64], y: &[f64]) {
    let error = x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    assert!(x.len() == y.len() && error < 1e-10, "off by {error}");
}

#[test]
fn lu_multiplies_back() {
    let (m, n) = (75, 70);
    let mut a = noise(m * n);
    let mut made = call("lu", &[(&[n, m], &turned(&a, (m, n)))]).expect("a factorization");
    made[0] = turned(&made[0], (n, m));
    let part = |i: usize, j: usize| made[0][i * n + j];
    let low: Vec<f64> = (0..m * n)
        .map(|k| match (k / n, k % n) {
            (i, j) if i == j => 1.0,
            (i, j) if i > j => part(i, j),
            _ => 0.0,
        })
        .collect();
    let high: Vec<f64> =
        (0..n * n).map(|k| if k / n <= k % n { part(k / n, k % n) } else { 0.0 }).collect();
    for (i, pivot) in made[1].iter().enumerate() {
        let with = *pivot as usize - 1;
        (0..n).for_each(|j| a.swap(i * n + j, with * n + j));
    }
    close(&product(&low, &high, (m, n, n)), &a);
    assert_eq!(made[2], [0.0]);
    assert!(low.iter().all(|x| x.abs() <= 1.0), "pivots are the largest elements");
}

#[test]
fn qr_multiplies_back() {
    let (m, n) = (80, 70);
    let a = noise(m * n);
    let mut made = call("qr", &[(&[n, m], &turned(&a, (m, n)))]).expect("a factorization");
    let mut q = call("householder_product", &[(&[n, m], &made[0]), (&[n], &made[1])]).expect("Q");
    made[0] = turned(&made[0], (n, m));
    q[0] = turned(&q[0], (n, m));
    let r: Vec<f64> = (0..n * n).map(|k| if k / n <= k % n { made[0][k] } else { 0.0 }).collect();
    close(&product(&q[0], &r, (m, n, n)), &a);
    let one: Vec<f64> = (0..n * n).map(|k| f64::from(u8::from(k / n == k % n))).collect();
    close(&product(&turned(&q[0], (m, n)), &q[0], (n, m, n)), &one);
    // LAPACK's signs: the first element of R has the sign that the first of A has not.
    assert!(r[0] * a[0] < 0.0);
}

#[test]
fn spectra_multiply_back() {
    let (m, n) = (40, 30);
    let a = noise(m * n);
    let mut svd = call("svd", &[(&[m, n], &a)]).expect("a factorization");
    svd[0] = turned(&svd[0], (n, m));
    let scaled: Vec<f64> = (0..m * n).map(|k| svd[0][k] * svd[1][k % n]).collect();
    close(&product(&scaled, &svd[2], (m, n, n)), &a);
    assert!(svd[1].windows(2).all(|w| w[0] >= w[1] && w[1] >= 0.0));
    close(&call("svdvals", &[(&[m, n], &a)]).expect("values")[0], &svd[1]);
    // Of A'A: the squares, in ascending order.
    let gram = product(&turned(&a, (m, n)), &a, (n, m, n));
    let mut eigh = call("eigh", &[(&[n, n], &gram)]).expect("a factorization");
    eigh[1] = turned(&eigh[1], (n, n));
    let squares: Vec<f64> = svd[1].iter().rev().map(|s| s * s).collect();
    close(&eigh[0], &squares);
    let scaled: Vec<f64> = (0..n * n).map(|k| eigh[1][k] * eigh[0][k % n]).collect();
    close(&product(&scaled, &turned(&eigh[1], (n, n)), (n, n, n)), &gram);
}

/// The largest difference between A V and V diag(W), and each vector's norm from 1, for parts of A,
/// W and V.
fn eigen_error([a, b]: [&[f64]; 2], n: usize, found: &[Vec<f64>]) -> f64 {
    let [p, q, v, w] = [&found[0], &found[1], &found[2], &found[3]];
    let minus = |x: Vec<f64>, y: Vec<f64>| x.iter().zip(y).map(|(x, y)| x - y).collect::<Vec<_>>();
    let plus = |x: Vec<f64>, y: Vec<f64>| x.iter().zip(y).map(|(x, y)| x + y).collect::<Vec<_>>();
    let by = |x: &[f64], s: &[f64]| (0..n * n).map(|k| x[k] * s[k % n]).collect::<Vec<f64>>();
    let of = |x: &[f64], y: &[f64]| product(x, y, (n, n, n));
    let re = minus(minus(of(a, v), of(b, w)), minus(by(v, p), by(w, q)));
    let im = minus(plus(of(a, w), of(b, v)), plus(by(v, q), by(w, p)));
    let norm = |j: usize| (0..n).map(|i| v[i * n + j].powi(2) + w[i * n + j].powi(2)).sum::<f64>();
    let norms = (0..n).map(|j| norm(j) - 1.0);
    re.into_iter().chain(im).chain(norms).map(f64::abs).fold(0.0, f64::max)
}

#[test]
fn eigenvectors_are_scaled_by_their_values() {
    for n in [1, 2, 7, 40] {
        let shape = [n, n];
        let (a, b) = (noise(n * n), turned(&noise(n * n), (n, n)));
        let zero = vec![0.0; n * n];
        let real = call("eig", &[(&shape, &a)]).expect("eigenvalues");
        assert!(eigen_error([&a, &zero], n, &real) < 1e-11, "real, {n}");
        let both: [(&[usize], &[f64]); 2] = [(&shape, &a), (&shape, &b)];
        let complex = call("eig_complex", &both).expect("eigenvalues");
        assert!(eigen_error([&a, &b], n, &complex) < 1e-11, "complex, {n}");
        // Without vectors, and of a matrix whose imaginary part is 0.
        let sorted = |found: &[Vec<f64>]| {
            let mut all: Vec<(f64, f64)> =
                found[0].iter().copied().zip(found[1].iter().copied()).collect();
            all.sort_by(|x, y| x.partial_cmp(y).expect("numbers"));
            all.into_iter().flat_map(|(x, y)| [x, y]).collect::<Vec<f64>>()
        };
        close(&sorted(&call("eigvals", &both[..1]).expect("values")), &sorted(&real));
        close(&sorted(&call("eigvals_complex", &both).expect("values")), &sorted(&complex));
        let same = call("eigvals_complex", &[(&shape, &a), (&shape, &zero)]).expect("values");
        // Conjugate pairs may differ in the last bits of their equal real parts.
        let sums = |found: &[Vec<f64>]| found.iter().take(2).map(|x| x.iter().sum()).collect();
        let (one, other): (Vec<f64>, Vec<f64>) = (sums(&same), sums(&real));
        close(&one, &other);
        // The largest component of each vector is real.
        for j in 0..n {
            let size = |i: usize| complex[2][i * n + j].hypot(complex[3][i * n + j]);
            let largest = (0..n).max_by(|i, k| size(*i).total_cmp(&size(*k))).expect("a row");
            assert_eq!(complex[3][largest * n + j], 0.0);
        }
    }
}

#[test]
fn lu_solves() {
    for n in [1, 7, 50] {
        let a = noise(n * n);
        let made = call("lu", &[(&[n, n], &turned(&a, (n, n)))]).expect("factors");
        let pivots: Vec<i32> = made[1].iter().map(|p| *p as i32).collect();
        let x = noise(3 * n);
        for (name, a) in [("lu_solve", a.clone()), ("lu_solve_adjoint", turned(&a, (n, n)))] {
            let b = turned(&product(&a, &x, (n, n, 3)), (n, 3));
            let solve = |pivots: &[i32]| {
                let inputs = [
                    Input { shape: &[n, n], data: Slice::F64(&made[0]) },
                    Input { shape: &[n], data: Slice::I32(pivots) },
                    Input { shape: &[3, n], data: Slice::F64(&b) },
                ];
                call_on(name, &inputs)
            };
            close(&turned(&solve(&pivots).expect("a solution")[0], (3, n)), &x);
            assert!(solve(&vec![n as i32 + 1; n]).is_err() && solve(&vec![0; n]).is_err());
        }
    }
}

#[test]
fn ldl_solves() {
    for (n, hollow) in [(1, false), (2, true), (9, true), (40, false), (40, true)] {
        let a = noise(n * n);
        // A zero diagonal needs blocks of two rows.
        let at =
            |i: usize, j: usize| if i == j && hollow { 0.0 } else { a[i * n + j] + a[j * n + i] };
        let a: Vec<f64> = (0..n * n).map(|k| at(k / n, k % n)).collect();
        let lower: Vec<f64> =
            (0..n * n).map(|k| if k % n <= k / n { a[k] } else { f64::NAN }).collect();
        let made = call("ldl", &[(&[n, n], &lower)]).expect("factors");
        assert_eq!(made[2], [0.0], "of {n} rows");
        assert!(!hollow || made[1].iter().any(|p| *p < 0.0), "blocks: {:?}", made[1]);
        let pivots: Vec<i32> = made[1].iter().map(|p| *p as i32).collect();
        let x = noise(3 * n);
        let b = product(&a, &x, (n, n, 3));
        let solve = |pivots: &[i32]| {
            let inputs = [
                Input { shape: &[n, n], data: Slice::F64(&made[0]) },
                Input { shape: &[n], data: Slice::I32(pivots) },
                Input { shape: &[n, 3], data: Slice::F64(&b) },
            ];
            call_on("ldl_solve", &inputs)
        };
        close(&solve(&pivots).expect("a solution")[0], &x);
        for wrong in [0, n as i32 + 1, -(n as i32) - 1] {
            let mut pivots = pivots.clone();
            pivots[0] = wrong;
            assert!(solve(&pivots).is_err(), "pivot {wrong} of {n} rows");
        }
    }
}

#[test]
fn failures_are_reported() {
    let made = call("cholesky", &[(&[2, 2, 2], &[4.0, 9.0, 2.0, 2.0, 1.0, 0.0, 2.0, 1.0])]);
    let made = made.expect("results");
    assert_eq!((&made[0][..4], &made[1][..]), (&[2.0, 0.0, 1.0, 1.0][..], &[0.0, 2.0][..]));
    let singular = [1.0, 2.0, 2.0, 4.0];
    assert_eq!(call("lu", &[(&[2, 2], &singular)]).expect("results")[2], [2.0]);
    let said = |name: &str, inputs: &[(&[usize], &[f64])]| {
        call(name, inputs).expect_err("an error").to_string()
    };
    assert!(said("svdvals", &[(&[1, 1], &[f64::NAN])]).contains("non-finite"));
    assert!(said("cholesky", &[(&[1, 2], &[1.0, 2.0])]).contains("square matrices"));
    assert!(said("solve_upper", &[(&[1, 1], &[1.0])]).contains("operands"));
    let check = Factorization::find("kiln.linalg.check_inv").expect("a name");
    let info = [Input { shape: &[2], data: Slice::I32(&[0, 3]) }];
    assert_eq!(
        check.call(&info, &mut []).expect_err("an error").to_string(),
        "linalg.inv: (Batch element 1): The diagonal element 3 is zero, the inversion could not be completed because the input matrix is singular."
    );
    assert_eq!(Factorization::find("kiln.linalg.schur"), None);
}

use super::{dtype_code::DtypeCode, element::Element, *};
use half::{bf16, f16};

/// A tensor's dtype code, shape and bytes.
struct Memory {
    code: DtypeCode,
    shape: Vec<usize>,
    bytes: Vec<u64>,
}

fn tensor<E: Element>(shape: &[usize], values: &[E]) -> Memory {
    let n: usize = shape.iter().product();
    assert_eq!(values.len(), n);
    let mut bytes = vec![0u64; (n * size_of::<E>()).div_ceil(8)];
    // SAFETY: room for `n` elements.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), bytes.as_mut_ptr().cast(), n) };
    Memory { code: E::CODES[0], shape: shape.to_vec(), bytes }
}

impl Memory {
    /// The words that describe it.
    fn described(&mut self) -> Vec<i64> {
        let at = self.bytes.as_mut_ptr().expose_provenance() as i64;
        let about = [at, self.code as i64, self.shape.len() as i64].into_iter();
        about.chain(self.shape.iter().map(|n| *n as i64)).collect()
    }
    fn read<E: Element>(&self) -> Vec<E> {
        let n = self.shape.iter().product();
        // SAFETY: made by `tensor` of this type.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), n) }.to_vec()
    }
}

/// Calls a runtime kernel by name for every thread id of a team, in order; `None` is an unused
/// output.
fn call(name: &str, tensors: &mut [Option<&mut Memory>], attributes: &[i64], nth: i64) {
    let described = |t: &mut Option<&mut Memory>| match t {
        None => vec![0, 0, 0],
        Some(t) => t.described(),
    };
    run(name, &tensors.iter_mut().map(described).collect::<Vec<_>>(), attributes, nth);
}

/// As [`call`], of tensors as [`Memory::described`].
fn run(name: &str, tensors: &[Vec<i64>], attributes: &[i64], nth: i64) {
    let mut words = vec![tensors.len() as i64];
    words.extend(tensors.iter().flatten());
    words.push(attributes.len() as i64);
    words.extend(attributes);
    let f = symbols().into_iter().find(|(n, _)| *n == name).expect("a function").1;
    // SAFETY: what `symbols` promises.
    let f: unsafe extern "C" fn(*const i64, i64, i64) = unsafe { std::mem::transmute(f) };
    // SAFETY: words as the module describes them.
    (0..nth).for_each(|tid| unsafe { f(words.as_ptr(), tid, nth) });
}

fn random(n: usize) -> impl Iterator<Item = u64> {
    (0..n as u64).map(|i| {
        i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
            >> 17
    })
}

const SHAPES: [(&[usize], usize); 7] = [
    (&[17], 0),
    (&[4, 15], 1),
    (&[15, 4], 0),
    (&[3, 16, 70], 1),
    (&[0, 3], 0),
    (&[2, 0], 1),
    (&[2, 3, 1], 2),
];

/// Offsets of the elements of each line.
fn lines(shape: &[usize], axis: usize) -> Vec<Vec<usize>> {
    let step: usize = shape[axis + 1..].iter().product();
    let outer: usize = shape[..axis].iter().product();
    let line =
        |o: usize, s: usize| (0..shape[axis]).map(|i| (o * shape[axis] + i) * step + s).collect();
    (0..outer).flat_map(|o| (0..step).map(move |s| line(o, s))).collect()
}

#[test]
fn prefix_sums() {
    for (shape, axis) in SHAPES {
        let n = shape.iter().product();
        let x: Vec<i32> = random(n).map(|r| r as i32).collect();
        let mut want = x.clone();
        for line in lines(shape, axis) {
            line.windows(2).for_each(|w| want[w[1]] = want[w[0]].wrapping_add(want[w[1]]));
        }
        for nth in [1, 2, 5] {
            let (mut x, mut out) = (tensor(shape, &x), tensor(shape, &vec![-7; n]));
            call("kiln_cumulative", &mut [Some(&mut x), Some(&mut out)], &[0, axis as i64], nth);
            assert_eq!(out.read::<i32>(), want, "{shape:?} along {axis}, {nth} threads");
        }
    }
}

#[test]
fn prefix_maxima_of_small_floats() {
    let x = [f16::from_f32(-0.0), f16::ZERO, f16::NEG_ONE, f16::NAN, f16::ONE];
    let (mut x, mut out) = (tensor(&[5], &x), tensor(&[5], &[f16::ONE; 5]));
    call("kiln_cumulative", &mut [Some(&mut x), Some(&mut out)], &[2, 0], 2);
    let bits: Vec<u16> = out.read::<f16>().into_iter().map(f16::to_bits).collect();
    assert_eq!(bits[..3], [0x8000, 0, 0]);
    assert!(out.read::<f16>()[3..].iter().all(|v| v.is_nan()));
    // 257 ones are 257, which bf16 rounds; rounding each partial sum would stay at 256.
    let (mut x, mut out) = (tensor(&[260], &[bf16::ONE; 260]), tensor(&[260], &[bf16::ONE; 260]));
    call("kiln_cumulative", &mut [Some(&mut x), Some(&mut out)], &[0, 0], 1);
    assert_eq!(out.read::<bf16>()[259].to_f32(), 260.0);
}

#[test]
fn stable_sorts_with_nan_on_top() {
    for (shape, axis) in SHAPES {
        let n: usize = shape.iter().product();
        let x: Vec<f32> =
            random(n).map(|r| if r % 7 == 0 { f32::NAN } else { (r % 5) as f32 }).collect();
        for (descending, nth) in [(false, 1), (true, 1), (false, 3), (true, 2)] {
            let key = |i: usize| if x[i].is_nan() { 99 } else { x[i] as i64 };
            let (mut values, mut places) = (vec![0.0; n], vec![0i64; n]);
            for line in lines(shape, axis) {
                let mut order: Vec<usize> = (0..line.len()).collect();
                order.sort_by_key(|i| if descending { -key(line[*i]) } else { key(line[*i]) });
                for (to, from) in order.into_iter().enumerate() {
                    (values[line[to]], places[line[to]]) = (x[line[from]], from as i64);
                }
            }
            let (mut a, mut v, mut p) =
                (tensor(shape, &x), tensor(shape, &vec![-1f32; n]), tensor(shape, &vec![-1i64; n]));
            let attributes = [axis as i64, i64::from(descending)];
            call("kiln_sort", &mut [Some(&mut a), Some(&mut v), Some(&mut p)], &attributes, nth);
            assert_eq!(p.read::<i64>(), places, "{shape:?} along {axis}");
            let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(v.read()), bits(values.clone()));
            let mut only = tensor(shape, &vec![-1i64; n]);
            call("kiln_sort", &mut [Some(&mut a), None, Some(&mut only)], &attributes, nth);
            assert_eq!(only.read::<i64>(), places);
            // The top k are a prefix of the sort.
            for k in [0, 1, 2].into_iter().filter(|k| *k < shape[axis]) {
                let mut kept = shape.to_vec();
                kept[axis] = k;
                let m = kept.iter().product();
                let (mut v, mut p) =
                    (tensor(&kept, &vec![-1f32; m]), tensor(&kept, &vec![-1i64; m]));
                call(
                    "kiln_top_k",
                    &mut [Some(&mut a), Some(&mut v), Some(&mut p)],
                    &[axis as i64, i64::from(!descending)],
                    nth,
                );
                let mut want = vec![0; m];
                for (short, long) in lines(&kept, axis).iter().zip(lines(shape, axis)) {
                    short.iter().zip(long).for_each(|(s, l)| want[*s] = places[l]);
                }
                assert_eq!(p.read::<i64>(), want, "{k} of {shape:?} along {axis}");
            }
        }
    }
}

#[test]
fn scatters_in_order_and_inside() {
    let shape = [5, 4, 3];
    // The last of two updates wins; out-of-range updates are dropped.
    let index = [3i64, 0, 3, -1, 5, 1];
    for dim in 0..3usize {
        let mut free = shape.to_vec();
        free.remove(dim);
        let inner: usize = free.iter().product();
        let updates: Vec<i16> = random(6 * inner).map(|r| r as i16).collect();
        let x: Vec<i16> = (0..60).collect();
        for kind in 0..5 {
            let mut want = x.clone();
            for (i, at) in index.iter().enumerate() {
                let Some(at) = usize::try_from(*at).ok().filter(|at| *at < shape[dim]) else {
                    continue;
                };
                for j in 0..inner {
                    let mut place = [j / free[1], j % free[1]].to_vec();
                    place.insert(dim, at);
                    let to = &mut want[(place[0] * 4 + place[1]) * 3 + place[2]];
                    let u = updates[i * inner + j];
                    *to = match kind {
                        0 => u,
                        1 => to.wrapping_add(u),
                        2 => to.wrapping_mul(u),
                        3 => u.max(*to),
                        _ => u.min(*to),
                    };
                }
            }
            for nth in [1, 2, 7] {
                let mut out = tensor(&shape, &[-5i16; 60]);
                let (mut x, mut u) =
                    (tensor(&shape, &x), tensor(&[&[6], &free[..]].concat(), &updates));
                let mut index = tensor(&[6], &index);
                let tensors = &mut [Some(&mut x), Some(&mut u), Some(&mut index), Some(&mut out)];
                call("kiln_scatter", tensors, &[kind, dim as i64], nth);
                assert_eq!(out.read::<i16>(), want, "kind {kind} along {dim}, {nth} threads");
            }
        }
    }
}

#[test]
fn scattered_sums_of_small_floats_are_rounded_once() {
    let (mut x, mut out) = (tensor(&[2], &[bf16::ONE; 2]), tensor(&[2], &[bf16::ONE; 2]));
    let (mut u, mut i, mut j) =
        (tensor(&[600], &[bf16::ONE; 600]), tensor(&[600], &[1i32; 600]), tensor(&[], &[0i64; 1]));
    call(
        "kiln_scatter",
        &mut [Some(&mut x), Some(&mut u), Some(&mut i), Some(&mut out)],
        &[1, 0],
        2,
    );
    // 601 is between the bf16 values 600 and 604.
    assert_eq!(out.read::<bf16>().map_to(), [1.0, 600.0]);
    // A scalar index, with every dimension indexed.
    let mut one = tensor(&[], &[bf16::from_f32(9.0)]);
    call(
        "kiln_scatter",
        &mut [Some(&mut x), Some(&mut one), Some(&mut j), Some(&mut out)],
        &[0, 0],
        1,
    );
    assert_eq!(out.read::<bf16>().map_to(), [9.0, 1.0]);
}

trait MapTo {
    fn map_to(self) -> Vec<f32>;
}
impl MapTo for Vec<bf16> {
    fn map_to(self) -> Vec<f32> {
        self.into_iter().map(bf16::to_f32).collect()
    }
}

#[test]
fn boxes_are_moved_inside() {
    let x: Vec<u8> = (0..35).collect();
    for (row, column) in [(0i32, 0i32), (2, 3), (-4, 99)] {
        let (r, c) = (row.clamp(0, 3) as usize, column.clamp(0, 4) as usize);
        let mut want = x.clone();
        (0..6).for_each(|i| want[(r + i / 3) * 7 + c + i % 3] = 100 + i as u8);
        for nth in [1, 2, 9] {
            let (mut a, mut out) = (tensor(&[5, 7], &x), tensor(&[5, 7], &[0u8; 35]));
            let mut update = tensor(&[2, 3], &[100u8, 101, 102, 103, 104, 105]);
            let (mut i, mut j) = (tensor(&[], &[row]), tensor(&[], &[i64::from(column)]));
            let tensors =
                &mut [Some(&mut a), Some(&mut update), Some(&mut i), Some(&mut j), Some(&mut out)];
            call("kiln_dynamic_update_slice", tensors, &[], nth);
            assert_eq!(out.read::<u8>(), want, "at {row}, {column}, {nth} threads");
        }
    }
}

#[test]
fn a_scatter_in_place_writes_its_updates_alone() {
    for nth in [1, 3] {
        let mut x = tensor(&[4, 2], &[f16::ONE; 8]);
        let mut updates = tensor(&[2, 2], &[f16::from_f32(3.0); 4]);
        let mut rows = tensor(&[2], &[3i64, 3]);
        let tensors = [x.described(), updates.described(), rows.described(), x.described()];
        for kind in [0, 1] {
            run("kiln_scatter", &tensors, &[kind, 0], nth);
        }
        let want = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0].map(f16::from_f32);
        assert_eq!(x.read::<f16>(), want, "{nth} threads");
    }
}

#[test]
fn halves_are_rounded_once() {
    // Just above the midpoint of two f16: rounding to f32 first would land on the midpoint, then go
    // to even.
    assert_eq!(<f16 as Element>::narrow(1.0 + 2f64.powi(-11) + 2f64.powi(-40)).to_bits(), 0x3c01);
    assert_eq!(<f16 as Element>::narrow(1.0 + 2f64.powi(-11)).to_bits(), 0x3c00);
    assert_eq!(<bf16 as Element>::narrow(-1.0 - 2f64.powi(-8) - 2f64.powi(-45)).to_bits(), 0xbf81);
    assert_eq!(<f16 as Element>::narrow(1e9).to_bits(), 0x7c00);
    assert_eq!(<bf16 as Element>::narrow(1e300).to_bits(), 0x7f80);
}

#[test]
fn wrong_words_compute_nothing() {
    let (mut x, mut out) = (tensor(&[3], &[1f32; 3]), tensor(&[3], &[5f32; 3]));
    call("kiln_cumulative", &mut [Some(&mut x), Some(&mut out)], &[0, 7], 1);
    call("kiln_cumulative", &mut [Some(&mut x)], &[0, 0], 1);
    assert_eq!(out.read::<f32>(), [5.0; 3]);
}

/// Parts of e^(sign 2 pi i k / n).
fn root(k: usize, n: usize, sign: f64) -> (f64, f64) {
    let angle = sign * std::f64::consts::TAU * (k % n) as f64 / n as f64;
    (angle.cos(), angle.sin())
}

#[test]
fn transforms_are_those_of_the_definition() {
    for (n, rows) in [(1, 3), (2, 5), (8, 1), (15, 4), (67, 2), (100, 40), (521, 3)] {
        let half = n / 2 + 1;
        let values = |k: u64| {
            let all = random(rows * n).map(move |v| ((v ^ k) % 2000) as f64 / 1000.0 - 1.0);
            all.collect::<Vec<f64>>()
        };
        let (x, y) = (values(0), values(77));
        for (inverse, nth) in [(false, 1), (true, 3), (false, 9)] {
            let sign = if inverse { 1.0 } else { -1.0 };
            let dft = |re: &dyn Fn(usize) -> f64, im: &dyn Fn(usize) -> f64, k: usize| {
                (0..n).fold((0.0, 0.0), |sum, j| {
                    let (c, s) = root(j * k, n, sign);
                    (sum.0 + re(j) * c - im(j) * s, sum.1 + re(j) * s + im(j) * c)
                })
            };
            let near = |have: &[f64], want: &[f64]| {
                assert_eq!(have.len(), want.len());
                for (a, b) in have.iter().zip(want) {
                    assert!((a - b).abs() < 1e-10 * n as f64, "{n}, {inverse}: {a} {b}");
                }
            };
            let pairs = |kind, from, to| [kind, n as i64, i64::from(inverse), from, to];
            let config = |kind| pairs(kind, 0, 0);
            let both = |re: &[f64], im: &[f64]| {
                re.iter().zip(im).flat_map(|(a, b)| [*a, *b]).collect::<Vec<f64>>()
            };
            let empty = |n: usize| tensor(&[rows, n], &vec![0f64; rows * n]);
            let all = |count: usize, at: &dyn Fn(usize, usize) -> f64| {
                (0..rows * count).map(|i| at(i / count, i % count)).collect::<Vec<f64>>()
            };

            let (mut re, mut im) = (tensor(&[rows, n], &x), tensor(&[rows, n], &y));
            let (mut a, mut b) = (empty(n), empty(n));
            let tensors = &mut [Some(&mut re), Some(&mut im), Some(&mut a), Some(&mut b)];
            call("kiln_fft", tensors, &config(0), nth);
            let of = |r: usize, k: usize| dft(&|j| x[r * n + j], &|j| y[r * n + j], k);
            near(&a.read::<f64>(), &all(n, &|r, k| of(r, k).0));
            near(&b.read::<f64>(), &all(n, &|r, k| of(r, k).1));

            let mut b = empty(n);
            let tensors = &mut [Some(&mut re), Some(&mut im), None, Some(&mut b)];
            call("kiln_fft", tensors, &config(0), nth);
            near(&b.read::<f64>(), &all(n, &|r, k| of(r, k).1));

            let mut z = tensor(&[rows, n, 2], &both(&x, &y));
            let mut c = empty(2 * n);
            call("kiln_fft", &mut [Some(&mut z), Some(&mut c)], &pairs(0, 1, 1), nth);
            assert_eq!(c.read::<f64>(), both(&a.read::<f64>(), &b.read::<f64>()));

            let (mut a, mut b) = (empty(half), empty(half));
            call("kiln_fft", &mut [Some(&mut re), Some(&mut a), Some(&mut b)], &config(1), nth);
            let of = |r: usize, k: usize| dft(&|j| x[r * n + j], &|_| 0.0, k);
            near(&a.read::<f64>(), &all(half, &|r, k| of(r, k).0));
            near(&b.read::<f64>(), &all(half, &|r, k| of(r, k).1));

            let mut c = empty(2 * half);
            call("kiln_fft", &mut [Some(&mut re), Some(&mut c)], &pairs(1, 0, 1), nth);
            assert_eq!(c.read::<f64>(), both(&a.read::<f64>(), &b.read::<f64>()));

            // Imaginary parts of numbers that are their own conjugates do not count.
            let (u, v) = (&x[..rows * half], &y[..rows * half]);
            let (mut re, mut im) = (tensor(&[rows, half], u), tensor(&[rows, half], v));
            let mut a = empty(n);
            call("kiln_fft", &mut [Some(&mut re), Some(&mut im), Some(&mut a)], &config(2), nth);
            let im = |r: usize, j: usize| match j {
                j if j == 0 || 2 * j == n => 0.0,
                j if 2 * j < n => v[r * half + j],
                j => -v[r * half + n - j],
            };
            let of = |r: usize, k: usize| dft(&|j| u[r * half + j.min(n - j)], &|j| im(r, j), k).0;
            near(&a.read::<f64>(), &all(n, &of));
            let mut z = tensor(&[rows, half, 2], &both(u, v));
            let mut b = empty(n);
            call("kiln_fft", &mut [Some(&mut z), Some(&mut b)], &pairs(2, 1, 0), nth);
            assert_eq!(a.read::<f64>(), b.read::<f64>());
        }
    }
}

//! Control flow in graphs: the same functions eagerly, interpreted, and compiled with static and
//! symbolic sizes.
use super::*;
use kiln::{
    cond,
    dialects::value::DType::*,
    map, scan, scan_reverse,
    tensor::{Graph, TraceError},
    while_loop,
};

pub type Results = Result<Vec<Tensor>, TraceError>;
pub type Body = fn(Vec<Tensor>) -> Results;
/// A name, a function, and its arguments.
pub type Case = (&'static str, Body, Vec<Vec<Tensor>>);
/// How to run a function: a description, the backend, whether with symbolic sizes.
pub type How = (&'static str, &'static str, Option<bool>);

/// The functions that also run on a GPU.
pub const CASES: [fn() -> Case; 11] = [
    branches,
    swap,
    fibonacci,
    nested,
    scanned,
    scanned_backwards,
    mapped,
    sizes,
    super::custom_ops::custom,
    small_rows,
    super::ptx::case,
];

/// The differences between a function's programs and its eager results on the host.
pub fn differences(
    (name, f, calls): &Case,
    (how, backend, dynamic): How,
    device: &str,
    mode: &str,
) -> Vec<String> {
    let g = kiln::compile(*f)
        .backend(backend)
        .dynamic(dynamic)
        .fullgraph(true)
        .device(device)
        .mode(mode);
    let mut wrong = vec![];
    for (i, x) in calls.iter().enumerate() {
        let want = f(x.clone()).unwrap_or_else(|e| panic!("{name}, op by op: {e}"));
        // Twice, since the second call reuses buffers.
        for _ in 0..2 {
            let at = format!("{name}, {how}, call {i}");
            let have = match g.call(x.clone()) {
                Ok(have) => have,
                Err(e) => {
                    wrong.push(format!("{at}: {e}"));
                    continue;
                }
            };
            assert_eq!(have.len(), want.len());
            for (h, w) in have.iter().zip(&want) {
                let ranks = [h, w].map(|t| t.dims().expect("sizes").len());
                let (h, w) = (numbers(h), numbers(w));
                let near = h.len() == w.len()
                    && h.iter().zip(&w).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0));
                if !near || ranks[0] != ranks[1] {
                    wrong.push(format!("{at}: {h:?}, op by op {w:?}"));
                }
            }
        }
    }
    wrong
}

/// Runs a function in every way and compares it with eager execution.
pub fn agree(case: Case) {
    crate::watchdog::arm();
    for how in [
        ("interpreted", "interpreter", None),
        ("static", "kiln", Some(false)),
        ("symbolic", "kiln", Some(true)),
        ("interpreted with symbols", "interpreter", Some(true)),
        ("eager", "eager", None),
    ] {
        let wrong = differences(&case, how, "cpu", "default");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

pub fn floats(all: &[f32]) -> Tensor {
    Tensor::from_slice(&[all.len()], all).expect("a tensor")
}

fn branches() -> Case {
    let f: Body = |x| {
        let y = &x[0] * 2;
        let c = y.sum(.., false).gt(3);
        let z = cond(
            &c,
            |v: Tensor| (v + 1).exp().sum(.., false),
            |v: Tensor| (&v - &y).sum(.., false),
            x[0].clone(),
        )?;
        Ok(vec![z, y])
    };
    ("cond", f, vec![vec![counting(&[3])], vec![counting(&[3]) - 4], vec![counting(&[5])]])
}

#[test]
fn one_of_two_functions() {
    agree(branches());
}

fn swap() -> Case {
    let f: Body = |x| {
        let (a, b) = (x[0].clone(), x[1].clone());
        let c = a.select(0, 0).lt(b.select(0, 0));
        let (p, q) = cond(
            &c,
            |(a, b): (Tensor, Tensor)| (a, b),
            |(a, b): (Tensor, Tensor)| (b, a),
            (a.clone(), b),
        )?;
        let constant = cond(
            &c,
            |()| Graph::current().full((2,), 7.0, F32),
            |()| Graph::current().zeros((2,), F32),
            (),
        )?;
        Ok(vec![p, q + a, constant])
    };
    (
        "swap",
        f,
        vec![
            vec![floats(&[1.0, 5.0]), floats(&[2.0, 3.0])],
            vec![floats(&[4.0, 5.0]), floats(&[2.0, 3.0])],
        ],
    )
}

#[test]
fn a_branch_returns_its_argument() {
    agree(swap());
}

fn fibonacci() -> Case {
    // Fibonacci: loop-carried values swap, so a buffer that is still read must not be overwritten.
    let f: Body = |x| {
        let (a, b, n) = while_loop(
            |(_, b, _): (Tensor, Tensor, Tensor)| b.amax(.., false).lt(1000),
            |(a, b, n): (Tensor, Tensor, Tensor)| (b.clone(), a + b, n + 1),
            (x[0].clone(), x[0].ones_like(), Graph::current().full((), 0, I64)),
        )?;
        Ok(vec![a, b, n])
    };
    ("fibonacci", f, vec![vec![counting(&[3])], vec![counting(&[4]) * 600], vec![counting(&[2])]])
}

#[test]
fn a_function_as_long_as_a_condition_holds() {
    agree(fibonacci());
}

fn nested() -> Case {
    let f: Body = |x| {
        let w = x[1].clone();
        let out = while_loop(
            |(v, i): (Tensor, Tensor)| i.lt(6).logical_and(v.amax(.., false).lt(50)),
            |(v, i): (Tensor, Tensor)| -> Result<(Tensor, Tensor), TraceError> {
                let even = (&i % 2).eq(0);
                let v = cond(
                    even,
                    |v: Tensor| v.matmul(&w).relu(),
                    |v: Tensor| cond(v.sum(.., false).gt(0), |v: Tensor| v + 1, |v: Tensor| -v, v),
                    v,
                )?;
                let (_, rows) =
                    scan(|c: Tensor, r: Tensor| (&c + &r, c * 0.5 + r), w.select(0, 0), v)?;
                Ok((rows, i + 1))
            },
            (x[0].clone(), Graph::current().full((), 0, I64)),
        )?;
        Ok(vec![out.0, out.1])
    };
    let w = Tensor::from_slice(&[2, 2], &[0.5f32, -1.0, 0.25, 1.5]).expect("a tensor");
    ("nested", f, vec![vec![counting(&[3, 2]), w.clone()], vec![counting(&[4, 2]) - 3, w]])
}

#[test]
fn loops_and_branches_nest() {
    agree(nested());
}

fn scanned() -> Case {
    let f: Body = |x| {
        let (last, (sums, squares)) = scan(
            |c: Tensor, (r, s): (Tensor, Tensor)| (&c + &r, (&c + r, s * 2)),
            x[0].select(0, 0).zeros_like(),
            (x[0].clone(), x[1].clone()),
        )?;
        Ok(vec![last, sums, squares])
    };
    let calls = |n: usize| vec![counting(&[n, 3]), counting(&[n])];
    ("scan", f, vec![calls(4), calls(2), calls(7)])
}

fn scanned_backwards() -> Case {
    let f: Body = |x| {
        let (last, all) = scan_reverse(
            |c: Tensor, r: Tensor| (&c * 2 + &r, c + r),
            x[0].select(0, 0),
            x[0].clone(),
        )?;
        Ok(vec![last, all])
    };
    ("scan_reverse", f, vec![vec![counting(&[4, 3])], vec![counting(&[3, 3])]])
}

fn mapped() -> Case {
    let f: Body = |x| {
        let w = x[1].clone();
        let (a, b) = map(|r: Tensor| (r.matmul(&w).softmax(-1), r.sum(.., false)), x[0].clone())?;
        Ok(vec![a, b])
    };
    (
        "map",
        f,
        vec![
            vec![counting(&[3, 2, 4]), counting(&[4, 5])],
            vec![counting(&[2, 2, 4]), counting(&[4, 5])],
        ],
    )
}

/// Rows of 3, 1 and 4 elements of several dtypes, nested: most are unaligned for vector loads on a
/// GPU.
fn small_rows() -> Case {
    let f: Body = |x| {
        let (last, rows) = scan(
            |c: Tensor,
             (r, flags): (Tensor, Tensor)|
             -> Result<(Tensor, (Tensor, Tensor)), TraceError> {
                let (sum, parts) = scan(|c: Tensor, e: Tensor| (&c + &e, (c + &e, e.gt(2))), c, r)?;
                Ok((sum, (parts.0, parts.1.logical_or(&flags))))
            },
            Graph::current().full((), 0.5, F32),
            (x[0].clone(), x[0].gt(4)),
        )?;
        let doubled = map(|r: Tensor| r.to(F16) * 2, x[0].t())?;
        Ok(vec![last, rows.0, rows.1.to(I64), doubled.to(F32)])
    };
    ("rows", f, vec![vec![counting(&[4, 3])], vec![counting(&[5, 3])], vec![counting(&[2, 3])]])
}

#[test]
fn a_function_for_each_slice() {
    [scanned, scanned_backwards, mapped, small_rows].into_iter().for_each(|case| agree(case()));
}

#[test]
fn a_scan_of_nothing_returns_the_initial_values() {
    crate::watchdog::arm();
    let f =
        kiln::compile(|c: Tensor, x: Tensor| scan(|c: Tensor, r: Tensor| (&c + &r, r * 2), c, x));
    let (last, all) = f.call((floats(&[1.0, 2.0]), counting(&[0, 2]))).expect("a result");
    assert_eq!((numbers(&last), numbers(&all)), (vec![1.0, 2.0], vec![]));
    assert_eq!(all.dims().expect("sizes"), [0, 2]);
}

fn sizes() -> Case {
    let f: Body = |x| {
        let n = x[0].size(0);
        let c = x[1].gt(0);
        let y = cond(
            c,
            |()| Graph::current().arange(0, n, 1),
            |()| Graph::current().full((n,), 3, I64),
            (),
        )?;
        Ok(vec![y])
    };
    let scalar = |x: f32| Tensor::scalar(x).expect("a tensor");
    ("sizes", f, vec![vec![counting(&[3]), scalar(1.0)], vec![counting(&[5]), scalar(-1.0)]])
}

#[test]
fn sizes_that_no_operand_binds() {
    agree(sizes());
}

#[test]
fn equal_bodies_share_kernels() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor| -> Result<Tensor, TraceError> {
        let step = |x: Tensor| map(|r: Tensor| (r * 3 + 1).tanh(), x);
        step(step(x)?)
    })
    .backend("kiln");
    f.call(counting(&[5, 8])).expect("a result");
    let explained = f.explain();
    let kernels: Vec<_> = explained.graphs[0].kernels.iter().map(|k| &k.1).collect();
    assert!(kernels.len() == 2 && kernels[0] == kernels[1], "{explained}");
    let traced = kiln::trace(|g| {
        let step = |x: Tensor| map(|r: Tensor| (r * 3 + 1).tanh(), x);
        step(step(g.input("x", F32, (5, 8)))?)
    });
    let traced = traced.expect("a module");
    let exe = kiln::Model::from_module(traced.module(), std::path::Path::new(""))
        .compile(&kiln::Options::default())
        .expect("compiles");
    let made = exe.times().compile.as_ref().map(|c| c.kernel_count);
    assert_eq!((exe.program().parts().len(), made), (2, Some(1)), "two programs of one kernel");
}

#[test]
fn a_break_in_a_loop_runs_it_step_by_step() {
    crate::watchdog::arm();
    let f = |x: Tensor| {
        while_loop(
            |x: Tensor| x.sum(.., false).lt(100),
            |x: Tensor| -> Result<Tensor, TraceError> {
                Ok(&x * x.amax(.., false).item::<f64>()?.max(2.0))
            },
            x,
        )
    };
    let g = kiln::compile(f);
    for start in [2.0, 3.0] {
        let x = floats(&[1.0, start]);
        assert_eq!(numbers(&g.call(&x).expect("a result")), numbers(&f(x).expect("a result")));
    }
    assert!(g.explain().breaks.len() == 1 || g.explain().breaks.len() == 2, "{}", g.explain());
}

#[test]
fn mismatches_are_errors_with_lines() {
    crate::watchdog::arm();
    let line = |text: &str| {
        format!(
            "control.rs:{}:",
            include_str!("control.rs").lines().position(|l| l.contains(text)).expect("a line") + 1
        )
    };
    let wrong = kiln::compile(|x: Tensor| {
        cond(x.sum(.., false).gt(0), |x: Tensor| x.clone(), |x: Tensor| x.sum(.., true), x) // other sizes
    });
    let e = message(wrong.call(counting(&[3])));
    assert!(
        e.contains(&line("// other sizes"))
            && e.contains("gives (f32[1]) where (f32[3]) is needed"),
        "{e}"
    );
    let e = message(
        kiln::compile(|x: Tensor| cond(&x, |x: Tensor| x.clone(), |x: Tensor| x, x.clone()))
            .call(counting(&[3])),
    );
    assert!(e.contains("has a condition of f32[3], which is no truth value"), "{e}");
    let e = message(
        kiln::compile(|x: Tensor| {
            while_loop(|x: Tensor| x.sum(.., false).lt(3), |x: Tensor| x.to(I64), x)
        })
        .call(counting(&[3])),
    );
    assert!(e.contains("gives (i64[3]) where (f32[3]) is needed"), "{e}");
    let e = message(
        kiln::compile(|x: Tensor| {
            cond(x.sum(.., false).lt(3), |x: Tensor| (x, 1i64), |x: Tensor| (x, 2i64), x)
                .map(|r| r.0)
        })
        .call(counting(&[3])),
    );
    assert!(e.contains("in a graph only tensors can"), "{e}");
    let e = message(
        kiln::compile(|x: Tensor| map(|r: Tensor| &r + "no".len() as i64, x))
            .call(Tensor::scalar(1.0f32).expect("a tensor")),
    );
    assert!(e.contains("takes tensors with a first dimension"), "{e}");
}

#[test]
fn region_values_do_not_escape() {
    crate::watchdog::arm();
    let e = message(
        kiln::compile(|x: Tensor| -> Result<Tensor, TraceError> {
            let kept = std::cell::RefCell::new(None);
            let keep = |x: Tensor| {
                let y = x.exp();
                *kept.borrow_mut() = Some(y.clone());
                y
            };
            let y = cond(x.sum(.., false).gt(0), keep, |x: Tensor| x, x.clone())?;
            Ok(y + kept.into_inner().unwrap_or(x))
        })
        .call(counting(&[3])),
    );
    assert!(e.contains("the traced graph is wrong") && e.contains("dominate"), "{e}");
}

/// A loop over a body without weights, as a module.
pub fn looping() -> kiln::tensor::Traced {
    kiln::trace(|g| {
        let x = g.input("x", F32, (g.dim("rows", 1..=64), 3));
        while_loop(|x: Tensor| x.amax(.., false).lt(100), |x: Tensor| x * 2 + 1, x)
    })
    .expect("a module")
}

#[test]
fn a_package_holds_all_programs() {
    use kiln::{Model, Options, runtime::View, runtime::ViewMut};
    crate::watchdog::arm();
    let traced = looping();
    let model = Model::from_module(traced.module(), std::path::Path::new(""));
    let exe = model.compile(&Options { threads: 1, ..Default::default() }).expect("compiles");
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("loop.kpkg");
    std::fs::write(&path, exe.package().to_bytes().expect("bytes")).expect("written");
    let loaded = kiln::load(&path)
        .expect("a package")
        .compile(&Options { threads: 1, ..Default::default() })
        .expect("links");
    // Column-major first: the initial loop value is copied if it is not row-major.
    let x = [1.0f32, 5.0, 2.0, 6.0, 3.0, 7.0];
    // SAFETY: 2 x 3 elements.
    let columns = unsafe { View::strided("f32", &[2, 3], &[1, 2], x.as_ptr().cast()) };
    let rows = [1.0f32, 2.0, 3.0, 5.0, 6.0, 7.0];
    for exe in [&exe, &loaded] {
        for view in [columns, View::from_slice(&[2, 3], &rows).expect("a view")] {
            let mut y = [0.0f32; 6];
            exe.call(&[view], &mut [ViewMut::from_slice(&[2, 3], &mut y).expect("a view")])
                .expect("a call");
            // 7, 15, 31, 63, 127.
            assert_eq!(y, [31.0, 47.0, 63.0, 95.0, 111.0, 127.0]);
        }
        let mut y = [0.0f32; 3];
        let long = vec![0.0f32; 65 * 3];
        let e = exe.call(
            &[View::from_slice(&[65, 3], &long).expect("a view")],
            &mut [ViewMut::from_slice(&[1, 3], &mut y).expect("a view")],
        );
        assert!(
            e.expect_err("an error")
                .to_string()
                .contains("size rows (dimension 0 of input 'x') is 65; the program takes 1 to 64")
        );
    }
}

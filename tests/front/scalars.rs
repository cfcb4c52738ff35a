//! Scalar arguments.
use super::*;
use kiln::{
    Backend, Options, Runnable, Scalar, backend,
    backend::GraphModule,
    compile::Topic,
    dialects::value::DType::*,
    tensor::{Graph, TraceError},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

fn text(f: &[kiln::runtime::Guards]) -> String {
    f.iter().map(|g| g.to_string()).collect::<Vec<_>>().join("--\n")
}

#[test]
fn the_second_value_of_a_scalar_makes_it_an_input() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor, a: Scalar| (&x * &a + 1).relu()).name("f");
    for (i, (a, programs)) in
        [(2.0, 1), (2.0, 1), (0.5, 2), (-3.25, 2), (1e-3, 2), (2.0, 2)].into_iter().enumerate()
    {
        let have = numbers(&f.call((&counting(&[4]), a)).expect("a result"));
        let want: Vec<f64> = (0..4).map(|n| (f64::from(n) * a + 1.0).max(0.0)).collect();
        assert!(
            have.iter().zip(&want).all(|(h, w)| (h - w).abs() < 1e-6),
            "call {i}: {have:?} is not {want:?}"
        );
        assert_eq!(f.programs(), programs, "call {i}\n{}", text(&f.guards()));
    }
    assert!(f.guards()[0].to_string().contains("arg1 == 2.0"), "{}", text(&f.guards()));
    assert!(f.guards()[1].to_string().contains("arg1: any float"), "{}", text(&f.guards()));
    let said = f.remarks();
    assert!(said.len() == 1 && said[0].topic == Topic::Recompiles, "{said:?}");
    assert!(
        said[0]
            .message
            .contains("arg1 == 2.0: it was 2.0, now it is 0.5; from now on it is an input"),
        "{said:?}"
    );
    // An integer is not a float: each kind of scalar has its own program.
    assert_eq!(numbers(&f.call((&counting(&[4]), 3i64)).expect("a result")), [1.0, 4.0, 7.0, 10.0]);
    assert!(f.remarks().iter().any(|r| r.message.contains("float")), "{:?}", f.remarks());
}

#[test]
fn dynamic_says_when_numbers_are_inputs() {
    crate::watchdog::arm();
    let scale = |x: Tensor, a: Scalar| x * a;
    let (open, fixed) = (kiln::compile(scale).dynamic(true), kiln::compile(scale).dynamic(false));
    let x = counting(&[3]);
    kiln::mark_static(&x, 0).expect("a mark");
    for (i, a) in [4i64, 7, -2, 0].into_iter().enumerate() {
        for f in [&open, &fixed] {
            assert_eq!(
                numbers(&f.call((&x, a)).expect("a result")),
                [0.0, a as f64, 2.0 * a as f64]
            );
        }
        assert_eq!((open.programs(), fixed.programs()), (1, i + 1));
    }
    assert!(fixed.remarks()[0].message.contains("dynamic is false"), "{:?}", fixed.remarks());
    assert!(open.guards()[0].to_string().contains("arg1: any integer"));
}

/// Every op with scalar arguments, with each kind of scalar, against the uncompiled function with
/// plain numbers.
#[test]
fn a_scalar_argument_acts_as_a_constant() {
    crate::watchdog::arm();
    type Op = fn(&Tensor, &Scalar) -> Tensor;
    let ops: &[(&str, Op)] = &[
        ("add", |x, a| x + a),
        ("sub left", |x, a| a - x),
        ("mul", |x, a| x.clone() * a.clone()),
        ("div", |x, a| x / a),
        ("div left", |x, a| a / (x + 1)),
        ("rem", |x, a| x % a),
        ("pow", |x, a| x.pow(a)),
        ("clamp", |x, a| x.clamp(0.5, a)),
        ("clamp_min", |x, a| x.clamp_min(a)),
        ("gt", |x, a| x.gt(a)),
        ("where", |x, a| x.gt(1).where_(x, a)),
        ("masked_fill", |x, a| x.masked_fill(x.gt(1), a)),
        ("full", |x, a| x + Graph::current().full((3,), a, F32)),
        ("full_like", |x, a| x.full_like(a)),
        ("maximum", |x, a| x.maximum(a)),
        ("logical_and", |x, a| x.logical_and(a)),
        ("arithmetic", |x, a| x * ((a * 2 + 1) / 4 - a.clone() * a) + -a),
        ("tensor", |x, a| x + a.tensor().to(F32)),
    ];
    for dtype in [F32, BF16, I64, I32] {
        let x = counting(&[3]).to(dtype);
        for (name, op) in ops {
            let compiled = kiln::compile(move |x: Tensor, a: Scalar| op(&x, &a))
                .dynamic(true)
                .backend("interpreter");
            let segments = kiln::compile(move |x: Tensor, a: Scalar| op(&x, &a))
                .dynamic(true)
                .backend("interpreter")
                .options([("break_each_op", "true")]);
            for a in [Scalar::from(2i64), Scalar::from(5i64), Scalar::from(2.5), Scalar::from(0.75)]
            {
                // As part of a program.
                let y = a.clone();
                let plain = kiln::compile(move |x: Tensor| op(&x, &y))
                    .backend("interpreter")
                    .call(&x)
                    .expect(name);
                let eager =
                    kiln::tensor::with_backend("interpreter", || op(&x, &a)).expect("a backend");
                let (have, parts) = (
                    compiled.call((&x, a.clone())).expect(name),
                    segments.call((&x, a.clone())).expect(name),
                );
                assert_eq!(have.type_name(), plain.type_name(), "{name} of {dtype} and {a:?}");
                for (other, what) in [(&plain, "plain"), (&eager, "eager"), (&parts, "segments")] {
                    assert_eq!(
                        have.type_name(),
                        other.type_name(),
                        "{name} of {dtype} and {a:?}, {what}"
                    );
                    let near = numbers(&have)
                        .iter()
                        .zip(numbers(other))
                        .all(|(h, w)| (h - w).abs() <= 1e-6 * w.abs() || *h == w);
                    assert!(near, "{name} of {dtype} and {a:?}: {have}, {what} {other}");
                }
            }
            // Integers and floats; the power of an integer needs a constant exponent.
            let want = if *name == "pow" && !dtype.is_float() { 3 } else { 2 };
            assert_eq!(
                compiled.programs(),
                want,
                "{name} of {dtype}\n{}",
                text(&compiled.guards())
            );
        }
    }
}

#[test]
fn an_integer_is_a_size() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor, n: Scalar| {
        let rows = Graph::current().full((n.size(), 2), &n, F32);
        (rows.sum(0, false) + x, Graph::current().arange(0i64, &n, 1i64))
    });
    for (n, programs) in [(3i64, 1), (5, 2), (9, 2), (200, 2), (1, 3), (0, 4), (7, 4)] {
        let (sum, counted) = f.call((counting(&[2]), n)).unwrap_or_else(|e| panic!("{n}: {e}"));
        let square = (n * n) as f64;
        assert_eq!(numbers(&sum), [square, square + 1.0], "{n}");
        assert_eq!(numbers(&counted), (0..n).map(|i| i as f64).collect::<Vec<_>>());
        assert_eq!(f.programs(), programs, "{n}\n{}", text(&f.guards()));
    }
    let guards = f.guards()[1].to_string();
    assert!(
        guards.contains("arg1: any integer") && guards.contains("s0 = arg1 in 2..="),
        "{guards}"
    );
    // In comparisons with sizes it decides like one.
    let g = kiln::compile(|x: Tensor, n: Scalar| if n.size() > x.size(0) { x * 2 } else { x })
        .dynamic(true)
        .backend("interpreter");
    for (rows, n) in [(4usize, 3i64), (4, 5), (7, 3), (3, 9), (2, 2)] {
        let have = numbers(&g.call((counting(&[rows]), n)).expect("a result"));
        assert_eq!(
            have[1],
            if n > rows as i64 { 2.0 } else { 1.0 },
            "{rows} {n}\n{}",
            text(&g.guards())
        );
    }
    assert_eq!(g.programs(), 2, "{}", text(&g.guards()));
    // It is specialised where a constant is needed, and where a size is computed from it outside of
    // size arithmetic.
    let weight = counting(&[6]);
    let h = kiln::compile(move |x: Tensor, n: Scalar| {
        (Graph::current().full((n.size(),), 1.0, F32) + &weight).sum(.., false) + x * n
    });
    let h = h.dynamic(true).backend("interpreter");
    assert_eq!(numbers(&h.call((&counting(&[]), 6i64)).expect("a result")), [21.0]);
    assert!(
        h.remarks()[0].message.contains("arg1 as a size stays the number 6"),
        "{:?}",
        h.remarks()
    );
    assert!(h.guards()[0].to_string().contains("arg1 == 6"), "{}", text(&h.guards()));
    let twice =
        kiln::compile(|x: Tensor, n: Scalar| x + Graph::current().full(((&n * 2).size(),), n, F32))
            .dynamic(true)
            .backend("interpreter");
    for n in [2i64, 3] {
        assert_eq!(
            numbers(&twice.call((&counting(&[]), n)).expect("a result")),
            vec![n as f64; 2 * n as usize]
        );
    }
    assert_eq!(twice.programs(), 2);
    assert!(
        twice.remarks()[0].message.contains(
            "arg1 is the number 2 in this program, since a size cannot be computed from it"
        ),
        "{:?}",
        twice.remarks()
    );
}

#[test]
fn a_scalar_that_is_read_is_specialised() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor, a: Scalar| if a.value() > 3.0 { x * &a } else { x + &a })
        .dynamic(true)
        .backend("interpreter");
    for (i, a) in [2.0, 4.0, 5.0, 2.0, 4.0].into_iter().enumerate() {
        let want = if a > 3.0 { a } else { 1.0 + a };
        assert_eq!(numbers(&f.call((&counting(&[2]), a)).expect("a result"))[1], want);
        assert_eq!(f.programs(), (i + 1).min(3), "{}", text(&f.guards()));
    }
    assert!(f.guards()[1].to_string().contains("arg1 == 4.0"), "{}", text(&f.guards()));
    let said: Vec<String> = f.remarks().iter().map(|r| r.message.clone()).collect();
    assert!(
        said[0].contains("arg1 is the number 2.0 in this program, since the function reads it at ")
            && said[0].contains(file!()),
        "{said:?}"
    );
    assert!(said[1].contains("it was 2.0, now it is 4.0; each value has a program of its own, since the function reads it"), "{said:?}");
    // Values computed from it, too; other scalars stay inputs.
    let g = kiln::compile(
        |x: Tensor, a: Scalar, b: Scalar| if (&a * 2).integer() == Some(8) { x * b } else { x + b },
    );
    let g = g.dynamic(true).backend("interpreter");
    for (a, b) in [(4i64, 2.0), (4, 3.0), (5, 3.0), (5, 4.0)] {
        let have = numbers(&g.call((counting(&[2]), a.into(), b.into())).expect("a result"))[1];
        assert_eq!(have, if a == 4 { b } else { b + 1.0 });
    }
    assert_eq!(g.programs(), 2, "{}", text(&g.guards()));
    assert!(
        g.guards()[0].to_string().contains("arg1 == 4\narg2: any float"),
        "{}",
        text(&g.guards())
    );
}

#[test]
fn scalars_as_results_in_control_flow_and_segments() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor, a: Scalar, n: Scalar, flag: Scalar| {
        let x = if flag.value() != 0.0 { x * 2 } else { x };
        let y = kiln::cond(
            x.sum(.., false).gt(&a),
            |x: Tensor| &x * &a,
            |x: Tensor| &x + &a,
            x.clone(),
        )?;
        Ok::<_, TraceError>((y, &a * 2, n.clone(), &n + 1, a / n))
    })
    .dynamic(true)
    .backend("interpreter");
    for (a, n, flag) in [(2.5, 4i64, true), (7.0, 5, true), (0.5, 1, true), (0.5, 1, false)] {
        let (y, twice, same, next, quotient) =
            f.call((counting(&[3]), a.into(), n.into(), flag.into())).expect("results");
        let x = if flag { 2.0 } else { 1.0 };
        assert_eq!(numbers(&y)[1], if x * 3.0 > a { x * a } else { x + a }, "{a} {n} {flag}");
        assert_eq!(
            (twice.value(), same.integer(), next.integer()),
            (2.0 * a, Some(n), Some(n + 1))
        );
        assert_eq!(quotient.value(), a / n as f64);
    }
    assert_eq!(f.programs(), 2, "{}", text(&f.guards()));
    // A function that reads a tensor: one program per segment, whatever the scalars.
    let g = kiln::compile(|x: Tensor, a: Scalar| {
        let y = &x * &a + 1;
        Ok::<_, TraceError>(if y.sum(.., false).item::<f64>()? > 5.0 { y - &a } else { y })
    })
    .backend("interpreter");
    for a in [1.0, 2.0, 3.0, 0.5, 0.25] {
        let y = [1.0, a + 1.0, 2.0 * a + 1.0];
        let large = y.iter().sum::<f64>() > 5.0;
        assert_eq!(
            numbers(&g.call((&counting(&[3]), a)).expect("a result")),
            y.map(|y| if large { y - a } else { y })
        );
    }
    assert_eq!((g.programs(), g.explain().graphs.len()), (1, 2), "{}", g.explain());
}

#[test]
fn constants_are_specialised_and_the_limit_names_the_remedy() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor, a: f64| x * a)
        .backend("interpreter")
        .options([("cache_size_limit", "2")]);
    for a in [1.0, 2.0, 3.0, 4.0] {
        assert_eq!(numbers(&f.call((counting(&[2]), a)).expect("a result"))[1], a);
    }
    assert_eq!((f.programs(), f.explain().eager_calls), (2, 2));
    let said = f.remarks();
    assert!(
        said[0].message.contains("take it") || said[0].message.contains("kiln::Scalar"),
        "{said:?}"
    );
    assert!(
        said.iter().any(|r| r.topic == Topic::CacheLimit && r.message.contains("kiln::Scalar")),
        "{said:?}"
    );
}

/// The interpreter, counting compilations.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Backend for Counting {
    fn name(&self) -> &str {
        "counting"
    }
    fn summary(&self) -> &str {
        "the interpreter, which counts"
    }
    fn compile(&self, graph: &GraphModule, options: &Options) -> Result<Arc<dyn Runnable>, Error> {
        self.0.fetch_add(1, Ordering::SeqCst);
        backend::find("interpreter")?.expect("a backend").compile(graph, options)
    }
}

#[test]
fn an_eager_op_with_many_scalars_has_few_programs() {
    crate::watchdog::arm();
    let counted = Arc::new(Counting::default());
    backend::register(counted.clone()).expect("a new name");
    let programs = |body: &dyn Fn()| {
        let before = counted.0.load(Ordering::SeqCst);
        kiln::tensor::with_backend("counting", body).expect("a backend");
        counted.0.load(Ordering::SeqCst) - before
    };
    let x = counting(&[2, 3, 1]);
    let multiply =
        || (0..20).for_each(|a| assert_eq!(numbers(&(&x * f64::from(a)))[5], 5.0 * f64::from(a)));
    // Four specialised, and one general program.
    assert_eq!(programs(&multiply), 5);
    assert_eq!(programs(&multiply), 0);
    // An op that needs constants, even of scalars marked dynamic.
    let range =
        |a: &Scalar| Graph::current().arange(0.0, 10.0, a).dims().expect("sizes")[0].known();
    let steps = [(0.5, 20), (1.0, 10), (2.0, 5), (4.0, 3), (5.0, 2), (10.0, 1), (0.25, 40)];
    assert_eq!(
        programs(&|| steps
            .iter()
            .for_each(|(step, n)| assert_eq!(range(&Scalar::from(*step)), Some(*n)))),
        7
    );
    let count = || {
        (1..9i64).for_each(|n| {
            assert_eq!(Graph::current().arange(0i64, n, 1i64).dims().expect("sizes")[0], n)
        })
    };
    assert_eq!(programs(&count), 8);
    // One requested by a function that is past its limit.
    let f = kiln::compile(|x: Tensor, a: f64| x + a)
        .backend("counting")
        .options([("cache_size_limit", "2")]);
    let calls = || {
        (0..20).for_each(|a| {
            assert_eq!(
                numbers(&f.call((x.clone(), f64::from(a))).expect("a result"))[1],
                1.0 + f64::from(a)
            )
        })
    };
    assert_eq!(programs(&calls), 2 + 5);
}

/// A function of scalars with control flow, against the uncompiled one.
fn flows(name: &str, f: fn(Tensor, Scalar, Scalar) -> Result<Vec<Tensor>, TraceError>) {
    crate::watchdog::arm();
    for (backend, dynamic) in
        [("kiln", None), ("kiln", Some(true)), ("kiln", Some(false)), ("interpreter", None)]
    {
        let g = kiln::compile(f).backend(backend).dynamic(dynamic).fullgraph(true);
        for (i, (n, a)) in [(3i64, 0.5), (5, 0.5), (0, -1.25), (7, 2.0)].into_iter().enumerate() {
            let x = counting(&[3]);
            let want = f(x.clone(), n.into(), a.into()).unwrap_or_else(|e| panic!("{name}: {e}"));
            let have = g
                .call((x.clone(), Scalar::from(n), Scalar::from(a)))
                .unwrap_or_else(|e| panic!("{name}, {backend} {dynamic:?}, call {i}: {e}"));
            for (h, w) in have.iter().zip(&want) {
                let (h, w) = (numbers(h), numbers(w));
                let near = h.len() == w.len()
                    && h.iter().zip(&w).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0));
                assert!(
                    near,
                    "{name}, {backend} {dynamic:?}, call {i}: {h:?}, without compiling {w:?}"
                );
            }
        }
        // One for the first values, then one per scalar that becomes an input.
        let most = [4, 3, 1][dynamic.map_or(1, |d| 2 * usize::from(d))];
        assert!(g.programs() <= most, "{name}, {backend} {dynamic:?}: {} programs", g.programs());
    }
}

#[test]
fn a_loop_carries_numbers() {
    flows("while_loop", |x, n, a| {
        let (x, i, a) = kiln::while_loop(
            |(_, i, _): (Tensor, Scalar, Scalar)| i.tensor().lt(&n),
            |(x, i, a): (Tensor, Scalar, Scalar)| (&x * &a + &i, i + 1, a * 0.5 + 1),
            (x, Scalar::from(0i64), a),
        )?;
        Ok(vec![x, i.tensor(), a.tensor().to(F32)])
    });
    flows("only numbers", |x, n, _| {
        let (a, b) = kiln::while_loop(
            |(a, _): (Scalar, Scalar)| a.tensor().lt(100),
            |(a, b): (Scalar, Scalar)| (&a + &b, a),
            (n, Scalar::from(1i64)),
        )?;
        Ok(vec![x * a, b.tensor()])
    });
    flows("scan", |x, n, a| {
        let ((a, n), all) = kiln::scan(
            |(a, n): (Scalar, Scalar), r: Tensor| ((&a * 2 + 1, &n - 1), r * &a + n),
            (a, n),
            x,
        )?;
        Ok(vec![all, a.tensor().to(F32), n.tensor()])
    });
}

#[test]
fn branches_take_and_give_numbers() {
    flows("cond", |x, n, a| {
        let (y, m) = kiln::cond(
            x.sum(.., false).gt(&n),
            |(x, n, a): (Tensor, Scalar, Scalar)| (x * &a, n + 1),
            |(x, n, a): (Tensor, Scalar, Scalar)| (x + a, n * 3),
            (x.clone(), n, a),
        )?;
        Ok(vec![y * &m, m.tensor()])
    });
    flows("a condition of numbers", |x, n, a| {
        let y = kiln::cond(n.tensor().gt(4), |x: Tensor| x.exp(), |x: Tensor| x * &a, x)?;
        Ok(vec![y])
    });
}

#[test]
fn reading_a_carried_scalar_breaks_the_graph() {
    crate::watchdog::arm();
    let f = |x: Tensor| -> Result<Tensor, TraceError> {
        let (x, n) = kiln::while_loop(
            |(x, _): (Tensor, Scalar)| x.amax(.., false).lt(20),
            |(x, n): (Tensor, Scalar)| (x * 2, n + 1),
            (x, Scalar::from(0i64)),
        )?;
        Ok(x + if n.integer() == Some(4) { 100 } else { 0 })
    };
    let g = kiln::compile(f);
    for start in [1, 2, 30] {
        let x = counting(&[3]) + start;
        assert_eq!(
            numbers(&g.call(&x).expect("a result")),
            numbers(&f(x).expect("a result")),
            "{start}"
        );
    }
    assert!(!g.explain().breaks.is_empty(), "{}", g.explain());
    let e = message(kiln::compile(f).fullgraph(true).call(counting(&[3])));
    assert!(e.contains("scalars.rs:"), "{e}");
    // The kind of a scalar is fixed, and a stack of scalars is not a scalar.
    let e = message(
        kiln::compile(|x: Tensor| {
            let one = |(x, n): (Tensor, Scalar)| (x + &n, n / 2);
            kiln::while_loop(
                |(x, _): (Tensor, Scalar)| x.amax(.., false).lt(20),
                one,
                (x, Scalar::from(4i64)),
            )
            .map(|r| r.0)
        })
        .call(counting(&[3])),
    );
    assert!(e.contains("gives (f32[3], f64[]) where (f32[3], i64[]) is needed"), "{e}");
    let e = message(
        kiln::compile(|x: Tensor, a: Scalar| kiln::map(|r: Tensor| (r, &a * 2), x).map(|r| r.0))
            .dynamic(true)
            .call((counting(&[3]), 0.5)),
    );
    assert!(e.contains("gives a number for each slice"), "{e}");
}

//! Symbolic sizes: arithmetic, comparison, printing, propagation through ops, and runs at several
//! values.
use super::*;
use kiln::dialects::value::DType::*;

#[test]
fn sizes_are_expressions() {
    kiln::trace(|g| {
        let (b, t) = (g.dim("b", 1..=64), g.dim_by("t", 8..=512, 8));
        let x = &g.input("x", F32, (b, t, 4));
        assert_eq!(x.to_string(), "f32[b, t, 4]");
        assert_eq!(x.dims()?, [b, t, Dim::from(4)]);
        assert!(x.size(-2) == t && x.size(2) == 4 && x.size(0) != t);
        assert_eq!(g.dim("b", 1..=64), b);
        assert_eq!(b * 2 + b, 3 * b);
        assert_eq!(b - b, Dim::from(0));
        assert_eq!((b * t * 4) / t, 4 * b);
        assert_eq!((t * 4) % 2, Dim::from(0));
        assert_eq!((b.min(100), b.max(0)), (b, b));
        assert_eq!(format!("{} {} {:?}", 2 * b, t * b, t / 3), "2*b b*t floordiv(t, 3)");
        assert_eq!((b + 1).expression().sub(&b.expression()), kiln::dialects::sym::Dim::Known(1));
        assert!(b.known().is_none() && Dim::from(3).known() == Some(3));
        for (have, want) in [
            (x.flatten(0, 1), vec![b * t, Dim::from(4)]),
            (x.reshape((b, -1)), vec![b, t * 4]),
            (x.permute([2, 0, 1]), vec![Dim::from(4), b, t]),
            (x.slice(1, 1, END), vec![b, t - 1, Dim::from(4)]),
            (g.cat(&[x.clone(), x.clone()], 0), vec![b * 2, t, Dim::from(4)]),
            (
                x.unsqueeze(0).expand([3.into(), b, t, 4.into()]),
                vec![Dim::from(3), b, t, Dim::from(4)],
            ),
            (g.arange(0, t, 1), vec![t]),
            (x.sum([0, 2], true), vec![Dim::from(1), t, Dim::from(1)]),
            (x.matmul(x.transpose(1, 2)), vec![b, t, t]),
            (x.pad((1, 1, 0, t), 0.0), vec![b, t * 2, Dim::from(6)]),
            (x.full_like(1).repeat((1, 2, 1)), vec![b, 2 * t, Dim::from(4)]),
        ] {
            assert_eq!(have.dims()?, want);
        }
        Ok(x.clone())
    })
    .expect("a program");
}

#[test]
fn contradictions_are_errors_where_they_are_written() {
    for (i, want) in ["sizes", "another range", "no size"].into_iter().enumerate() {
        let r = kiln::trace(|g| {
            let b = g.dim("b", 1..=8);
            let x = &g.input("x", F32, (b, 2));
            Ok(match i {
                0 => x + g.zeros((b + 1, 2), F32),
                1 => x * g.dim("b", 1..=9),
                _ => x * g.dim("c", -3..=4),
            })
        });
        let Err(TraceError::Ops(all)) = r else { panic!("case {i} was traced") };
        assert!(
            all.len() == 1 && all[0].reason.contains(want) && all[0].file == file!(),
            "{all:?}"
        );
    }
}

/// A size used by an op is the same number at the call.
#[test]
fn one_program_runs_at_every_size() {
    let traced = kiln::trace_all(|g| {
        let (b, t) = (g.dim("b", 1..=64), g.dim("t", 1..=64));
        let x = &g.input("x", F32, (b, t, 4));
        let y = &g.input("y", F32, (b * 2, 4));
        let mean = x.sum([0, 1], false) / (b * t);
        let causal = g.ones((t, t), F32).tril(0).eq(0.0);
        let scores = x.matmul(x.transpose(1, 2)).masked_fill(causal, f64::NEG_INFINITY).softmax(-1);
        let position = g.arange(0, t, 1).unsqueeze(-1) + x.to(I64);
        let folded = x.reshape((b * t, -1)).sum(1, false);
        let z = y.reshape((b, 2, 4)).sum(1, true) + x;
        let up = x.unsqueeze(0).interpolate_nearest((t * 2, 4));
        Ok(vec![
            mean,
            scores,
            position,
            folded,
            z,
            up,
            x.select(1, -1),
            x.slice(1, t - 1, t),
            x.narrow(0, b - 1, 1),
        ])
    })
    .expect("a program");
    for lowered in [false, true] {
        if lowered {
            lower(&traced.captured);
        }
        for (b, t) in [(1usize, 1usize), (2, 3), (5, 1), (3, 7)] {
            let numbers: Vec<f64> = (0..b * t * 4).map(|i| (i % 7) as f64 - 3.0).collect();
            let x = value::Tensor::floats(F32, vec![b, t, 4], numbers.clone()).expect("a tensor");
            let y = value::Tensor::floats(F32, vec![2 * b, 4], vec![0.5; 8 * b]).expect("a tensor");
            let all = run(&traced.captured, &[x, y]).expect("results");
            let shapes: Vec<_> = all.iter().map(|r| r.shape().to_vec()).collect();
            let want: [&[usize]; 9] = [
                &[4],
                &[b, t, t],
                &[b, t, 4],
                &[b * t],
                &[b, t, 4],
                &[1, b, 2 * t, 4],
                &[b, 4],
                &[b, 1, 4],
                &[1, t, 4],
            ];
            assert_eq!(shapes, want, "b = {b}, t = {t}");
            let f = |i: usize| all[i].as_f().expect("floats").to_vec();
            let at = |i: usize, j: usize| numbers[4 * i + j];
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert!((0..4).all(|j| near(
                f(0)[j],
                (0..b * t).map(|i| at(i, j)).sum::<f64>() / (b * t) as f64
            )));
            // The first query attends only to itself.
            assert!(near(f(1)[0], 1.0) && f(1)[1..t].iter().all(|p| *p == 0.0));
            assert!((0..b * t).all(|i| near(f(3)[i], (0..4).map(|j| at(i, j)).sum())));
            assert!(f(4).iter().zip(&numbers).all(|(z, x)| near(*z, x + 1.0)));
            assert!(f(6).iter().zip(&f(7)).all(|(a, b)| a == b));
        }
        let wrong = value::Tensor::floats(F32, vec![3, 4], vec![0.0; 12]).expect("a tensor");
        let x = value::Tensor::floats(F32, vec![2, 1, 4], vec![0.0; 8]).expect("a tensor");
        assert!(run(&traced.captured, &[x, wrong]).is_err(), "y has to have twice the rows of x");
    }
}

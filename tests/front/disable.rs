//! `kiln::disable`: functions that are excluded from graphs.
use super::*;
use kiln::{compile::Topic, tensor::TraceError};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The location of the marked line of this file.
fn line(mark: &str) -> String {
    // Not the asking line itself.
    let found =
        include_str!("disable.rs").lines().position(|l| l.contains(mark) && l.contains("// "));
    format!("disable.rs:{}:", found.expect("a line") + 1)
}

#[test]
fn a_region_runs_op_by_op_between_two_programs() {
    crate::watchdog::arm();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    // The region is in no graph: it reads values, and every call runs it.
    let region = kiln::disable(move |x: Tensor, y: Tensor| -> Result<(Tensor, i64), TraceError> {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(if x.sum(.., false).item::<f64>()? > 0.0 { (x - y, 1) } else { (x * y, 2) })
    });
    let f = kiln::compile(move |x: Tensor| -> Result<(Tensor, i64), TraceError> {
        let y = (&x * 2 + 1).abs();
        let (z, way) = region.call((&x, &y))?; // the region
        Ok(((z * 3 - y).exp().sum(.., false), way))
    })
    .name("f");
    let plain = |x: &[f64]| {
        let y: Vec<f64> = x.iter().map(|x| (x * 2.0 + 1.0).abs()).collect();
        let way = if x.iter().sum::<f64>() > 0.0 { 1 } else { 2 };
        let z = x.iter().zip(&y).map(|(x, y)| if way == 1 { x - y } else { x * y });
        (z.zip(&y).map(|(z, y)| (z * 3.0 - y).exp()).sum::<f64>(), way)
    };
    // Later calls, on both paths, and other sizes.
    let calls: [&[f64]; 6] = [
        &[0.5, 0.25],
        &[-0.5, 0.25],
        &[0.75, -0.5],
        &[0.1, 0.2, 0.3],
        &[-0.1, 0.05, 0.0, 0.01],
        &[0.5, 0.25],
    ];
    for (i, x) in calls.into_iter().enumerate() {
        let given =
            Tensor::from_slice(&[x.len()], &x.iter().map(|x| *x as f32).collect::<Vec<_>>())
                .expect("a tensor");
        let ((have, way), want) = (f.call(given).expect("a result"), plain(x));
        assert!(
            (numbers(&have)[0] - want.0).abs() < 1e-4 * want.0 && way == want.1,
            "call {i}: {have} {way} {want:?}"
        );
    }
    // During a trace the region's function is not called.
    assert_eq!(runs.load(Ordering::Relaxed), 6);
    // Before it and after it, at three sizes.
    let explained = f.explain();
    assert_eq!(
        explained.graphs.iter().map(|g| g.calls).collect::<Vec<_>>(),
        [4, 4, 1, 1, 1, 1],
        "{explained}"
    );
    let why = "a function is called that kiln::disable keeps out of graphs";
    assert!(
        explained.breaks.len() == 1 && explained.breaks[0].location.contains(&line("the region")),
        "{explained}"
    );
    assert_eq!(explained.breaks[0].reason, why);
    let said = f.remarks();
    assert!(
        said.len() == 1
            && said[0].topic == Topic::GraphBreaks
            && said[0].location.contains(&line("the region")),
        "{said:?}"
    );
    assert!(said[0].message.contains(why), "{said:?}");
}

#[test]
fn it_reads_values_and_its_results_are_inputs() {
    crate::watchdog::arm();
    let region = kiln::disable(|all: Vec<Tensor>, a: f64| -> Vec<Tensor> {
        all.into_iter().map(|t| t * a).collect()
    });
    let f = kiln::compile(move |x: Tensor| -> Result<Tensor, TraceError> {
        // One is an argument, one is recorded, one has no other owner.
        let y = &x + 1;
        let all = region.call((vec![x.clone(), y.clone(), &y * 2], 10.0))?;
        let again = region.call((vec![&all[0] + &all[1], all[2].clone()], 0.5))?;
        Ok(&again[0] - &again[1] + y)
    });
    for n in [1, 3, 3, 2] {
        let x = counting(&[n]);
        // ((10 x + 10 y) - 20 y) / 2 + y, where y = x + 1.
        let want: Vec<f64> = numbers(&x)
            .iter()
            .map(|x| (10.0 * x + 10.0 * (x + 1.0) - 20.0 * (x + 1.0)) / 2.0 + x + 1.0)
            .collect();
        assert_eq!(numbers(&f.call(&x).expect("a result")), want);
    }
    assert_eq!(f.explain().breaks.len(), 2);
}

#[test]
fn nested_functions_break_at_their_call() {
    crate::watchdog::arm();
    let region = kiln::disable(|x: Tensor| x.exp());
    let inner = kiln::compile(move |x: Tensor| -> Result<Tensor, TraceError> {
        Ok(region.call(&x * 2)? + 1)
    })
    .name("inner");
    let inner = Arc::new(inner);
    let also = inner.clone();
    let outer = kiln::compile(move |x: Tensor| -> Result<Tensor, TraceError> {
        let y = also.call(&x - 1).map_err(|e| match e {
            Error::Trace(e) => e,
            e => TraceError::User(e.into()),
        })?;
        Ok(y * 3)
    })
    .name("outer");
    let want = |x: f64| ((2.0 * (x - 1.0)).exp() + 1.0) * 3.0;
    for n in [2, 2, 4] {
        let x = counting(&[n]) / 4;
        for (have, x) in numbers(&outer.call(&x).expect("a result")).into_iter().zip(numbers(&x)) {
            assert!((have - want(x)).abs() < 1e-4, "{have} {x}");
        }
    }
    // The inner function was part of the outer one.
    assert_eq!((outer.explain().breaks.len(), inner.programs()), (1, 0));
    // On its own it has its own programs, with elements of the outer one too.
    inner.call(counting(&[2])).expect("a result");
    assert_eq!((inner.programs(), inner.explain().breaks.len()), (1, 1));
    // In a disabled region a compiled function runs eagerly.
    let calls = inner.clone();
    let around =
        kiln::disable(move |x: Tensor| calls.call(x).map_err(|e| TraceError::User(e.into())));
    let before = inner.explain().eager_calls;
    let x = counting(&[7]);
    assert_eq!(numbers(&around.call(&x).expect("a result")), numbers(&((&x * 2).exp() + 1)));
    assert_eq!((inner.programs(), inner.explain().eager_calls), (1, before + 1));
}

#[test]
fn control_flow_around_a_region_runs_in_segments() {
    crate::watchdog::arm();
    let region = Arc::new(kiln::disable(|x: Tensor| x + 1));
    let f = kiln::compile(move |x: Tensor| -> Result<Tensor, TraceError> {
        let region = region.clone();
        kiln::while_loop(|x: Tensor| x.select(0, 0).lt(5), move |x: Tensor| region.call(x * 1), x)
    });
    for first in [0.0f32, 3.0, 9.0] {
        let y =
            f.call(Tensor::from_slice(&[2], &[first, -1.0]).expect("a tensor")).expect("a result");
        let steps = (5.0 - f64::from(first)).max(0.0);
        assert_eq!(numbers(&y), [f64::from(first) + steps, steps - 1.0]);
    }
}

#[test]
fn fullgraph_reports_line_and_remedy() {
    crate::watchdog::arm();
    let region = kiln::disable(|x: Tensor| x * 2);
    let f = kiln::compile(move |x: Tensor| -> Result<Tensor, TraceError> {
        region.call(x + 1) // of one graph
    })
    .fullgraph(true);
    let text = message(f.call(counting(&[3])));
    assert!(text.contains(&line("of one graph")), "{text}");
    for part in [
        "kiln::disable keeps out of graphs",
        "custom_op",
        "in front of the compiled function or behind it",
        "fullgraph(false)",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert_eq!(f.programs(), 0);
    // A plain trace, outside of a compiled function, cannot resume.
    let alone = kiln::disable(|x: Tensor| x * 2);
    let traced = kiln::trace(|g| alone.call(g.input("x", kiln::dialects::value::DType::F32, (2,))));
    assert!(traced.is_err_and(|e| e.to_string().contains("kiln::disable")));
}

#[test]
fn elsewhere_it_just_runs_and_its_errors_have_locations() {
    crate::watchdog::arm();
    let region = kiln::disable(|x: Tensor, y: Tensor| x.matmul(y)); // the op
    let (x, y) = (counting(&[1, 2]), counting(&[2, 1]));
    assert_eq!(numbers(&region.call((&x, &y)).expect("a result")), [1.0]);
    let text = |r: Result<Tensor, TraceError>| r.expect_err("an error").to_string();
    let found = text(region.call((&x, &x)));
    assert!(found.contains(&line("the op")) && found.contains("matmul"), "{found}");
    // A location that an argument carries takes precedence.
    let found = text(region.call((&(&x + &counting(&[3])), &y)));
    assert!(found.contains("add") && !found.contains("matmul"), "{found}");
    let f = kiln::compile(move |x: Tensor| -> Result<Tensor, TraceError> { region.call((&x, &x)) });
    let found = message(f.call(&x));
    assert!(found.contains(&line("the op")) && found.contains("matmul"), "{found}");
}

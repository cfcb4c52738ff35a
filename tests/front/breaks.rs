//! Graph breaks: the segments between reads of values have programs, and every path through the
//! function is correct.
use super::*;
use kiln::{compile::Topic, tensor::TraceError};

/// Two paths, by the sum; both use a value computed before the read.
fn branch_on_sum(x: Tensor) -> Result<Tensor, TraceError> {
    let y = &x * 2 + 1;
    let sum = y.sum(.., false);
    Ok(if sum.item::<f64>()? > 0.0 { (y - 1).relu() } else { y.abs() * &sum })
}

#[test]
fn alternating_paths_do_not_recompile() {
    crate::watchdog::arm();
    let f = kiln::compile(branch_on_sum).name("by_sum");
    let (up, down) = (counting(&[3]), counting(&[3]) - 5);
    for i in 0..6 {
        let x = if i % 2 == 0 { &up } else { &down };
        let (have, want) =
            (f.call(x).expect("a result"), branch_on_sum(x.clone()).expect("a result"));
        assert_eq!(numbers(&have), numbers(&want), "call {i}");
    }
    let explained = f.explain();
    // The segment before the read, and two after it.
    assert_eq!(
        explained.graphs.iter().map(|g| g.calls).collect::<Vec<_>>(),
        [6, 3, 3],
        "{explained}"
    );
    assert!(
        explained.graphs.iter().all(|g| !g.kernels.is_empty()) && explained.eager_calls == 0,
        "{explained}"
    );
    let line = include_str!("breaks.rs")
        .lines()
        .position(|l| l.contains("sum.item::<f64>"))
        .expect("a line")
        + 1;
    assert!(
        explained.breaks.len() == 1
            && explained.breaks[0].location.contains(&format!("breaks.rs:{line}:")),
        "{explained}"
    );
    let remarks = f.remarks();
    assert!(
        remarks.len() == 1
            && remarks[0].topic == Topic::GraphBreaks
            && remarks[0].location.contains(&format!("{line}:")),
        "{remarks:?}"
    );
}

#[test]
fn a_loop_until_a_value_is_small_is_two_programs() {
    crate::watchdog::arm();
    let f = kiln::compile(|mut x: Tensor| -> Result<(Tensor, i64), TraceError> {
        let mut n = 0;
        while x.abs().sum(.., false).item::<f64>()? > 1.0 {
            x = x / 2;
            n += 1;
        }
        Ok((x, n))
    });
    for (first, steps) in [(8.0f32, 3), (1000.0, 10), (0.5, 0)] {
        let (x, n) =
            f.call(Tensor::from_slice(&[1], &[first]).expect("a tensor")).expect("a result");
        assert_eq!(
            (numbers(&x)[0], n),
            (f64::from(first) / f64::powi(2.0, steps), i64::from(steps))
        );
    }
    // The first test; and a step with its test.
    assert_eq!(f.explain().graphs.len(), 2, "{}", f.explain());
}

#[test]
fn dead_values_are_dropped_and_live_values_are_not_recomputed() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor| -> Result<(Tensor, f64, Tensor), TraceError> {
        let kept = x.exp();
        let dropped = x.sin() + 1;
        let sum = (&kept + dropped).sum(.., false);
        // Printing reads.
        let text = format!("{sum}");
        Ok((kept, text.parse().unwrap_or(f64::NAN), x))
    });
    let x = Tensor::from_slice(&[2], &[0.0f32; 2]).expect("a tensor");
    for _ in 0..2 {
        let (kept, text, same) = f.call(&x).expect("a result");
        assert_eq!((numbers(&kept), text, numbers(&same)), (vec![1.0, 1.0], 4.0, vec![0.0, 0.0]));
    }
    let explained = f.explain();
    assert_eq!(explained.graphs.len(), 1, "{explained}");
}

#[test]
fn fullgraph_makes_a_break_an_error_with_line_and_remedy() {
    crate::watchdog::arm();
    let f = kiln::compile(branch_on_sum).fullgraph(true);
    let text = message(f.call(counting(&[3])));
    assert!(
        text.contains("breaks.rs:")
            && text.contains("read")
            && text.contains("where_")
            && text.contains("fullgraph(false)"),
        "{text}"
    );
    assert_eq!(f.programs(), 0);
    // A function that swallows the error is still one with a graph break.
    let swallows =
        kiln::compile(|x: Tensor| if x.item::<f64>().is_ok_and(|v| v > 0.0) { &x + 1 } else { x });
    let one = Tensor::from_slice(&[1], &[1.0f32]).expect("a tensor");
    (0..2).for_each(|_| assert_eq!(numbers(&swallows.call(&one).expect("a result")), [2.0]));
}

#[test]
fn errors_after_a_break_have_locations_and_limits_hold() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor| -> Result<Tensor, TraceError> {
        x.array()?;
        Ok((&x + 1).matmul(&x))
    });
    let text = message(f.call(counting(&[2, 3])));
    assert!(text.contains("breaks.rs:") && text.contains("matmul"), "{text}");
    let g = kiln::compile(|x: Tensor| -> Result<Tensor, TraceError> {
        x.array()?;
        Ok(x * 2)
    })
    .options([("cache_size_limit", "1")])
    .backend("interpreter");
    for n in 1..12 {
        assert_eq!(numbers(&g.call(counting(&[n])).expect("a result")).len(), n);
    }
    assert_eq!(g.explain().graphs.len(), 8);
    assert_eq!(g.remarks().iter().filter(|r| r.topic == Topic::CacheLimit).count(), 1);
}

#[test]
fn weights_after_a_break_are_current() {
    use kiln::nn::{Linear, Module, Scope};
    crate::watchdog::arm();
    let layer = Linear::without_bias(&Scope::root(), 2, 1);
    let set = |w: f64| {
        let value = kiln::dialects::value::Tensor::floats(
            kiln::dialects::value::DType::F32,
            vec![1, 2],
            vec![w; 2],
        )
        .expect("a tensor");
        layer.parameters()[0].set(&value).expect("it fits");
    };
    let f = kiln::compile(|x: Tensor| -> Result<Tensor, TraceError> {
        x.array()?;
        Ok(layer.forward(&x))
    });
    for w in [1.0, 3.0] {
        set(w);
        assert_eq!(numbers(&f.call(counting(&[1, 2])).expect("a result")), [w]);
    }
    assert_eq!(f.explain().graphs.len(), 1);
}

#[test]
fn different_segments_are_different_paths() {
    use std::cell::Cell;
    crate::watchdog::arm();
    let (x, y) = (counting(&[3]) + 1, counting(&[3]) * 5 - 2);
    // Segments depend on numbers that are not arguments: an attribute, operand order, the op, their
    // count, mid-run.
    let way = std::rc::Rc::new(Cell::new(0));
    let ways = |n: i64, x: &Tensor, y: &Tensor| {
        let z = x * 2 - y;
        let z = match n {
            0 => &z + 3,
            1 => &z + 4,
            2 => &z + 3.0,
            3 => &z - y,
            4 => y - &z,
            5 => &z - x,
            6 => z.sum(0, false),
            7 => z.sum(0, true),
            8 => (&z + 3) * 2,
            9 => kiln::tensor::Graph::current().cat(&[z.clone(), y.clone(), x.clone()], 0),
            _ => kiln::tensor::Graph::current().cat(&[z.clone(), y.clone()], 0),
        };
        z.abs() + 1
    };
    let here = way.clone();
    let f = kiln::compile(move |x: Tensor, y: Tensor| -> Result<(Tensor, f64), TraceError> {
        let z = ways(here.get(), &x, &y);
        let sum = z.sum(.., false).item::<f64>()?;
        Ok((z, sum))
    });
    for n in (0..11).chain((0..11).rev()).chain([3, 3, 5, 5, 0]) {
        way.set(n);
        let (z, sum) = f.call((&x, &y)).expect("a result");
        let want = numbers(&ways(n, &x, &y));
        assert_eq!((numbers(&z), sum), (want.clone(), want.iter().sum()), "way {n}");
    }
    assert_eq!(f.explain().graphs.len(), 11, "{}", f.explain());
}

#[test]
fn an_op_after_one_op_and_after_two_are_different_paths() {
    use std::cell::Cell;
    crate::watchdog::arm();
    let x = counting(&[3]) + 1;
    let way = std::rc::Rc::new(Cell::new(0));
    // `exp` of the same operand follows one op on path 1 and two on path 2.
    let ways = |n: i64, x: &Tensor| {
        let y = x + 1;
        match n {
            0 => &y * 2 - 3,
            1 => y.exp(),
            _ => {
                let z = &y * 2;
                y.exp() - z
            }
        }
    };
    let here = way.clone();
    let f = kiln::compile(move |x: Tensor| -> Result<(Tensor, f64), TraceError> {
        let z = ways(here.get(), &x);
        let sum = z.sum(.., false).item::<f64>()?;
        Ok((z, sum))
    });
    for n in [0, 1, 2, 0, 2, 1, 1, 2, 0] {
        way.set(n);
        let (z, sum) = f.call(&x).expect("a result");
        let want = numbers(&ways(n, &x));
        assert!((sum - want.iter().sum::<f64>()).abs() < 1e-4 * sum.abs(), "way {n}");
        assert!(
            numbers(&z).iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-5 * b.abs().max(1.0)),
            "way {n}: {z} {want:?}"
        );
    }
    assert_eq!(f.explain().graphs.len(), 3, "{}", f.explain());
}

#[test]
fn aliased_inputs_in_one_call_and_distinct_in_another() {
    crate::watchdog::arm();
    let f = kiln::compile(|x: Tensor, y: Tensor| -> Result<(Tensor, f64), TraceError> {
        let z = &x * 2 - &y * &y;
        let sum = z.sum(.., false).item::<f64>()?;
        Ok((z + x, sum))
    });
    let (a, b) = (counting(&[2]) + 1, counting(&[2]) * 3);
    for (x, y) in [(&a, &b), (&a, &a), (&b, &a), (&a, &a), (&b, &b)] {
        let want = x * 2 - y * y;
        let (z, sum) = f.call((x, y)).expect("a result");
        assert_eq!((numbers(&z), sum), (numbers(&(&want + x)), numbers(&want).iter().sum()));
    }
    // A path recorded for one tensor is invalid for two.
    let g = kiln::compile(|x: Tensor, y: Tensor| -> Result<f64, TraceError> {
        (x * 2 - y).sum(.., false).item()
    });
    for (x, y) in [(&a, &a), (&a, &b), (&b, &a), (&a, &a)] {
        assert_eq!(g.call((x, y)).expect("a number"), numbers(&(x * 2 - y)).iter().sum::<f64>());
    }
}

#[test]
fn programs_differ_by_the_values_that_stay_alive() {
    use std::cell::Cell;
    crate::watchdog::arm();
    let keep = std::rc::Rc::new(Cell::new(false));
    let also = keep.clone();
    let f = kiln::compile(move |x: Tensor| -> Result<(Tensor, f64), TraceError> {
        let y = &x * 3;
        let z = &y + 1;
        let held = if also.get() { y.clone() } else { z.clone() };
        drop((y, x));
        Ok((held, z.sum(.., false).item::<f64>()?))
    });
    for kept in [false, true, false, true] {
        keep.set(kept);
        let (held, sum) = f.call(counting(&[2])).expect("a result");
        assert_eq!(
            (numbers(&held), sum),
            (if kept { vec![0.0, 3.0] } else { vec![1.0, 4.0] }, 5.0)
        );
    }
    assert_eq!(f.explain().graphs.iter().map(|g| g.calls).collect::<Vec<_>>(), [2, 2]);
}

/// A backend whose programs fail on request.
struct Failing(std::sync::Arc<std::sync::atomic::AtomicBool>);
struct FailingProgram(
    std::sync::Arc<std::sync::atomic::AtomicBool>,
    std::sync::Arc<dyn kiln::backend::Runnable>,
);
impl kiln::backend::Runnable for FailingProgram {
    fn run(&self, inputs: &[kiln::runtime::View]) -> Result<Vec<kiln::tensor::Array>, Error> {
        if self.0.load(std::sync::atomic::Ordering::Relaxed) {
            Err(Error::Backend("does not run today".into()))
        } else {
            self.1.run(inputs)
        }
    }
}
impl kiln::backend::Backend for Failing {
    fn name(&self) -> &str {
        "failing-segments"
    }
    fn summary(&self) -> &str {
        "fails when it is told to"
    }
    fn compile(
        &self,
        graph: &kiln::backend::GraphModule,
        options: &kiln::Options,
    ) -> Result<std::sync::Arc<dyn kiln::backend::Runnable>, Error> {
        let made =
            kiln::Model::from_graph(graph.module(), graph.weights().clone()).compile(options)?;
        Ok(std::sync::Arc::new(FailingProgram(self.0.clone(), std::sync::Arc::new(made))))
    }
}

#[test]
fn a_tensor_of_a_failed_program_stays_undefined() {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };
    crate::watchdog::arm();
    let fails = Arc::new(AtomicBool::new(false));
    kiln::backend::register(Arc::new(Failing(fails.clone()))).expect("a name of its own");
    let f = kiln::compile(|x: Tensor| -> Result<Tensor, TraceError> {
        let y = &x * 2;
        // The error is swallowed.
        let _ = y.item::<f64>();
        let other = &x * 100;
        Ok(other - y)
    })
    .backend("failing-segments");
    let one = Tensor::from_slice(&[1], &[1.0f32]).expect("a tensor");
    (0..2).for_each(|_| assert_eq!(numbers(&f.call(&one).expect("a result")), [98.0]));
    fails.store(true, Ordering::Relaxed);
    let text = message(f.call(&one));
    assert!(text.contains("did not run"), "{text}");
}

//! Custom ops of the host: in every way of running, their effects, their errors.
use super::{control::*, *};
use kiln::scan;

/// Adds one, and counts its runs.
fn counted(
    name: &str,
    effect: bool,
) -> (kiln::tensor::CustomOp, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = calls.clone();
    let op = kiln::custom_op(name)
        .shape(|x| {
            if x.len() == 1 {
                Ok(vec![x[0].clone()])
            } else {
                Err(format!("takes 1 tensor, not {}", x.len()).into())
            }
        })
        .host(move |x, y| {
            seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let (x, y) = (
                x[0].elements::<f32>().map_err(|e| e.to_string())?,
                y[0].elements_mut::<f32>().map_err(|e| e.to_string())?,
            );
            if x.first() == Some(&13.0) {
                return Err("does not take 13".into());
            }
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x + 1.0);
            Ok(())
        })
        .effect(effect)
        .register()
        .expect("registered");
    (op, calls)
}

pub fn custom() -> Case {
    static OP: std::sync::OnceLock<kiln::tensor::CustomOp> = std::sync::OnceLock::new();
    OP.get_or_init(|| counted("test::add_one", false).0);
    let f: Body = |x| {
        let op = OP.get().expect("an op");
        let y = op.one(&[&x[0] * 2]) * 3;
        let (_, all) =
            scan(|c: Tensor, r: Tensor| (op.one(&[&c + &r]), r.exp()), y.select(0, 0), y.clone())?;
        Ok(vec![all, op.one(&[y.t()]).t() + 0])
    };
    ("custom_op", f, vec![vec![counting(&[3, 2]) / 10], vec![counting(&[2, 2]) / 10]])
}

#[test]
fn custom_ops_run_in_every_way() {
    use std::sync::atomic::Ordering;
    agree(custom());
    let (effect, calls) = counted("test::effect", true);
    let g = kiln::compile(move |x: Tensor| effect.call(std::slice::from_ref(&x)).map(|_| x));
    for n in 1..4 {
        assert_eq!(numbers(&g.call(counting(&[2])).expect("a result")), [0.0, 1.0]);
        assert_eq!(
            calls.load(Ordering::Relaxed),
            n,
            "an op with an effect runs though nobody reads it"
        );
    }
    let (pure, calls) = counted("test::pure", false);
    let g = kiln::compile(move |x: Tensor| pure.call(std::slice::from_ref(&x)).map(|_| x + 1));
    g.call(counting(&[2])).expect("a result");
    assert_eq!(calls.load(Ordering::Relaxed), 0, "a pure op that nobody reads does not run");
}

#[test]
fn failing_custom_ops_report_errors() {
    crate::watchdog::arm();
    let (op, _) = counted("test::fails", false);
    let thirteen = floats(&[13.0]);
    let again = op.clone();
    let e = message(kiln::compile(move |x: Tensor| again.one(&[x + 0])).call(&thirteen));
    assert!(e.contains("test::fails") && e.contains("does not take 13"), "{e}");
    let e = op.one(std::slice::from_ref(&thirteen)).check().expect_err("an error").to_string();
    assert!(e.contains("does not take 13") && e.contains("custom_ops.rs"), "{e}");
    let e = message(kiln::compile(move |x: Tensor| op.one(&[x.clone(), x])).call(&thirteen));
    assert!(e.contains("takes 1 tensor, not 2") && e.contains("custom_ops.rs"), "{e}");
    let e = kiln::custom_op("test::fails")
        .body(|x| Ok(x.to_vec()))
        .register()
        .err()
        .expect("an error")
        .to_string();
    assert!(e.contains("there is already a custom op 'test::fails'"), "{e}");
    let e = kiln::custom_op("test::nothing").register().err().expect("an error").to_string();
    assert!(e.contains("has neither a function of the host nor a body"), "{e}");
}

//! Background compilation, while calls run eagerly.
use super::*;
use kiln::{
    Backend, Options, Runnable,
    backend::{self, GraphModule},
    compile::Topic,
    lowering::{CancellationError, driver::compile::CompileError},
    tensor::TraceError,
};
use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// The interpreter, blocked by a gate that a test opens.
#[derive(Default)]
struct Gated {
    name: String,
    open: (Mutex<bool>, Condvar),
    /// Compilations that wait at the gate or have passed it.
    begun: AtomicUsize,
    /// Whether cancellation was observed.
    stopped: AtomicBool,
    /// Whether compilation fails: always, or for symbolic sizes.
    fails: (bool, bool),
}

impl Backend for Gated {
    fn name(&self) -> &str {
        &self.name
    }
    fn summary(&self) -> &str {
        "the interpreter, when it is told to"
    }
    fn compile(&self, graph: &GraphModule, options: &Options) -> Result<Arc<dyn Runnable>, Error> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.0.lock().expect("a lock");
        while !*open {
            if let Err(why) = options.cancellation.check() {
                self.stopped.store(true, Ordering::SeqCst);
                return Err(Error::Compile(CompileError::Cancelled(why)));
            }
            open = self.open.1.wait_timeout(open, Duration::from_millis(5)).expect("a lock").0;
        }
        drop(open);
        if self.fails.0 || self.fails.1 && graph.text().contains("kiln.sym") {
            return Err(Error::Backend("it has no mind to".into()));
        }
        backend::find("interpreter")?.expect("a backend").compile(graph, options)
    }
}

fn gated(name: &str, fails: (bool, bool)) -> Arc<Gated> {
    let made = Arc::new(Gated { name: name.into(), fails, ..Gated::default() });
    backend::register(made.clone()).expect("a new name");
    made
}

impl Gated {
    fn open_gate(&self) {
        *self.open.0.lock().expect("a lock") = true;
        self.open.1.notify_all();
    }
    /// Waits for this many compilations to start.
    fn wait_for(&self, n: usize) {
        let begun = || self.begun.load(Ordering::SeqCst) >= n;
        crate::watchdog::until("nothing is compiled", begun);
    }
}

/// Eager ops run on the interpreter.
fn interpreted<R>(body: impl FnOnce() -> R) -> R {
    kiln::tensor::with_backend("interpreter", body).expect("a backend")
}

#[test]
fn calls_run_eagerly_until_the_program_is_ready() {
    crate::watchdog::arm();
    let gate = gated("gated-1", (false, false));
    let f = kiln::compile(|x: Tensor| (&x * 2 + 1).relu())
        .backend("gated-1")
        .options([("asynchronous", "true")])
        .name("f");
    interpreted(|| {
        // Nobody blocks: the gate is closed.
        for _ in 0..3 {
            assert_eq!(numbers(&f.call(counting(&[2])).expect("a result")), [1.0, 3.0]);
        }
        assert_eq!((f.programs(), f.explain().eager_calls, f.explain().graphs[0].calls), (1, 3, 0));
        assert!(
            f.explain().to_string().contains("is being compiled by another thread"),
            "{}",
            f.explain()
        );
        gate.wait_for(1);
        gate.open_gate();
        f.wait().expect("a program");
        assert_eq!(numbers(&f.call(counting(&[2])).expect("a result")), [1.0, 3.0]);
        // Other threads do not block either, and each type has one compilation.
        (0..2).for_each(|_| drop(f.call(counting(&[2, 3])).expect("a result")));
        f.wait().expect("a program");
        assert_eq!(numbers(&f.call(counting(&[1, 2])).expect("a result")), [1.0, 3.0]);
        f.wait().expect("a program");
    });
    assert_eq!(
        (f.explain().graphs[0].calls, gate.begun.load(Ordering::SeqCst)),
        (1, 3),
        "{}",
        f.explain()
    );
    assert!(f.remarks().iter().all(|r| r.topic == Topic::Recompiles), "{:?}", f.remarks());
}

#[test]
fn compile_errors_are_cached_and_reported() {
    crate::watchdog::arm();
    gated("gated-2", (true, false)).open_gate();
    let f = kiln::compile(|x: Tensor| &x + 1)
        .backend("gated-2")
        .options([("asynchronous", "true")])
        .name("f");
    interpreted(|| {
        assert_eq!(numbers(&f.call(counting(&[2])).expect("a result")), [1.0, 2.0]);
        assert_eq!(message(f.wait()), "it has no mind to");
        assert_eq!(numbers(&f.call(counting(&[2])).expect("a result")), [1.0, 2.0]);
    });
    let said = f.remarks();
    assert!(
        said.len() == 1
            && said[0].topic == Topic::Asynchronous
            && said[0].message.contains("it has no mind to"),
        "{said:?}"
    );
    assert!(
        f.explain()
            .to_string()
            .contains("was not compiled, and its calls run op by op: it has no mind to"),
        "{}",
        f.explain()
    );
    // Trace errors are errors of the call, as ever.
    let wrong = kiln::compile(|x: Tensor| x + counting(&[3]))
        .backend("gated-2")
        .options([("asynchronous", "true")]);
    assert!(wrong.call(counting(&[2])).is_err());
    // With static sizes there is a program.
    gated("gated-3", (false, true)).open_gate();
    let g = kiln::compile(|x: Tensor| &x + 1)
        .dynamic(true)
        .backend("gated-3")
        .options([("asynchronous", "true")]);
    interpreted(|| {
        g.call(counting(&[2])).expect("a result");
        assert!(g.wait().is_err());
        g.call(counting(&[2])).expect("a result");
        g.wait().expect("a program");
        assert_eq!(numbers(&g.call(counting(&[2])).expect("a result")), [1.0, 2.0]);
    });
    // The gate is open, so the second call may find the program already.
    let calls = g.explain().graphs[0].calls;
    assert!(g.programs() == 1 && (1..=2).contains(&calls), "{}", g.explain());
    assert!(
        g.remarks().iter().any(|r| r.message.contains("compiled again with sizes as numbers")),
        "{:?}",
        g.remarks()
    );
}

#[test]
fn it_ends_by_cancellation_timeout_and_drop() {
    crate::watchdog::arm();
    let gate = gated("gated-4", (false, false));
    let make = || {
        kiln::compile(|x: Tensor| &x + 1)
            .backend("gated-4")
            .options([("asynchronous", "true")])
            .name("f")
    };
    let cancelled = |f: Result<(), Error>| matches!(f, Err(Error::Asynchronous(e)) if matches!(*e, Error::Compile(CompileError::Cancelled(CancellationError::Cancelled))));
    interpreted(|| {
        let f = make();
        f.call(counting(&[2])).expect("a result");
        gate.wait_for(1);
        f.cancellation_token().cancel();
        assert!(cancelled(f.wait()));
        // No further ones start.
        assert_eq!(numbers(&f.call(counting(&[3])).expect("a result")), [1.0, 2.0, 3.0]);
        assert_eq!((f.programs(), gate.begun.load(Ordering::SeqCst)), (1, 1));
        let said = f.remarks();
        assert!(
            said.len() == 1
                && said[0].topic == Topic::CacheLimit
                && said[0].message.contains("cancelled"),
            "{said:?}"
        );
        // Dropping or resetting a function cancels its compilations only.
        let (g, other) = (make(), make());
        gate.stopped.store(false, Ordering::SeqCst);
        g.call(counting(&[2])).expect("a result");
        other.call(counting(&[2])).expect("a result");
        gate.wait_for(3);
        drop(g);
        let stopped = || gate.stopped.load(Ordering::SeqCst);
        crate::watchdog::until("it is compiled for nobody", stopped);
        gate.open_gate();
        other.wait().expect("a program");
        assert!(other.remarks().is_empty(), "{:?}", other.remarks());
        other.reset();
        other.call(counting(&[2])).expect("a result");
        other.wait().expect("a program");
        assert_eq!(other.programs(), 1);
    });
    let late = kiln::compile(|x: Tensor| (&x * 2).relu()).options([
        ("asynchronous", "on"),
        ("time_budget", "0.000000001"),
        ("cache_dir", "off"),
    ]);
    assert_eq!(numbers(&late.call(counting(&[2])).expect("a result")), [0.0, 2.0]);
    assert!(message(late.wait()).contains("time budget"));
}

#[test]
fn many_threads_call_during_compilation() {
    crate::watchdog::arm();
    // Eager ops, sizes that change, and a function that reads values.
    let f = kiln::compile(|x: Tensor| (&x * 3).sum(0, false))
        .options([("asynchronous", "true"), ("threads", "1")]);
    let g = kiln::compile(|x: Tensor| {
        let y = &x + 1;
        Ok::<_, TraceError>(if y.sum(.., false).item::<f64>()? > 8.0 { y * 2 } else { y })
    })
    .options([("asynchronous", "true"), ("threads", "1")]);
    let one = |i: usize| {
        let n = 2 + i % 3;
        let sum = (0..n).map(|i| 3.0 * i as f64).sum::<f64>();
        assert_eq!(numbers(&f.call(counting(&[n])).expect("a result")), [sum]);
        let large = n * (n + 1) / 2 > 8;
        let want: Vec<f64> =
            (1..=n).map(|i| if large { 2.0 * i as f64 } else { i as f64 }).collect();
        assert_eq!(numbers(&g.call(counting(&[n])).expect("a result")), want);
    };
    std::thread::scope(|s| {
        (0..4).for_each(|t| drop(s.spawn(move || (0..30).for_each(|i| one(i + t)))))
    });
    f.wait().expect("programs");
    g.wait().expect("programs");
    let before = (f.explain().eager_calls, g.explain().graphs.iter().map(|g| g.calls).sum::<u64>());
    (0..3).for_each(one);
    assert_eq!(f.explain().eager_calls, before.0, "{}", f.explain());
    assert!(
        g.explain().graphs.iter().map(|g| g.calls).sum::<u64>() >= before.1 + 4,
        "{}",
        g.explain()
    );
    assert!(f.programs() <= 3 && g.programs() == 1, "{}", f.explain());
}

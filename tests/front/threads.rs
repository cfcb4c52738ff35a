//! Many threads that compile and call one function.
use super::*;
use std::sync::{
    Barrier,
    atomic::{AtomicUsize, Ordering},
};

const COMPILE: usize = 8;
const CALL: usize = 64;
const CALLS: usize = 100_000;

/// Resident memory of the process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("statm");
    text.split_whitespace().nth(1).and_then(|n| n.parse::<usize>().ok()).expect("pages") * 4096
}

/// Runs in a child process, since it measures all memory.
#[test]
#[ignore = "run by the test below"]
fn child() {
    let f = kiln::compile(|x: Tensor| (&x * 2 + 1).sum(.., false))
        .dynamic(false)
        .options([("threads", "1")]);
    let inputs: Vec<Tensor> = (1..=COMPILE).map(|n| counting(&[n])).collect();
    let want = |n: usize| (0..n).map(|i| (2 * i + 1) as f64).sum::<f64>();
    let one = |i: usize| {
        assert_eq!(
            numbers(&f.call(&inputs[i % COMPILE]).expect("a result")),
            [want(i % COMPILE + 1)]
        )
    };
    let start = Barrier::new(COMPILE);
    std::thread::scope(|s| {
        for i in 0..COMPILE {
            let (start, one) = (&start, &one);
            s.spawn(move || {
                start.wait();
                // All want the first; then each one of its own.
                one(0);
                one(i);
            });
        }
    });
    assert_eq!(f.programs(), COMPILE, "{}", f.explain());
    let calls = AtomicUsize::new(0);
    let run = |n: usize| {
        std::thread::scope(|s| {
            for _ in 0..CALL {
                s.spawn(|| {
                    while calls.fetch_add(1, Ordering::Relaxed) < n {
                        one(calls.load(Ordering::Relaxed));
                    }
                });
            }
        });
    };
    run(CALLS / 4);
    let before = resident();
    run(CALLS);
    let after = resident();
    assert!(
        after < before + (4 << 20),
        "{} KiB more after {} calls",
        (after - before) >> 10,
        CALLS * 3 / 4
    );
    assert_eq!(f.programs(), COMPILE);
    assert!(f.remarks().len() == COMPILE - 1 && f.explain().eager_calls == 0, "{:?}", f.remarks());
}

#[test]
fn eight_compile_and_sixty_four_call_a_hundred_thousand_times() {
    crate::watchdog::arm();
    let child = std::process::Command::new(std::env::current_exe().expect("a path"))
        .args(["front::threads::child", "--exact", "--ignored"])
        .output()
        .expect("a process");
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&child.stderr)
    );
}

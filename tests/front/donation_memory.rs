//! Memory of steps whose weights and states are donated: on the host the resident memory of a child
//! process, on the emulator a GPU that has none to spare.
use super::*;
use kiln::compile;
use std::{process::Command, time::Duration};

/// Elements of each tensor of [`updates`].
const LARGE: usize = 8 << 20;

/// Four steps of SGD with momentum, given tensors that nothing else holds. `observe` is called after
/// each, with its number.
fn updates(device: &str, donate: bool, n: usize, observe: impl Fn(usize)) -> Result<(), Error> {
    let step = compile(|w: Tensor, m: Tensor, g: Tensor| {
        let m = m * 0.9 + g;
        (w - &m * 0.1, m)
    });
    let step = step.options([("donate", if donate { "true" } else { "false" })]);
    let full = |x: f32| Ok::<_, Error>(Tensor::from_slice(&[n], &vec![x; n])?.to_device(device));
    let (mut w, mut m, g) = (full(1.0)?, full(0.0)?, full(1.0)?);
    for i in 0..4 {
        (w, m) = step.call((w, m, g.clone()))?;
        observe(i);
    }
    let last = m.slice(0, n as i64 - 1, n as i64).to_vec::<f32>()?[0];
    assert!((last - 3.439).abs() < 1e-5, "{last}");
    w.check()?;
    Ok(())
}

/// A line of `/proc/self/status` in bytes.
fn status(name: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
    let kib: usize =
        line.and_then(|l| l.split_whitespace().next()?.parse().ok()).expect("a number");
    kib << 10
}

/// By how much steps after the first raise the resident memory.
#[test]
#[ignore = "the child of the next"]
fn growth_in_this_process() -> Result<(), Error> {
    for donate in [true, false] {
        let before = std::cell::Cell::new(0);
        updates("cpu", donate, LARGE, |i| match i {
            0 => {
                // Resets the peak to what is resident.
                std::fs::write("/proc/self/clear_refs", "5").expect("Linux");
                before.set(status("VmRSS"));
            }
            3 => println!("grows by {}", status("VmHWM").saturating_sub(before.get())),
            _ => {}
        })?;
    }
    Ok(())
}

#[test]
fn a_donated_step_needs_no_second_copy_on_the_host() {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    let test = "front::donation_memory::growth_in_this_process";
    command.args(["--ignored", "--exact", "--nocapture", test]);
    let done = crate::watchdog::run(&mut command, b"", Duration::from_secs(600));
    let text = done.text();
    let grows: Vec<usize> =
        text.split("grows by ").skip(1).filter_map(|n| n.lines().next()?.parse().ok()).collect();
    let [donated, fresh] = grows[..] else { panic!("{text}\n{}", done.stderr) };
    let one = LARGE * 4;
    assert!(donated < one / 4, "{donated} bytes, of tensors of {one}");
    assert!(fresh > 2 * one - one / 4, "{fresh} bytes, of tensors of {one}");
}

/// On a GPU whose memory holds the weight, the momentum, the gradient, and half a tensor more.
#[test]
#[ignore = "the child of the next"]
fn steps_on_a_small_gpu() -> Result<(), Error> {
    updates("cuda:0", std::env::var_os("KILN_TEST_FRESH").is_none(), 1 << 18, |_| ())
}

#[test]
fn a_donated_step_needs_no_second_copy_on_a_gpu() {
    let run = |fresh: bool| {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        let test = "front::donation_memory::steps_on_a_small_gpu";
        command.args(["--ignored", "--exact", "--nocapture", test]);
        let memory = (7 << 19).to_string();
        crate::support::emulated(&mut command).env("KILN_EMULATOR_MEMORY", memory);
        if fresh {
            command.env("KILN_TEST_FRESH", "1");
        }
        crate::watchdog::run(&mut command, b"", Duration::from_secs(600))
    };
    let (donated, fresh) = (run(false), run(true));
    assert!(donated.status.success(), "{}\n{}", donated.text(), donated.stderr);
    let said = format!("{}{}", fresh.text(), fresh.stderr);
    assert!(!fresh.status.success() && said.contains("Memory { asked: 1048576"), "{said}");
}

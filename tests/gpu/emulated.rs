//! Failures and observations on the emulator: out of memory, a trace of a run.
use super::*;
use crate::support::emulated;
use kiln::{Tensor, runtime::DeviceId};

/// `kiln` with an emulated device of this much memory.
fn kiln(args: &[&str], memory: &str) -> std::process::Output {
    crate::watchdog::arm();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    emulated(&mut command).env("KILN_CACHE_DIR", "off").env("KILN_EMULATOR_MEMORY", memory);
    command.args(args).output().expect("it runs")
}

const ALL: &str = "1000000000";

#[test]
fn out_of_memory_is_exit_5_with_the_planned_size() {
    let model = models().join("mlp.pt2");
    let run = |memory| {
        kiln(
            &["run", model.to_str().expect("a path"), "--device", "cuda:0", "--repeat", "1"],
            memory,
        )
    };
    let out = run("30000");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(5), "{said}");
    assert!(
        said.contains("no memory on the GPU for 32768 bytes of weight @net.0.weight")
            && said.contains("the program plans 105512 bytes of weights"),
        "{said}"
    );
    assert_eq!(run(ALL).status.code(), Some(0));
}

/// A child on the emulator, with memory for the second program only.
#[test]
#[ignore = "a part of the next"]
fn child() {
    let on = Options { device: DeviceId::Cuda(0), cache: CachePolicy::Off, ..Options::default() };
    let failed =
        load(models().join("mlp.pt2")).and_then(|m| m.compile(&on)).err().expect("no memory");
    assert!(
        failed.exit() == Exit::Device && failed.to_string().contains("no memory on the GPU"),
        "{failed}"
    );
    let f = kiln::compile(|x: Tensor| x * 2 + 1).device("cuda:0");
    let x = Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]).expect("a tensor");
    assert_eq!(f.call(&x).expect("a result").to_vec::<f32>().expect("f32"), [3.0, 5.0, 7.0]);
    // A call that exceeds the memory, then one that does not.
    let large = Tensor::from_slice(&[20_000], &[0.5f32; 20_000]).expect("a tensor");
    let failed = f.call(&large).expect_err("no memory");
    assert_eq!(failed.exit(), Exit::Device, "{failed}");
    assert_eq!(f.call(&x).expect("a result").to_vec::<f32>().expect("f32"), [3.0, 5.0, 7.0]);
}

#[test]
fn process_and_device_survive_out_of_memory() {
    crate::watchdog::arm();
    run_emulated("gpu::emulated::child", &[("KILN_EMULATOR_MEMORY", "60000")]);
}

/// Runs the test with three scheduling orders of threads and copies.
pub fn run_in_several_orders(test: &str) {
    crate::watchdog::arm();
    for seed in ["1", "2", "3"] {
        run_emulated(test, &[("KILN_EMULATOR_SEED", seed)]);
    }
}

/// Runs an ignored test of this binary in a child process on the emulator, with these variables.
pub fn run_emulated(test: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command
        .args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env("KILN_CACHE_DIR", "off");
    let out = emulated(&mut command).envs(variables.iter().copied()).output().expect("a process");
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && text.contains("1 passed"), "{test}: {}\n{text}", out.status);
}

#[test]
fn a_trace_has_kernels_with_their_ops() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.json");
    let (model, file) = (models().join("mlp.pt2"), trace.to_str().expect("a path"));
    let out = kiln(
        &[
            "run",
            model.to_str().expect("a path"),
            "--device",
            "cuda:0",
            "--repeat",
            "1",
            "--profile",
            file,
        ],
        ALL,
    );
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&trace).expect("a trace")).expect("JSON");
    let events = json["traceEvents"].as_array().expect("events");
    let of = |tid: u64| {
        events.iter().filter(move |e| e["ph"] == "X" && e["tid"] == tid).collect::<Vec<_>>()
    };
    let (kernels, ops) = (of(1), of(2));
    let linear = kernels.iter().find(|e| e["name"] == "dot_general_add_max").expect("a kernel");
    assert!(
        linear["dur"].as_f64().is_some_and(|t| t > 0.0)
            && linear["args"]["sources"][0].as_str().is_some_and(|s| s.starts_with("linear (")),
        "{linear}"
    );
    assert!(!ops.is_empty() && ops.iter().all(|o| o["dur"].as_f64().is_some()), "{json}");
}

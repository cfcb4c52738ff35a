//! `KILN_LOG`: every channel logs something, in a child process.
use super::*;
use kiln::{
    dialects::ir::{Context, Module},
    tensor::TraceError,
};

const SOURCE: &str = "module attributes {kiln.level = \"graph\"} {
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %0 = kiln.exp %x : tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
";

/// Takes the channels and the cache from the environment.
#[test]
#[ignore = "a part of the next"]
fn child() {
    kiln::logs::init_from_env().expect("channels");
    let f = kiln::compile(|x: Tensor| (x * 2 + 1).relu()).name("chain");
    for n in [4, 5] {
        f.call(counting(&[n])).expect("a result");
    }
    let f = kiln::compile(|x: Tensor| {
        Ok::<_, TraceError>(if x.sum(.., false).item::<f64>()? > 0.0 { x + 1 } else { x })
    })
    .name("breaks");
    f.call(counting(&[4])).expect("a result");
    let f = kiln::compile(|x: Tensor| x.exp()).mode("reduce-overhead").name("graphs");
    f.call(counting(&[4])).expect("a result");
    let f = kiln::compile(|x: Tensor| x.tanh())
        .options([
            ("max_autotune", "true"),
            ("autotune_budget", "86400"),
            ("autotune_candidates", "2"),
        ])
        .name("measured");
    f.call(counting(&[4])).expect("a result");
    let f = kiln::compile(|x: Tensor| {
        kiln::autocast("cpu", kiln::dialects::value::DType::BF16, || x.matmul(&x))
    })
    .name("mixed");
    f.call(counting(&[4, 4])).expect("a result");
    let f = kiln::compile(|x: Tensor| x.sum(.., false)).donate([0]).name("in vain");
    f.call(counting(&[4])).expect("a result");
    // An argument in another memory order than declared.
    let context = Context::new();
    let (module, _) = Module::parse(context.ctx(), SOURCE.as_bytes(), "m.mlir").expect("IR");
    let options = kiln::Options { orders: [(0, vec![1, 0])].into(), ..Default::default() };
    let exe = kiln::Model::from_module(&module, std::path::Path::new(""))
        .compile(&options)
        .expect("compiles");
    exe.call_values(&[&counting(&[4, 8]).value().expect("a value")]).expect("a result");
}

#[test]
fn every_channel_logs() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let said = |channels: &str| {
        let mut command = std::process::Command::new(std::env::current_exe().expect("this binary"));
        command.args(["front::logs::child", "--exact", "--ignored", "--nocapture"]);
        let out = command
            .env("KILN_LOG", channels)
            .env("KILN_CACHE_DIR", dir.path())
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{text}");
        text
    };
    let all = said("all");
    for (channel, _) in kiln::logs::CHANNELS {
        assert!(all.contains(&format!(" kiln::{channel}: ")), "nothing on {channel}:\n{all}");
    }
    let of = |text: &str, channel: &str, part: &str| {
        text.lines().any(|l| l.contains(&format!(" kiln::{channel}: ")) && l.contains(part))
    };
    assert!(
        of(&all, "cache", "miss")
            && !of(&all, "cache", "kernel=")
            && of(&all, "options", "cudagraphs makes no graph"),
        "{all}"
    );
    assert!(of(&all, "dynamic", "chain: dimension 0 of arg0 is the symbol "), "{all}");
    assert!(all.contains("llvm.func") && of(&all, "perf_hints", "copied"), "{all}");
    // A program from the cache logs the same, except for its code.
    let again = said("cache,fusion,schedule,output_code");
    assert!(of(&again, "cache", "hit") && !of(&again, "cache", "miss"), "{again}");
    for (channel, part) in [
        ("fusion", "maximum"),
        ("schedule", ": "),
        ("output_code", "bytes of machine code, compiled before"),
    ] {
        assert!(
            of(&again, channel, part) || (channel == "fusion" && of(&again, channel, ": ")),
            "nothing on {channel}:\n{again}"
        );
    }
    assert!(!again.contains(" kiln::guards: "), "{again}");
}

/// Kernels of control flow are logged as others are, and `+cache` logs each kernel.
#[test]
fn kernels_of_control_flow_are_logged() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("loop.mlir");
    std::fs::write(&model, crate::run::LOOP).unwrap();
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["explain", model.to_str().expect("a path")])
        .env("KILN_LOG", "fusion,schedule,+cache")
        .env("KILN_CACHE_DIR", dir.path())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&out.stderr);
    for channel in ["fusion", "schedule"] {
        assert_eq!(text.matches(&format!("INFO kiln::{channel}: ")).count(), 2, "{text}");
    }
    assert_eq!(text.matches("DEBUG kiln::cache: miss kernel=").count(), 2, "{text}");
}

//! Dumps: every pass, every kernel, times, and the page.
use crate::run::{agree, file, models, options};
use kiln::{Options, load};
use std::process::Command;

/// A dump has every pass, standalone kernels, times, and a page with complete data.
#[test]
fn a_dump_is_complete() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let with = Options { dump: Some(dir.path().join("dump")), ..options(2) };
    for n in 0..2 {
        let with = Options { diagram: n == 1, ..with.clone() };
        let exe = load(models().join("mlp.pt2")).unwrap().compile(&with).unwrap();
        agree(&exe, &file("mlp"), "with a dump");
        assert!(dir.path().join(format!("dump/mlp-{n}")).is_dir(), "each compilation has a folder");
    }
    let folder = dir.path().join("dump/mlp-0");
    assert!(!folder.join("graph.svg").exists());
    let diagram = std::fs::read_to_string(dir.path().join("dump/mlp-1/graph.svg")).unwrap();
    assert!(diagram.starts_with("<svg") && diagram.contains(" µs · f32 "), "{diagram}");
    let page = std::fs::read_to_string(folder.join("index.html")).unwrap();
    let data = page
        .split("<script id=\"data\" type=\"application/json\">")
        .nth(1)
        .and_then(|s| s.split("</script>").next())
        .expect("data");
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    assert!(
        !page.contains("http://")
            || page.matches("http://").count()
                == page.matches("http://www.w3.org/2000/svg").count(),
        "it needs the net"
    );
    let passes: Vec<&str> =
        data["passes"].as_array().unwrap().iter().filter_map(|p| p["pass"].as_str()).collect();
    for flag in [
        "input",
        "kiln-simplify",
        "kiln-fuse",
        "kiln-to-linalg",
        "kiln-tile",
        "kiln-plan",
        "kiln-host-abi",
    ] {
        assert!(passes.contains(&flag), "no {flag} in {passes:?}");
    }
    let texts = crate::run::page::texts(&page);
    let known = |p: &serde_json::Value| p["after"].as_u64().map(|i| (i as usize) < texts.len());
    assert!(data["passes"].as_array().unwrap().iter().all(|p| known(p) == Some(true)));
    assert!(texts.iter().all(|t| !t.contains(" loc(")), "places are left out");
    let timings: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("timings.json")).unwrap()).unwrap();
    assert!(timings["passes"].as_array().is_some_and(|p| p.len() > 20), "{timings}");
    let kernels = data["kernels"].as_array().unwrap();
    assert!(
        !kernels.is_empty()
            && kernels.iter().all(|k| k["time_us"].as_f64().is_some_and(|t| t > 0.0)),
        "{kernels:?}"
    );
    for k in kernels {
        let file = k["file"].as_str().expect("a file");
        let out = Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["bench", file, "--seconds", "0.001", "--no-cache"])
            .output()
            .expect("it runs");
        assert!(out.status.success(), "{file}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

/// For control flow, a dump and `KILN_LOG`'s page have the kernels of every called program, with
/// their sizes.
#[test]
fn a_dump_has_the_kernels_of_control_flow() {
    crate::watchdog::arm();
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("loop.mlir");
    std::fs::write(&model, crate::run::LOOP).unwrap();
    let exe = load(&model)
        .unwrap()
        .compile(&Options { dump: Some(dir.path().join("dump")), ..options(1) })
        .unwrap();
    assert!(exe.program().control.is_some() && exe.program().kernels.is_empty());
    let timings = std::fs::read(dir.path().join("dump/loop-0/timings.json")).unwrap();
    let timings: serde_json::Value = serde_json::from_slice(&timings).unwrap();
    let kernels = timings["kernels"].as_array().unwrap();
    let bytes: Vec<&str> = kernels.iter().filter_map(|k| k["bytes"].as_str()).collect();
    // The exponential of 5 rows of 8, and a step: a row, the loop-carried values, and the sum.
    assert_eq!(bytes, ["320", "96"], "{timings}");
    assert!(
        kernels.iter().all(|k| k["time_us"].as_f64() > Some(0.0) && k["file"].is_string()),
        "{timings}"
    );
    assert_eq!(kiln::dump::svg(exe.program(), &[]).matches("class=\"launch\"").count(), 2);
}

//! Options of the `kiln` binary.
use super::{
    command::{kiln, text},
    models,
};
use std::process::Command;

/// `--option` sets table options, over the environment and under dedicated flags.
#[test]
fn options_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let run = |env: &[(&str, &str)], more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        command
            .args(["run", "mlp.pt2", "--repeat", "1"])
            .args(more)
            .current_dir(models())
            .env("KILN_CACHE_DIR", dir.path());
        let out = command.envs(env.iter().copied()).output().expect("it runs");
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let threads = |env: &[(&str, &str)], more: &[&str], n: usize| {
        let (code, said, wrong) = run(env, more);
        assert!(code == Some(0) && said.contains(&format!(", {n} threads\n")), "{said}{wrong}");
    };
    threads(&[("KILN_NUM_THREADS", "3")], &[], 3);
    threads(&[("KILN_NUM_THREADS", "3")], &["--option", "threads=4"], 4);
    threads(
        &[("KILN_NUM_THREADS", "3")],
        &["--option", "threads=4", "--option", "threads=2", "--threads", "1"],
        1,
    );
    let dump = format!("dump={}", dir.path().join("dump").display());
    assert_eq!(run(&[], &["--option", &dump, "--option", "cache_dir=off"]).0, Some(0));
    assert!(dir.path().join("dump/mlp-0/index.html").exists());
    let (code, _, said) = run(&[], &["--option", "dynamic=true"]);
    assert!(
        code == Some(0)
            && said.contains(
                "remark: option dynamic=true changes nothing: it is for compiled functions"
            ),
        "{said}"
    );
    for (option, want) in [
        ("thread=1", "there is no option 'thread'; did you mean 'threads'?"),
        ("threads", "--option threads: that is not NAME=VALUE"),
        ("threads=257", "option threads is '257', not a number from 1 to 256"),
        ("verify=maybe", "option verify is 'maybe', not true or false"),
    ] {
        let (code, _, said) = run(&[], &["--option", option]);
        assert!(code == Some(2) && said.contains(want), "{said}");
    }
    assert_eq!(run(&[], &["--threads", "257"]).0, Some(2));
    // A mode by its variable autotunes, unless the flag says otherwise; on the host without CUDA
    // graphs.
    let tiny = dir.path().join("tiny.mlir");
    std::fs::write(
        &tiny,
        "func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {\n  %0 = kiln.tanh %x : tensor<8xf32>\n  return %0 : tensor<8xf32>\n}\n",
    )
    .unwrap();
    let measures = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
        command
            .arg("run")
            .arg(&tiny)
            .args(["--repeat", "1", "--option", "autotune_candidates=1"])
            .args(more);
        let out = command
            .env("KILN_CACHE_DIR", "off")
            .env("KILN_LOG", "autotune")
            .env("KILN_MODE", "max-autotune")
            .output()
            .expect("it runs");
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        text(&out.stderr).contains(" kiln::autotune: ")
    };
    assert!(
        measures(&[])
            && !measures(&["--mode", "default"])
            && !measures(&["--option", "max_autotune=false"])
    );
    // Another cache folder.
    let cache = text(
        &kiln(&[
            "cache",
            "stat",
            "--option",
            &format!("cache_dir={}", dir.path().display()),
            "--option",
            "cache_size=3M",
        ])
        .stdout,
    );
    assert!(cache.contains(&format!("{}, at most 3072 KiB", dir.path().display())), "{cache}");
    let listed = text(&kiln(&["options"]).stdout);
    for o in kiln::list_options() {
        assert!(
            listed.contains(o.name) && listed.contains(o.variable) && listed.contains(o.summary),
            "{}\n{listed}",
            o.name
        );
    }
}

//! Unsupported requests and their messages.
use super::*;

fn kiln(args: &[&str]) -> (Option<i32>, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(args)
        .env("KILN_CACHE_DIR", "off")
        .current_dir(models())
        .output()
        .expect("it runs");
    (
        out.status.code(),
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr),
    )
}

#[test]
fn missing_driver_is_reported() {
    if kiln::runtime::cuda::Device::cuda(0).is_ok() {
        eprintln!("skipped: there is a GPU");
        return;
    }
    for args in [
        &["run", "mlp.pt2", "--device", "cuda"][..],
        &["run", "mlp.pt2", "--target", "cuda:sm_90a"],
    ] {
        let (code, text) = kiln(args);
        assert_eq!(code, Some(i32::from(Exit::Device.code())), "{text}");
        assert!(text.contains("libcuda.so.1") || text.contains("GPU"), "{text}");
    }
    let (code, text) = kiln(&["doctor"]);
    assert!(code == Some(0) && text.contains("NVIDIA GPUs: "), "{text}");
}

#[test]
fn bad_devices_and_targets_are_usage_errors() {
    for (args, part) in [
        (["--device", "gpu"], "there are cpu, cuda and cuda:<number>"),
        (["--target", "cuda:sm_91"], "there is no chip 'sm_91'; did you mean"),
        (["--target", "cuda:sm_70"], "sm_80, sm_86, sm_89, sm_90a"),
    ] {
        let (code, text) = kiln(&[&["run", "mlp.pt2"], &args[..]].concat());
        assert!(
            code == Some(i32::from(Exit::Usage.code())) && text.contains(part),
            "{args:?}: {text}"
        );
    }
}

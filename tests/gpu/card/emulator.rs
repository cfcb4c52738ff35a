//! Where there is no card the suites run on `kiln-emulator`, which is found as the driver by processes that have its folder on their path.
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// Says to the processes that they run on the emulator.
pub const VARIABLE: &str = "KILN_CARD_EMULATED";

/// Whether this process runs on it.
pub fn here() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// A folder with links of the driver's names, made once.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let done =
        Command::new(env!("CARGO")).args(["build", "--quiet", "-p", "kiln-emulator"]).current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(done.expect("cargo").success(), "the emulator is not built");
    let target = Path::new(env!("CARGO_BIN_EXE_kiln")).parent().and_then(Path::parent).expect("target").join("debug");
    let folder = target.join("emulator");
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["libcuda.so", "libcuda.so.1"] {
        let link = folder.join(name);
        // An earlier run's link shows the same.
        if std::os::unix::fs::symlink(target.join("libkiln_emulator.so"), &link).is_err() {
            assert!(link.is_symlink(), "{} is in the way", link.display());
        }
    }
    folder
});

/// What `LD_LIBRARY_PATH` has to be for a process that is to find the emulator first.
pub fn library_path() -> OsString {
    let before = std::env::var_os("LD_LIBRARY_PATH");
    let all = [FOLDER.clone()].into_iter().chain(before.iter().flat_map(std::env::split_paths));
    std::env::join_paths(all).expect("paths without colons")
}

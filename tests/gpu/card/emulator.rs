//! Where there is no card the suites run on `kiln-emulator`, which is found as the driver by processes that have its folder on their path.
use std::ffi::OsString;

/// Says to the processes that they run on the emulator.
pub const VARIABLE: &str = "KILN_CARD_EMULATED";

/// Whether this process runs on it.
pub fn here() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// What `LD_LIBRARY_PATH` has to be for a process that is to find the emulator first.
pub fn library_path() -> OsString {
    let before = std::env::var_os("LD_LIBRARY_PATH");
    let all = [crate::support::emulator().to_path_buf()].into_iter().chain(before.iter().flat_map(std::env::split_paths));
    std::env::join_paths(all).expect("paths without colons")
}

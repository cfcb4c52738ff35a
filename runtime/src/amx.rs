//! Linux enables AMX tile data only for processes that request it; otherwise the first tile
//! instruction raises SIGILL.
use std::sync::OnceLock;

/// AMX is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the program needs AMX, which this system does not provide: {0}")]
pub struct NoTiles(String);

/// Requests AMX tile data for the process, once.
pub fn request() -> Result<(), NoTiles> {
    static ANSWER: OnceLock<Result<(), NoTiles>> = OnceLock::new();
    ANSWER.get_or_init(ask).clone()
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn ask() -> Result<(), NoTiles> {
    // From <asm/prctl.h>, and XFEATURE_XTILE_DATA.
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: changes which registers the kernel saves for this process, and no memory.
    let status =
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) };
    if status == 0 {
        Ok(())
    } else {
        Err(NoTiles(format!("arch_prctl: {}", std::io::Error::last_os_error())))
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn ask() -> Result<(), NoTiles> {
    Err(NoTiles("only Linux on x86-64 is asked".into()))
}

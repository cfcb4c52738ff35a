//! Linux gives the tile registers of AMX to processes that ask for them; without that, the first
//! instruction on tiles is a signal.
use std::sync::OnceLock;

/// Why there are no tile registers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the program multiplies with AMX tiles, which this system does not give: {0}")]
pub struct NoTiles(String);

/// Asks for the tile registers, once in a process, for all of its threads.
pub fn request() -> Result<(), NoTiles> {
    static ANSWER: OnceLock<Result<(), NoTiles>> = OnceLock::new();
    ANSWER.get_or_init(ask).clone()
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn ask() -> Result<(), NoTiles> {
    // From <asm/prctl.h> and the processor's list of state components: tile data.
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call changes what the kernel saves of this process's registers, and no memory.
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

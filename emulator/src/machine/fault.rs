//! Faults of kernels.

/// A kernel fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel {kernel}, block {block}, thread {thread}, line {line} ({text}): {what}")]
pub struct Fault {
    /// The kernel's name.
    pub kernel: String,
    /// CTA index in the grid.
    pub block: u32,
    /// Thread index in the CTA.
    pub thread: u32,
    /// Line in the PTX.
    pub line: u32,
    /// The instruction.
    pub text: String,
    /// The kind of fault.
    pub what: FaultKind,
}

/// Kinds of faults, by driver error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// `CUDA_ERROR_ILLEGAL_ADDRESS`.
    #[error("{0} bytes at {1:#x} are not allocated")]
    Address(u64, u64),
    /// `CUDA_ERROR_MISALIGNED_ADDRESS`.
    #[error("{0} bytes at {1:#x} are not aligned")]
    Alignment(u64, u64),
    /// `CUDA_ERROR_ILLEGAL_INSTRUCTION`.
    #[error("{0}")]
    Instruction(String),
    /// Deadlock (a GPU would hang), `CUDA_ERROR_LAUNCH_TIMEOUT`.
    #[error("all threads wait for what does not come")]
    Stuck,
    /// `trap`, `CUDA_ERROR_LAUNCH_FAILED`.
    #[error("a trap")]
    Trap,
}

impl FaultKind {
    /// A write to global memory while the kernel before may still run, or a load of what that kernel
    /// or this one writes. Kernels run one after another here, so that only this check shows the
    /// race.
    pub fn early() -> FaultKind {
        FaultKind::Instruction("accesses global memory before griddepcontrol.wait".into())
    }
}

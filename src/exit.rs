//! Exit codes of `kiln` and `kiln-opt`.

/// A process exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Success = 0,
    /// A check failed: a mismatch or an unmet expectation.
    CheckFailed = 1,
    /// Bad command line, or unusable input.
    Usage = 2,
    /// An op that kiln does not support.
    Unsupported = 3,
    /// Compilation failed.
    Failed = 4,
    /// The device, the driver or memory failed.
    Device = 5,
}

impl Exit {
    /// Every code, in numeric order.
    pub const ALL: [Exit; 6] = [
        Exit::Success,
        Exit::CheckFailed,
        Exit::Usage,
        Exit::Unsupported,
        Exit::Failed,
        Exit::Device,
    ];

    /// The numeric exit code.
    pub const fn code(self) -> u8 {
        self as u8
    }
    /// One-line description, as printed by `--help`.
    pub const fn meaning(self) -> &'static str {
        match self {
            Exit::Success => "done",
            Exit::CheckFailed => "the answer is no: a mismatch, an unmet expectation",
            Exit::Usage => "usage, or unusable input",
            Exit::Unsupported => "unsupported op",
            Exit::Failed => "compile failed; if a pass did, the path of a reproducer is printed",
            Exit::Device => "device, driver or memory",
        }
    }
    /// Inverse of [`Exit::code`]; `None` for any other number.
    pub fn from_code(code: u8) -> Option<Exit> {
        Exit::ALL.into_iter().find(|e| e.code() == code)
    }
    /// The exit-code table of `--help`.
    pub fn table() -> String {
        Exit::ALL.iter().map(|e| format!("  {}  {}\n", e.code(), e.meaning())).collect()
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

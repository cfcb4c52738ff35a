//! Exit codes of both binaries.

/// How a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All went well.
    Done = 0,
    /// The answer is no.
    No = 1,
    /// The command line or the input cannot be used.
    Usage = 2,
    /// An op that kiln does not support.
    Unsupported = 3,
    /// A pass failed.
    Failed = 4,
    /// The machine is the reason.
    Device = 5,
}

impl Exit {
    /// All in order.
    pub const ALL: [Exit; 6] =
        [Exit::Done, Exit::No, Exit::Usage, Exit::Unsupported, Exit::Failed, Exit::Device];

    /// The number.
    pub const fn code(self) -> u8 {
        self as u8
    }
    /// What `--help` says of it.
    pub const fn meaning(self) -> &'static str {
        match self {
            Exit::Done => "done",
            Exit::No => "the answer is no: a mismatch, an unmet expectation",
            Exit::Usage => "usage, or unusable input",
            Exit::Unsupported => "unsupported op",
            Exit::Failed => "compile failed; if a pass did, the path of a reproducer is printed",
            Exit::Device => "device, driver or memory",
        }
    }
    /// The exit of that number.
    pub fn from_code(code: u8) -> Option<Exit> {
        Exit::ALL.into_iter().find(|e| e.code() == code)
    }
    /// The lines of `--help`.
    pub fn table() -> String {
        Exit::ALL.iter().map(|e| format!("  {}  {}\n", e.code(), e.meaning())).collect()
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

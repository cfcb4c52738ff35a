//! Where kiln-opt writes. A closed pipe is no error: the reader has seen enough.
use std::{
    fs::File,
    io::{IsTerminal, Write},
};

/// Standard output and standard error.
pub struct Console {
    err: Option<File>,
}

impl Console {
    /// The process's own.
    pub fn standard() -> Console {
        Console { err: None }
    }
    /// With another standard error.
    pub fn with_error(err: File) -> Console {
        Console { err: Some(err) }
    }
    /// Writes to standard output.
    pub fn out(&self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }
    /// Writes to standard error.
    pub fn err(&self, bytes: &[u8]) {
        let _ = match &self.err {
            Some(file) => (&*file).write_all(bytes),
            None => std::io::stderr().write_all(bytes),
        };
    }
    /// Writes an error; messages that already are diagnostics stay as they are.
    pub fn complain(&self, message: &str) {
        let word = if message.contains("error: ") { "" } else { "error: " };
        self.err(format!("{word}{message}\n").as_bytes());
    }
    /// Whether standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        std::io::stdout().is_terminal()
    }
}

//! Standard streams of kiln-opt. A closed pipe is not an error: the reader is done.
use std::{
    fs::File,
    io::{IsTerminal, Write},
};

/// Standard output and standard error.
pub struct Console {
    err: Option<File>,
}

impl Console {
    /// The process's own streams.
    pub fn standard() -> Console {
        Console { err: None }
    }
    /// Redirects standard error.
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
    /// Writes an error; a message that already is a diagnostic stays unchanged.
    pub fn error(&self, message: &str) {
        let word = if message.contains("error: ") { "" } else { "error: " };
        self.err(format!("{word}{message}\n").as_bytes());
    }
    /// Whether standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        std::io::stdout().is_terminal()
    }
}

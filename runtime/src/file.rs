//! Opens files named by users. Never blocks on a FIFO without a writer, and never reads a device
//! without end.
use std::{
    fs::{File, FileType, OpenOptions},
    io::{Error, ErrorKind, Read, Result},
    path::Path,
};

/// Opens a regular file. Err: the system's error, or the file is not regular.
pub fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    // Opening a FIFO would otherwise block until a writer comes.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let kind = name(kind);
    Err(Error::new(ErrorKind::InvalidInput, format!("is {kind}, not a regular file")))
}

/// Reads a regular file. Err: as for [`open`], or it has more than `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let (mut bytes, file) = (vec![], open(path)?);
    // The stated size may change while the file is read.
    if file.metadata()?.len() <= limit {
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= limit {
            return Ok(bytes);
        }
    }
    Err(Error::new(ErrorKind::FileTooLarge, format!("has more than {limit} bytes")))
}

/// As [`read`], as UTF-8.
pub fn read_text(path: &Path, limit: u64) -> Result<String> {
    String::from_utf8(read(path, limit)?).map_err(|e| Error::new(ErrorKind::InvalidData, e))
}

fn name(kind: FileType) -> &'static str {
    if kind.is_dir() {
        return "a directory";
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a pipe";
        } else if kind.is_char_device() {
            return "a character device";
        } else if kind.is_block_device() {
            return "a block device";
        } else if kind.is_socket() {
            return "a socket";
        }
    }
    "something else"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let fifo = dir.path().join("fifo");
        let name = std::ffi::CString::new(fifo.to_str().expect("text")).expect("a name");
        // SAFETY: a NUL-terminated path.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let said = |path: &Path| read(path, 10).expect_err("refused").to_string();
        assert_eq!(said(&fifo), "is a pipe, not a regular file");
        assert_eq!(said(dir.path()), "is a directory, not a regular file");
        assert_eq!(said(Path::new("/dev/zero")), "is a character device, not a regular file");
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        assert!(open(&socket).is_err());
        assert_eq!(
            open(&dir.path().join("none")).expect_err("refused").kind(),
            ErrorKind::NotFound
        );
        let file = dir.path().join("file");
        std::fs::write(&file, "0123456789").expect("written");
        assert_eq!(read(&file, 10).expect("readable"), b"0123456789");
        assert_eq!(read_text(&file, 11).expect("readable"), "0123456789");
        assert_eq!(read(&file, 9).expect_err("refused").to_string(), "has more than 9 bytes");
    }
}

//! On-disk compile cache: files named by the hash of their key. Best effort: on any problem the
//! caller recompiles and may report a [`Remark`].
//!
//! An entry is written to a temporary file and renamed, so other processes see it whole or not at
//! all. A checksum over key and contents detects damage, not tampering: whoever can write the
//! folder can run code as the user. The folder is created private.
mod eviction;
mod transfer;

pub use transfer::Count;

use crate::DataError;
use sha2::{Digest, Sha256};
use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

const MAGIC: &[u8; 8] = b"KILNOBJ\n";
const VERSION: u32 = 1;
const HEADER: usize = 8 + 4 + 8 + 32;
/// Longer files are not cache entries.
const MAX_ENTRY: u64 = 1 << 32;
const SUFFIX: &str = "kiln";
/// Default size limit in bytes.
pub const DEFAULT_BYTES: u64 = 4 << 30;

/// A cache problem. Never a reason to fail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cache {path}: {reason}")]
pub struct Remark {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong.
    pub reason: String,
}

impl Remark {
    /// For an entry whose checksum is right and whose contents do not parse.
    pub fn unreadable(path: &Path, reason: impl ToString) -> Remark {
        Remark::new(path, reason)
    }
    fn new(path: &Path, reason: impl ToString) -> Remark {
        let remark = Remark { path: path.into(), reason: reason.to_string() };
        tracing::warn!(target: "kiln::cache", "{remark}");
        remark
    }
}

/// A cache folder. Any number of processes may share it.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

/// The cache folder: the one given, else `$XDG_CACHE_HOME/kiln`, else `~/.cache/kiln`; `None`
/// without a home directory.
pub fn default_dir(named: Option<&Path>) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    dir_of(named, variable("XDG_CACHE_HOME"), variable("HOME"))
}

fn dir_of(named: Option<&Path>, cache: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    // The XDG specification ignores relative paths.
    let absolute = |p: &PathBuf| p.is_absolute();
    let named = named.filter(|p| !p.as_os_str().is_empty()).map(Path::to_path_buf);
    named
        .or_else(|| Some(cache.filter(absolute)?.join("kiln")))
        .or_else(|| Some(home.filter(absolute)?.join(".cache/kiln")))
}

impl Store {
    /// Opens the folder; creates it, readable by its owner alone, if it is missing.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Store, Remark> {
        let dir = dir.into();
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&dir).map_err(|e| Remark::new(&dir, e))?;
        Ok(Store { dir })
    }
    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// The file of a key. Keys are any text; file names are their hashes.
    pub fn path(&self, key: &str) -> PathBuf {
        let name: String = Sha256::digest(key).iter().map(|b| format!("{b:02x}")).collect();
        self.dir.join(&name[..2]).join(format!("{name}.{SUFFIX}"))
    }
    /// The contents of a key's entry; `None` on a miss. Deletes a damaged or foreign entry.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Remark> {
        let path = self.path(key);
        let file = match crate::file::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Remark::new(&path, e)),
        };
        let mut all = vec![];
        (&file).take(MAX_ENTRY + 1).read_to_end(&mut all).map_err(|e| Remark::new(&path, e))?;
        match check(&all, key) {
            Ok(()) => {
                // Marks it as used, for LRU eviction; a read-only folder is never trimmed.
                let _ = file.set_modified(SystemTime::now());
                all.drain(..HEADER);
                Ok(Some(all))
            }
            Err(reason) => {
                let _ = fs::remove_file(&path);
                Err(Remark::new(&path, reason))
            }
        }
    }
    /// Writes an entry, replacing one of the same key.
    pub fn put(&self, key: &str, contents: &[u8]) -> Result<(), Remark> {
        let path = self.path(key);
        let remark = |e: io::Error| Remark::new(&path, e);
        let dir = path.parent().unwrap_or(&self.dir);
        fs::create_dir_all(dir).map_err(remark)?;
        // In the same folder: a rename does not cross file systems.
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(dir).map_err(remark)?;
        let sum = checksum(key, contents);
        for part in [
            &MAGIC[..],
            &VERSION.to_le_bytes(),
            &(contents.len() as u64).to_le_bytes(),
            &sum,
            contents,
        ] {
            file.write_all(part).map_err(remark)?;
        }
        file.persist(&path).map_err(|e| remark(e.error))?;
        self.account((HEADER + contents.len()) as u64);
        Ok(())
    }
    /// Number of entries, and their bytes.
    pub fn size(&self) -> Result<(usize, u64), Remark> {
        let mut size = (0, 0);
        for folder in list(&self.dir)?.into_iter().filter(|p| p.is_dir()) {
            for path in
                list(&folder)?.into_iter().filter(|p| p.extension().is_some_and(|e| e == SUFFIX))
            {
                // Another process may be trimming.
                let Ok(meta) = fs::symlink_metadata(&path) else { continue };
                size = (size.0 + 1, size.1 + meta.len());
            }
        }
        Ok(size)
    }
}

/// Parses a size in bytes such as `500M`, `4G` or `1048576`; K, M, G and T are powers of 1024.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..]
        .to_ascii_uppercase()
        .trim_end_matches("IB")
        .trim_end_matches('B')
    {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn list(dir: &Path) -> Result<Vec<PathBuf>, Remark> {
    let entries = fs::read_dir(dir).map_err(|e| Remark::new(dir, e))?;
    Ok(entries.filter_map(|e| Some(e.ok()?.path())).collect())
}

/// Covers the key too, so that an entry under another key's name is detected.
fn checksum(key: &str, contents: &[u8]) -> [u8; 32] {
    let mut sum = Sha256::new();
    sum.update((key.len() as u64).to_le_bytes());
    sum.update(key);
    sum.update(contents);
    sum.finalize().into()
}

fn check(all: &[u8], key: &str) -> Result<(), DataError> {
    let rest = all.strip_prefix(MAGIC).ok_or("is no entry of kiln's")?;
    let (version, rest) = rest.split_first_chunk().ok_or("ends inside its header")?;
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(format!("has version {version}, not {VERSION}").into());
    }
    let (len, rest) = rest.split_first_chunk().ok_or("ends inside its header")?;
    let (sum, contents) = rest.split_first_chunk::<32>().ok_or("ends inside its header")?;
    if u64::from_le_bytes(*len) != contents.len() as u64 {
        return Err(format!(
            "has {} bytes, not {}: it was cut or extended",
            contents.len(),
            u64::from_le_bytes(*len)
        )
        .into());
    }
    if checksum(key, contents) != *sum {
        return Err("has a wrong checksum: it was changed, or belongs to another key".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().expect("a folder");
        let store = Store::open(dir.path().join("a/b")).expect("a store");
        (dir, store)
    }

    #[test]
    fn what_goes_in_comes_out() {
        let (_dir, s) = store();
        assert_eq!(s.get("k"), Ok(None));
        for contents in [&b""[..], b"x", &[7; 100_000]] {
            for key in ["k", "", "../../etc/passwd", "a\0b", "é"] {
                s.put(key, contents).expect("written");
                assert_eq!(s.get(key).expect("readable").as_deref(), Some(contents), "{key:?}");
            }
        }
        let again = Store::open(s.dir()).expect("a store");
        assert!(again.get("k").expect("readable").is_some());
    }

    #[test]
    fn damage_is_found_and_removed() {
        let (_dir, s) = store();
        let path = s.path("k");
        s.put("k", b"contents").expect("written");
        let good = fs::read(&path).expect("the entry");
        let mut bad: Vec<Vec<u8>> = (0..good.len()).map(|n| good[..n].to_vec()).collect();
        bad.extend(
            (0..good.len())
                .map(|i| good.iter().enumerate().map(|(j, b)| b ^ ((i == j) as u8)).collect()),
        );
        bad.push([&good[..], b"more"].concat());
        bad.push(b"\x7fELF and so on".to_vec());
        for bytes in bad {
            fs::write(&path, &bytes).expect("written");
            let remark = s.get("k").expect_err("a remark");
            assert_eq!(remark.path, path);
            assert!(!path.exists(), "{remark}");
            assert_eq!(s.get("k"), Ok(None));
        }
        s.put("other", b"contents").expect("written");
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::copy(s.path("other"), &path).expect("copied");
        assert!(s.get("k").expect_err("a remark").reason.contains("another key"));
        fs::write(&path, "rubbish").expect("written");
        s.put("k", b"new").expect("written");
        assert_eq!(s.get("k"), Ok(Some(b"new".to_vec())));
    }

    #[test]
    #[cfg(unix)]
    fn folders_that_cannot_be_used() {
        use std::os::unix::fs::PermissionsExt;
        let (dir, s) = store();
        s.put("k", b"contents").expect("written");
        assert_eq!(fs::metadata(s.dir()).expect("the folder").permissions().mode() & 0o777, 0o700);
        let file = dir.path().join("file");
        fs::write(&file, "").expect("written");
        assert!(Store::open(&file).is_err());
        assert!(Store::open(file.join("below")).is_err());
        let folder = s.path("k").parent().expect("a folder").to_path_buf();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).expect("changed");
        // SAFETY: no arguments.
        if unsafe { libc::geteuid() } != 0 {
            assert!(s.put("k", b"other").is_err());
        }
        assert!(s.get("k").expect("readable").is_some());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("changed");
        fs::remove_file(s.path("k")).expect("removed");
        fs::create_dir(s.path("k")).expect("a folder in the entry's place");
        assert!(s.get("k").is_err());
        assert!(s.put("k", b"other").is_err());
    }

    #[test]
    fn writers_at_the_same_time() {
        let (_dir, s) = store();
        std::thread::scope(|scope| {
            for who in 0..4u8 {
                let s = &s;
                scope.spawn(move || {
                    for _ in 0..100 {
                        s.put("k", &vec![who; 10_000]).expect("written");
                        let got = s.get("k").expect("whole").expect("there");
                        assert!(got.len() == 10_000 && got.iter().all(|b| *b == got[0]));
                    }
                });
            }
        });
    }

    #[test]
    fn numbers_of_bytes() {
        let all = [
            ("0", 0),
            ("17", 17),
            ("2K", 2048),
            ("3 MiB", 3 << 20),
            ("4g", 4 << 30),
            ("1TB", 1 << 40),
        ];
        assert!(all.iter().all(|(text, n)| parse_bytes(text) == Some(*n)), "{all:?}");
        assert!(
            ["", "G", "1.5G", "-1", "9999999999999T", "4 parsecs"]
                .iter()
                .all(|text| parse_bytes(text).is_none())
        );
    }

    #[test]
    fn the_folder_to_use() {
        let p = |s: &str| Some(PathBuf::from(s));
        assert_eq!(dir_of(Some(Path::new("/x")), p("/c"), p("/h")), p("/x"));
        assert_eq!(dir_of(None, p("/c"), p("/h")), p("/c/kiln"));
        assert_eq!(dir_of(Some(Path::new("")), p("rel"), p("/h")), p("/h/.cache/kiln"));
        assert_eq!(dir_of(None, None, None), None);
    }
}

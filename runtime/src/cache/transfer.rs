//! Export and import of a cache as one zip archive (as `.kpkg` packages are): a manifest, and the
//! entries as they are on disk.
use super::{HEADER, MAGIC, SUFFIX, Store, list};
use crate::package::PackageError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
};
use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

const FORMAT: u32 = 1;
const MANIFEST: &str = "cache.json";
const MAX_MANIFEST: u64 = 64 << 20;
/// Length of a SHA-256 in hexadecimal digits.
const NAME: usize = 64;

#[derive(Serialize, Deserialize)]
struct Manifest {
    format: u32,
    kiln: String,
    /// Size and SHA-256 of each entry, by name.
    entries: BTreeMap<String, (u64, String)>,
}

/// Number and size of entries of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of entries.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

impl Store {
    fn entries(&self) -> Result<Vec<(String, PathBuf)>, super::Remark> {
        let mut all = vec![];
        for folder in list(&self.dir)?.into_iter().filter(|p| p.is_dir()) {
            for path in
                list(&folder)?.into_iter().filter(|p| p.extension().is_some_and(|e| e == SUFFIX))
            {
                let name =
                    path.file_stem().and_then(|n| n.to_str()).unwrap_or_default().to_string();
                if is_name(&name) {
                    all.push((name, path));
                }
            }
        }
        all.sort();
        Ok(all)
    }

    /// Counts whole programs, and the rest: code of single kernels.
    pub fn count(&self) -> Result<(Count, Count), super::Remark> {
        let (mut programs, mut kernels) = (Count::default(), Count::default());
        for (_, path) in self.entries()? {
            // Another process may be trimming.
            let (Ok(meta), Ok(mut file)) = (fs::metadata(&path), crate::file::open(&path)) else {
                continue;
            };
            let mut start = [0; HEADER + 2];
            let count = match file.read_exact(&mut start) {
                Ok(()) if start.ends_with(b"PK") => &mut programs,
                _ => &mut kernels,
            };
            count.entries += 1;
            count.bytes += meta.len();
        }
        Ok((programs, kernels))
    }

    /// Writes all entries to one file, through a temporary file next to it. Returns their number.
    pub fn export(&self, to: &Path) -> Result<usize, PackageError> {
        let io = |path: &Path| {
            let path = path.to_path_buf();
            move |source| PackageError::Io { path, source }
        };
        let entries = self.entries().map_err(|r| PackageError::Entry {
            entry: r.path.display().to_string(),
            reason: r.reason,
        })?;
        let dir = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = crate::package::new_file(".kpkg-", dir).map_err(io(to))?;
        let mut manifest = Manifest {
            format: FORMAT,
            kiln: env!("CARGO_PKG_VERSION").into(),
            entries: BTreeMap::new(),
        };
        let mut zip = ZipWriter::new(std::io::BufWriter::new(file.as_file_mut()));
        let plain = || SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        for (name, path) in entries {
            // Another process may have just evicted it.
            let Ok(bytes) = crate::file::read(&path, super::MAX_ENTRY) else { continue };
            zip.start_file(
                format!("entries/{name}"),
                plain().large_file(bytes.len() as u64 >= u32::MAX as u64),
            )?;
            zip.write_all(&bytes).map_err(io(to))?;
            manifest.entries.insert(name, (bytes.len() as u64, hex(&bytes)));
        }
        zip.start_file(MANIFEST, plain())?;
        zip.write_all(
            &serde_json::to_vec(&manifest).map_err(|e| PackageError::Manifest(e.to_string()))?,
        )
        .map_err(io(to))?;
        zip.finish()?;
        file.persist(to).map_err(|e| io(to)(e.error))?;
        Ok(manifest.entries.len())
    }

    /// Imports the entries of a file that [`Store::export`] wrote; existing entries win. All are
    /// verified against the manifest before any is written. Entries are code: import only what you
    /// trust. Returns the number of new entries.
    pub fn import(&self, from: &Path) -> Result<usize, PackageError> {
        let io = |source| PackageError::Io { path: from.into(), source };
        let mut zip =
            ZipArchive::new(std::io::BufReader::new(crate::file::open(from).map_err(io)?))?;
        let mut text = vec![];
        zip.by_name(MANIFEST)?.take(MAX_MANIFEST).read_to_end(&mut text).map_err(io)?;
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|e| PackageError::Manifest(e.to_string()))?;
        if manifest.format != FORMAT {
            let (theirs, kiln) = (manifest.format, manifest.kiln);
            return Err(PackageError::Manifest(format!(
                "it has format {theirs}, written by kiln {kiln}; this kiln reads format {FORMAT}"
            )));
        }
        for pass in [Pass::Check, Pass::Write] {
            let mut new = 0;
            for (name, (size, sum)) in &manifest.entries {
                let fail = |reason: &str| PackageError::Entry {
                    entry: name.clone(),
                    reason: reason.into(),
                };
                if !is_name(name) {
                    return Err(fail("is no name of an entry"));
                }
                let mut bytes = vec![];
                zip.by_name(&format!("entries/{name}"))?
                    .take(size.saturating_add(1))
                    .read_to_end(&mut bytes)
                    .map_err(|e| fail(&e.to_string()))?;
                if bytes.len() as u64 != *size || hex(&bytes) != *sum || !bytes.starts_with(MAGIC) {
                    return Err(fail("is damaged: it is not what the manifest says"));
                }
                let path = self.dir.join(&name[..2]).join(format!("{name}.{SUFFIX}"));
                if pass == Pass::Write && !path.exists() {
                    let dir = path.parent().unwrap_or(&self.dir);
                    fs::create_dir_all(dir).map_err(io)?;
                    let mut file =
                        tempfile::Builder::new().prefix(".new-").tempfile_in(dir).map_err(io)?;
                    file.write_all(&bytes).map_err(io)?;
                    file.persist(&path).map_err(|e| io(e.error))?;
                    new += 1;
                }
            }
            if pass == Pass::Write {
                return Ok(new);
            }
        }
        Ok(0)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Check,
    Write,
}

fn is_name(name: &str) -> bool {
    name.len() == NAME && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_and_in_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let open = |name: &str| Store::open(dir.path().join(name)).expect("a store");
        let (a, b, file) = (open("a"), open("b"), dir.path().join("all.kpkg"));
        for (key, contents) in
            [("program", &b"PK and more"[..]), ("kernel", b"\x7fELF"), ("other", b"")]
        {
            a.put(key, contents).expect("written");
        }
        b.put("kernel", b"its own").expect("written");
        assert_eq!(a.export(&file).expect("written"), 3);
        assert_eq!(b.import(&file).expect("read"), 2);
        assert_eq!(b.get("program"), Ok(Some(b"PK and more".to_vec())));
        assert_eq!(b.get("kernel"), Ok(Some(b"its own".to_vec())), "what was there stays");
        let (programs, kernels) = b.count().expect("readable");
        assert_eq!((programs.entries, kernels.entries), (1, 2));
        assert_eq!(b.import(&file).expect("read"), 0);
    }

    #[test]
    fn a_damaged_file_writes_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let (a, file) =
            (Store::open(dir.path().join("a")).expect("a store"), dir.path().join("all.kpkg"));
        a.put("x", &[1; 500]).expect("written");
        a.put("y", &[2; 500]).expect("written");
        a.export(&file).expect("written");
        let good = fs::read(&file).expect("the file");
        for at in (0..good.len()).step_by(11) {
            let mut bad = good.clone();
            bad[at] ^= 0x20;
            fs::write(&file, &bad).expect("written");
            let b = Store::open(dir.path().join(format!("b{at}"))).expect("a store");
            match b.import(&file) {
                // The flipped bit is in a field that is not checked, such as a timestamp.
                Ok(n) => assert!(
                    n == 2
                        && b.get("x") == Ok(Some(vec![1; 500]))
                        && b.get("y") == Ok(Some(vec![2; 500])),
                    "byte {at}"
                ),
                Err(_) => assert_eq!(b.size(), Ok((0, 0)), "byte {at}"),
            }
        }
    }
}

//! `.kpkg` packages: a program with its object code and, optionally, its weights, in one file.
//!
//! A zip archive of `manifest.json`, `objects/<name>.o` (for a GPU, `objects/<name>.ptx`) and
//! `weights/<name>`, stored uncompressed, so that objects and weights can be mapped.
//!
//! A package is code: load only what you trust. Damage is an error. So is a program that was not
//! compiled with the objects: a digest covers both, and the program is validated before anything
//! runs.
mod signature;

use crate::program::{FORMAT, Invalid, Program};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    io::{Cursor, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};
use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

/// Size limit of a manifest, in bytes.
const MAX_MANIFEST: u64 = 64 << 20;
/// Limit on the number of files; one more would need a zip64 record.
const MAX_FILES: usize = 0xfffe;
/// Default limit on the unpacked size, in bytes.
pub const MAX_BYTES: u64 = 64 << 30;
const MANIFEST: &str = "manifest.json";

/// Why a package could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// An I/O error.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not a valid package.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<PackageError>,
    },
    /// The archive is damaged, or not a zip archive.
    #[error("is no readable package: {}", describe(.0))]
    Archive(#[from] zip::result::ZipError),
    /// A file of the archive cannot be read.
    #[error("entry '{entry}' cannot be read: {reason}")]
    Entry {
        /// The file's name in the archive.
        entry: String,
        /// What is wrong.
        reason: String,
    },
    /// The manifest or the list of files is not of this format version.
    #[error("its manifest cannot be read: {0}")]
    Manifest(String),
    /// The program fails validation.
    #[error("its program is invalid: {0}")]
    Invalid(#[from] Invalid),
    /// The program refers to a missing object.
    #[error("its program is invalid: it calls code of the object '{0}', which is missing")]
    Object(String),
    /// A kernel's parameters are not those that the program passes.
    #[error("its program is invalid: kernel '{kernel}' {reason}")]
    Kernel {
        /// The kernel's symbol.
        kernel: String,
        /// What differs.
        reason: String,
    },
    /// The program and the objects were not compiled together.
    #[error(
        "its program or its objects were changed after it was compiled: their digest is another one"
    )]
    Digest,
    /// A limit was exceeded.
    #[error("{0}")]
    Limit(String),
}

impl PackageError {
    /// Adds the path of the package.
    fn of_file(self, path: &Path) -> PackageError {
        match self {
            e @ (PackageError::Io { .. } | PackageError::File { .. }) => e,
            e => PackageError::File { path: path.into(), source: Box::new(e) },
        }
    }
}

/// Describes an archive error; the zip crate reports a truncated file only as a failed read.
fn describe(e: &zip::result::ZipError) -> String {
    match e {
        zip::result::ZipError::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the file ends too early".into()
        }
        zip::result::ZipError::Io(e) => e.to_string(),
        e => e.to_string(),
    }
}

/// A package in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Package {
    /// The compiled program.
    pub program: Program,
    /// Object code by name, without `.o`.
    pub objects: BTreeMap<String, Vec<u8>>,
    /// Weights by name: safetensors files, or raw bytes.
    pub weights: BTreeMap<String, Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    format: u32,
    kiln: String,
    program: Program,
    /// The other files and their sizes, to detect missing and renamed ones.
    files: BTreeMap<String, u64>,
    /// [`Package::digest`] as the compiler wrote it.
    digest: String,
}

/// Read before the rest, whose layout depends on the format version.
#[derive(Deserialize)]
struct Version {
    format: u32,
    #[serde(default)]
    kiln: String,
}

/// A temporary file of mode 0666 less the umask, as any new file; tempfile's default is 0600.
pub(crate) fn new_file(prefix: &str, dir: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.prefix(prefix).tempfile_in(dir)
}

impl Package {
    /// Writes a package, through a temporary file next to it.
    pub fn save(&self, path: &Path) -> Result<(), PackageError> {
        let io = |source| PackageError::Io { path: path.into(), source };
        let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = new_file(".kpkg-", dir).map_err(io)?;
        self.write(std::io::BufWriter::new(file.as_file_mut()))?;
        file.persist(path).map_err(|e| io(e.error))?;
        Ok(())
    }
    /// Reads a package. Err: it is damaged, invalid, or unpacks to more than [`MAX_BYTES`].
    pub fn load(path: &Path) -> Result<Package, PackageError> {
        let file = crate::file::open(path)
            .map_err(|source| PackageError::Io { path: path.into(), source })?;
        Package::read(std::io::BufReader::new(file), MAX_BYTES).map_err(|e| e.of_file(path))
    }
    /// The package file as bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, PackageError> {
        let mut bytes = Cursor::new(vec![]);
        self.write(&mut bytes)?;
        Ok(bytes.into_inner())
    }

    fn write(&self, to: impl Write + Seek) -> Result<(), PackageError> {
        let mut files = BTreeMap::new();
        let ending = if self.program.target.is_cuda() { "ptx" } else { "o" };
        for (name, bytes) in &self.objects {
            files.insert(format!("objects/{}.{ending}", plain_name(name)?), bytes);
        }
        for (name, bytes) in &self.weights {
            files.insert(format!("weights/{}", plain_name(name)?), bytes);
        }
        let manifest = Manifest {
            format: FORMAT,
            kiln: env!("CARGO_PKG_VERSION").into(),
            program: self.program.clone(),
            files: files.iter().map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect(),
            digest: self.digest()?,
        };
        let manifest = serde_json::to_vec_pretty(&manifest)
            .map_err(|e| PackageError::Manifest(e.to_string()))?;
        let mut zip = ZipWriter::new(to);
        for (name, bytes) in std::iter::once((MANIFEST, &manifest))
            .chain(files.iter().map(|(n, b)| (n.as_str(), *b)))
        {
            let large = bytes.len() as u64 >= u32::MAX as u64;
            // Aligned, so that mapped contents can be used in place.
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Stored)
                .large_file(large)
                .with_alignment(64);
            zip.start_file(name, options)?;
            zip.write_all(bytes)
                .map_err(|e| PackageError::Entry { entry: name.into(), reason: e.to_string() })?;
        }
        zip.finish()?;
        Ok(())
    }

    /// Reads a package that unpacks to at most `limit` bytes.
    pub fn read(mut from: impl Read + Seek, limit: u64) -> Result<Package, PackageError> {
        let count = file_count(&mut from).map_err(zip::result::ZipError::Io)?;
        if count > MAX_FILES {
            return Err(PackageError::Limit(format!("it has more than {MAX_FILES} files")));
        }
        let mut zip = ZipArchive::new(from)?;
        if zip.len() != count {
            return Err(PackageError::Manifest(format!(
                "the archive lists {count} files, but only {} names",
                zip.len()
            )));
        }
        let mut package = Package::default();
        // The manifest first: other format versions may name their files differently.
        let mut left = limit;
        let manifest = entry(&mut zip, MANIFEST, &mut MAX_MANIFEST.min(limit))?;
        left -= manifest.len() as u64;
        let Manifest { program, mut files, digest, .. } = manifest_of(&manifest)?;
        package.program = program;
        let ending = if package.program.target.is_cuda() { ".ptx" } else { ".o" };
        let names: Vec<String> = zip.file_names().map(str::to_string).collect();
        for name in names.iter().filter(|n| *n != MANIFEST) {
            let object = name.strip_prefix("objects/").and_then(|n| n.strip_suffix(ending));
            let (short, is_object) = match (object, name.strip_prefix("weights/")) {
                (Some(short), _) => (short, true),
                (None, Some(short)) => (short, false),
                _ => {
                    return Err(PackageError::Entry {
                        entry: name.clone(),
                        reason: "packages have no such file".into(),
                    });
                }
            };
            plain_name(short)?;
            let bytes = entry(&mut zip, name, &mut left)?;
            if files.remove(name) != Some(bytes.len() as u64) {
                return Err(PackageError::Entry {
                    entry: name.clone(),
                    reason: "the manifest does not list it with this size".into(),
                });
            }
            let into = if is_object { &mut package.objects } else { &mut package.weights };
            into.insert(short.to_string(), bytes);
        }
        if let Some(missing) = files.keys().next() {
            return Err(PackageError::Manifest(format!("file '{missing}' is missing")));
        }
        if package.digest()? != digest {
            return Err(PackageError::Digest);
        }
        package.validate()?;
        Ok(package)
    }

    /// SHA-256 over the program as JSON and over all objects with their names. Code accesses memory
    /// at the offsets and sizes that its program states, so the two must be from one compilation.
    /// Detects an edited program and foreign objects. It is no signature: anybody can compute a
    /// matching digest.
    fn digest(&self) -> Result<String, PackageError> {
        let program =
            serde_json::to_vec(&self.program).map_err(|e| PackageError::Manifest(e.to_string()))?;
        let mut sha = Sha256::new();
        let mut add = |part: &[u8]| {
            sha.update((part.len() as u64).to_le_bytes());
            sha.update(part);
        };
        add(&program);
        for (name, object) in &self.objects {
            add(name.as_bytes());
            add(object);
        }
        Ok(sha.finalize().iter().map(|b| format!("{b:02x}")).collect())
    }

    /// Validates the program, and checks that the objects define what it calls. [`Package::read`]
    /// does so.
    pub fn validate(&self) -> Result<(), PackageError> {
        self.program.validate()?;
        let mut all = self.program.parts();
        all.extend(self.program.parts().into_iter().filter_map(|p| p.prepare.as_deref()));
        let cuda = self.program.target.is_cuda();
        for p in all {
            // For the host, the linker reports missing functions.
            if !cuda && !self.objects.contains_key(&p.entry.object) {
                return Err(PackageError::Object(p.entry.object.clone()));
            }
            for k in p.kernels.iter().filter(|_| cuda) {
                let code = self.objects.get(&k.symbol);
                let code = code.ok_or_else(|| PackageError::Object(k.symbol.clone()))?;
                signature::check(k, code)?;
            }
        }
        Ok(())
    }
}

/// Number of files in the archive's end record. The zip crate merges files of one name, so a
/// duplicate shows as a difference.
fn file_count(from: &mut (impl Read + Seek)) -> std::io::Result<usize> {
    const LEN: usize = 22;
    let mut end = [0; LEN];
    from.seek(SeekFrom::End(-(LEN as i64)))?;
    from.read_exact(&mut end)?;
    from.rewind()?;
    if !end.starts_with(b"PK\x05\x06") {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            "it does not end as a package does",
        ));
    }
    Ok(u16::from_le_bytes([end[10], end[11]]) as usize)
}

/// Reads one file. Its stated size is not trusted: reads at most what is left of the limit, and
/// lowers that.
fn entry<R: Read + Seek>(
    zip: &mut ZipArchive<R>,
    name: &str,
    left: &mut u64,
) -> Result<Vec<u8>, PackageError> {
    let fail = |reason: String| PackageError::Entry { entry: name.into(), reason };
    let file = zip.by_name(name)?;
    if file.compression() != CompressionMethod::Stored {
        return Err(fail("it is compressed; packages store files as they are".into()));
    }
    let mut bytes = vec![];
    file.take(left.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| fail(e.to_string()))?;
    *left = left.checked_sub(bytes.len() as u64).ok_or_else(|| {
        PackageError::Limit(format!(
            "it unpacks to more than allowed; entry '{name}' passes the limit"
        ))
    })?;
    Ok(bytes)
}

fn manifest_of(bytes: &[u8]) -> Result<Manifest, PackageError> {
    let fail = |e: serde_json::Error| PackageError::Manifest(e.to_string());
    let version: Version = serde_json::from_slice(bytes).map_err(fail)?;
    if version.format != FORMAT {
        let (theirs, kiln) = (version.format, version.kiln);
        return Err(PackageError::Manifest(format!(
            "it has format {theirs}, written by kiln {kiln}; this kiln reads format {FORMAT}"
        )));
    }
    serde_json::from_slice(bytes).map_err(fail)
}

/// Names become file names elsewhere, so only plain ones are allowed.
fn plain_name(name: &str) -> Result<&str, PackageError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if (1..=200).contains(&name.len()) && !name.starts_with('.') && name.chars().all(plain) {
        return Ok(name);
    }
    Err(PackageError::Entry {
        entry: name.into(),
        reason: "names are 1 to 200 letters, digits, '.', '_', '-', and start with no '.'".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Package {
        Package {
            program: Program { format: FORMAT, name: "mlp".into(), ..Default::default() },
            objects: BTreeMap::from([
                ("host".into(), vec![1, 2, 3]),
                ("k_0".into(), vec![9; 5000]),
            ]),
            weights: BTreeMap::from([("model.safetensors".into(), vec![4; 100])]),
        }
    }
    fn read(bytes: &[u8]) -> Result<Package, PackageError> {
        Package::read(Cursor::new(bytes), MAX_BYTES)
    }
    fn archive(files: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(vec![]));
        for (name, bytes) in files {
            zip.start_file(*name, SimpleFileOptions::default().compression_method(method))
                .expect("a new entry");
            zip.write_all(bytes).expect("memory");
        }
        zip.finish().expect("an archive").into_inner()
    }
    fn manifest(format: u32) -> Vec<u8> {
        let m = Manifest {
            format,
            kiln: "0".into(),
            program: Program::default(),
            files: BTreeMap::new(),
            digest: String::new(),
        };
        serde_json::to_vec(&m).expect("plain data")
    }

    #[test]
    fn there_and_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("p.kpkg");
        example().save(&path).expect("written");
        assert_eq!(Package::load(&path).expect("readable"), example());
        let bytes = example().to_bytes().expect("written");
        assert!(bytes.windows(5000).any(|w| w == [9; 5000]), "objects are stored");
        assert!(matches!(Package::load(&dir.path().join("none")), Err(PackageError::Io { .. })));
    }

    #[test]
    fn damage_is_an_error() {
        let good = example().to_bytes().expect("written");
        for n in (0..good.len()).step_by(97) {
            assert!(read(&good[..n]).is_err(), "cut at {n}");
        }
        // A flipped bit is detected, or is in an unchecked field (timestamps, padding).
        for at in (0..good.len()).step_by(13) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            if let Ok(p) = read(&bad) {
                assert!(p == example(), "byte {at} changes the package unseen");
            }
        }
    }

    #[test]
    fn limits() {
        let good = example().to_bytes().expect("written");
        let small = Package::read(Cursor::new(&good), 2000);
        assert!(matches!(small, Err(PackageError::Limit(_))));
        assert!(matches!(Package::read(Cursor::new(&good), 10), Err(PackageError::Limit(_))));
    }

    #[test]
    fn foreign_contents() {
        let m = manifest(FORMAT);
        for name in [
            "objects/../x.o",
            "/etc/passwd",
            "weights/a/b",
            "objects/.o",
            "weights/..",
            "other",
            "objects/a\\b.o",
        ] {
            let bytes = archive(&[(MANIFEST, &m), (name, b"x")], CompressionMethod::Stored);
            assert!(matches!(read(&bytes), Err(PackageError::Entry { .. })), "{name}");
        }
        let new = archive(&[(MANIFEST, &manifest(FORMAT + 1))], CompressionMethod::Stored);
        assert!(
            read(&new)
                .expect_err("another format")
                .to_string()
                .contains(&format!("reads format {FORMAT}"))
        );
        assert!(matches!(
            read(&archive(&[(MANIFEST, b"{")], CompressionMethod::Stored)),
            Err(PackageError::Manifest(_))
        ));
        assert!(read(&archive(&[], CompressionMethod::Stored)).is_err());
        assert!(read(&archive(&[(MANIFEST, &m)], CompressionMethod::Deflated)).is_err());
        let mut p = example();
        p.objects.insert("../up".into(), vec![]);
        assert!(p.to_bytes().is_err());
    }

    #[test]
    fn the_same_name_twice() {
        let m = manifest(FORMAT);
        let mut bytes = archive(
            &[(MANIFEST, &m), ("weights/a", b"one"), ("weights/b", b"two")],
            CompressionMethod::Stored,
        );
        let at: Vec<usize> =
            (0..bytes.len() - 9).filter(|i| &bytes[*i..i + 9] == b"weights/b").collect();
        at.iter().for_each(|i| bytes[i + 8] = b'a');
        assert_eq!(at.len(), 2);
        assert!(read(&bytes).expect_err("an error").to_string().contains("lists 3 files"));
    }
}

//! NVIDIA's libraries, opened at run time: nothing of CUDA is needed to build.
pub use libloading::os::unix::Library;
use libloading::os::unix::{RTLD_LAZY, RTLD_LOCAL};
use std::{
    ffi::c_int,
    path::{Path, PathBuf},
};

/// `RTLD_NOLOAD`: only a library that the process has loaded already.
const LOADED: c_int = libc::RTLD_NOLOAD;
/// Folders of NVIDIA's wheels, before CUDA 13.
const PACKAGES: [&str; 3] = ["cusolver", "cublas", "cufft"];

/// A function of a library by its name.
///
/// # Safety
/// It has the type `F`.
pub unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    // SAFETY: as above.
    unsafe { library.get::<F>(name.as_bytes()) }.map(|f| *f).map_err(|e| e.to_string())
}

/// Opens a library: the one that the process has, else one beside the cuBLASLt or cuBLAS that it
/// has, such as PyTorch's, else by name.
pub fn open(names: &[&str], maps: &str) -> Result<Library, String> {
    // SAFETY: NVIDIA's libraries run no code of their own when they are opened.
    let try_open = |path: &Path, flags| unsafe { Library::open(Some(path), flags) };
    let flags = RTLD_LAZY | RTLD_LOCAL;
    let plain = || names.iter().map(Path::new);
    let loaded = plain().find_map(|name| try_open(name, flags | LOADED).ok());
    let found = loaded.or_else(|| {
        let near = folders(maps).into_iter().flat_map(|f| names.iter().map(move |n| f.join(n)));
        near.filter(|path| path.exists()).find_map(|path| try_open(&path, flags).ok())
    });
    let found = found.or_else(|| plain().find_map(|name| try_open(name, flags).ok()));
    found.ok_or_else(|| {
        format!("looked for {}, also beside the cuBLAS of this process", names.join(", "))
    })
}

/// Folders of NVIDIA's wheels in which a library may lie, from `/proc/self/maps`: that of the loaded
/// cuBLAS (one folder for all, since CUDA 13), and those of the other packages beside it.
fn folders(maps: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = vec![];
    for line in maps.lines() {
        let Some(path) = line.find('/').map(|at| Path::new(&line[at..])) else { continue };
        let name = path.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
        let Some(folder) = path.parent().filter(|_| name.starts_with("libcublas")) else {
            continue;
        };
        let packages = folder.parent().and_then(Path::parent);
        let beside = PACKAGES.map(|p| packages.map(|all| all.join(p).join("lib")));
        for folder in [Some(folder.to_path_buf())].into_iter().chain(beside).flatten() {
            if !all.contains(&folder) {
                all.push(folder);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_looked_for_beside_cublas() {
        let maps = "7f00-7f10 r-xp 00000000 08:01 12 /v/nvidia/cublas/lib/libcublasLt.so.12\n\
                    7f20-7f30 r-xp 00000000 08:01 13 /v/nvidia/cublas/lib/libcublas.so.12\n\
                    7f40-7f50 rw-p 00000000 00:00 0 [heap]\n\
                    7f60-7f70 r-xp 00000000 08:01 14 /usr/lib/libc.so.6\n";
        let all = ["cublas", "cusolver", "cufft"].map(|p| format!("/v/nvidia/{p}/lib").into());
        let all: [PathBuf; 3] = all;
        assert_eq!(folders(maps), all);
        assert_eq!(
            folders("7f60-7f70 r-xp 00000000 08:01 14 /usr/lib/libc.so.6"),
            [] as [PathBuf; 0]
        );
    }

    #[test]
    fn a_missing_library_is_an_error() {
        let said = open(&["libkiln_no_such.so.7"], "").expect_err("there is none");
        assert!(said.contains("libkiln_no_such.so.7"), "{said}");
    }
}

//! Compiles PTX to cubins with the driver's linker (`cuLink`), on worker threads, with a disk
//! cache.
use super::{CudaError, Device, driver_message};
use crate::cache::Store;
use cudarc::driver::sys::{self, CUjit_option};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    ffi::{CString, c_void},
    ptr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Bytes of the linker's log that are kept.
const LOG: usize = 8192;

/// Each kernel's image, by name.
pub type Images = BTreeMap<String, Image>;

/// A kernel's executable image.
#[derive(Clone)]
pub enum Image {
    /// A cubin from `cuLink`.
    Linked(Arc<Vec<u8>>),
    /// A library that the driver compiled from PTX and holds.
    Library(Arc<Library>),
}

/// PTX that the driver's JIT compiles as a whole, with its own cache (`cuLibraryLoadData`).
pub struct Library(sys::CUlibrary);
// SAFETY: the driver's handles are tied to no thread.
unsafe impl Send for Library {}
unsafe impl Sync for Library {}

impl Library {
    /// Compiles a kernel for the current context. Unlike `cuModuleLoadData`, this runs on several
    /// threads at once.
    fn load(name: &str, ptx: &[u8]) -> Result<Library, CudaError> {
        let failed = |e| CudaError::Link { kernel: name.into(), reason: driver_message(e) };
        let (text, mut library) = ([ptx, &[0]].concat(), ptr::null_mut());
        let (none, nothing) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: NUL-terminated text, which the driver copies; no options.
        let made = unsafe {
            sys::cuLibraryLoadData(
                &mut library,
                text.as_ptr().cast(),
                none,
                ptr::null_mut(),
                0,
                nothing,
                ptr::null_mut(),
                0,
            )
        };
        made.result().map_err(failed)?;
        let library = Library(library);
        // Forces compilation where loading is lazy.
        let title = CString::new(name).unwrap_or_default();
        let mut function = ptr::null_mut();
        // SAFETY: a module of this library; a kernel of another name is looked up at launch.
        let _ = unsafe {
            sys::cuModuleGetFunction(
                &mut function,
                library.module().map_err(failed)?,
                title.as_ptr(),
            )
        };
        Ok(library)
    }
    /// Its module in the current context.
    pub(super) fn module(&self) -> Result<sys::CUmodule, cudarc::driver::DriverError> {
        let mut module = ptr::null_mut();
        // SAFETY: the library lives as long as this.
        unsafe { sys::cuLibraryGetModule(&mut module, self.0) }.result().map(|()| module)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: whoever has the module holds this too.
        let _ = unsafe { sys::cuLibraryUnload(self.0) };
    }
}

/// Links kernels for a device, each as soon as its PTX is there.
pub struct Linker {
    index: usize,
    cache: Option<Store>,
    device: OnceLock<Option<Arc<Device>>>,
    images: Mutex<Images>,
}

impl Linker {
    /// For the GPU of ordinal `index`, opened at the first kernel.
    pub fn new(index: usize, cache: Option<Store>) -> Linker {
        Linker { index, cache, device: OnceLock::new(), images: Mutex::default() }
    }
    /// Links a kernel on this thread. [`Linker::all`] retries what fails and reports the error.
    pub fn add(&self, name: &str, ptx: &[u8]) {
        let device = self.device.get_or_init(|| Device::cuda(self.index).ok().map(Arc::new));
        let Some(device) = device else { return };
        let code =
            device.enter().and_then(|_current| image_of(device, name, ptx, self.cache.as_ref()));
        if let Ok(code) = code {
            self.images.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into(), code);
        }
    }
    /// The device, and the images of all these kernels. Err: there is no device, or the driver
    /// rejects a kernel.
    pub fn all(
        &self,
        ptx: &BTreeMap<String, Vec<u8>>,
        workers: usize,
    ) -> Result<(Arc<Device>, Images), CudaError> {
        let device = match self.device.get() {
            Some(Some(device)) => device.clone(),
            _ => Arc::new(Device::cuda(self.index)?),
        };
        let mut made =
            std::mem::take(&mut *self.images.lock().unwrap_or_else(PoisonError::into_inner));
        made.retain(|name, _| ptx.contains_key(name));
        made.extend(link(
            &device,
            ptx.iter().filter(|(name, _)| !made.contains_key(*name)),
            self.cache.as_ref(),
            workers,
        )?);
        Ok((device, made))
    }
}

/// Each kernel's image, by name.
pub(super) fn link<'a>(
    device: &Device,
    ptx: impl Iterator<Item = (&'a String, &'a Vec<u8>)>,
    cache: Option<&Store>,
    workers: usize,
) -> Result<Images, CudaError> {
    let jobs: Vec<(&String, &Vec<u8>)> = ptx.collect();
    if jobs.is_empty() {
        return Ok(Images::new());
    }
    let (next, made) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let work = || {
        while let Some((name, text)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let code = device.enter().and_then(|_current| image_of(device, name, text, cache));
            made.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(code.map(|c| (name.to_string(), c)));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..workers.clamp(1, jobs.len()) {
            scope.spawn(work);
        }
    });
    made.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

/// Whether `cuLink` may pessimise a kernel: it compiles relocatable code and then ignores
/// `setmaxnreg` (ptxas warning C7504).
fn sets_max_registers(ptx: &[u8]) -> bool {
    let part = b"setmaxnreg";
    ptx.windows(part.len()).any(|w| w == part)
}

/// Whether the linker's log shows no slowdown: no spills, and no serialised wgmma (C7509 and
/// related warnings). A log without the kernel's statistics counts as unsound.
fn is_sound(log: &str) -> bool {
    let spills = |line: &&str| {
        line.contains("bytes spill stores") && !line.contains(" 0 bytes spill stores")
    };
    let said = log.lines().any(|l| l.contains("bytes spill stores"));
    said && !log.lines().any(|l| spills(&l) || l.contains("serialized"))
}

/// Cache entry of a kernel that must not go through `cuLink`.
const JIT_COMPILED: &[u8] = b"whole";

fn image_of(
    device: &Device,
    name: &str,
    ptx: &[u8],
    cache: Option<&Store>,
) -> Result<Image, CudaError> {
    let (major, minor) = device.info().capability;
    let mut sha = Sha256::new();
    sha.update(ptx);
    let hash: String = sha.finalize().iter().take(16).map(|b| format!("{b:02x}")).collect();
    let key = format!("cubin_{hash}_{major}{minor}_{}", device.driver());
    // A cache miss or error means linking again.
    let code = match cache.map(|c| c.get(&key)) {
        Some(Ok(Some(code))) => code,
        _ => {
            let (mut code, log) = link_one(name, ptx)?;
            if sets_max_registers(ptx) && !is_sound(&log) {
                tracing::debug!(target: "kiln::runtime", kernel = name, %log, "is compiled by itself, since the linker would make it slower");
                code = JIT_COMPILED.to_vec();
            }
            if let Some(Err(remark)) = cache.map(|c| c.put(&key, &code)) {
                tracing::debug!(target: "kiln::runtime", %remark, "a linked kernel was not kept");
            }
            code
        }
    };
    if code == JIT_COMPILED {
        Ok(Image::Library(Arc::new(Library::load(name, ptx)?)))
    } else {
        Ok(Image::Linked(Arc::new(code)))
    }
}

/// A kernel's cubin, and the linker's log.
fn link_one(name: &str, ptx: &[u8]) -> Result<(Vec<u8>, String), CudaError> {
    let [mut errors, mut log] = [(); 2].map(|()| vec![0u8; LOG]);
    let mut options = [
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        CUjit_option::CU_JIT_INFO_LOG_BUFFER,
        CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        CUjit_option::CU_JIT_LOG_VERBOSE,
    ];
    // Integers in the place of pointers, as the API wants.
    let [size, yes] = [LOG, 1].map(ptr::without_provenance_mut::<c_void>);
    let mut values =
        [errors.as_mut_ptr().cast::<c_void>(), size, log.as_mut_ptr().cast::<c_void>(), size, yes];
    let title = CString::new(name).unwrap_or_default();
    // The linker wants a NUL at the end.
    let mut text = ptx.to_vec();
    text.push(0);
    let mut state = ptr::null_mut();
    // SAFETY: the buffers outlive the linker state, which is destroyed below; the cubin is copied
    // before.
    let outcome = unsafe {
        sys::cuLinkCreate_v2(
            options.len() as u32,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
            &mut state,
        )
        .result()
        .and_then(|()| {
            let kind = sys::CUjitInputType::CU_JIT_INPUT_PTX;
            let (none, nothing) = (ptr::null_mut(), ptr::null_mut());
            let added = sys::cuLinkAddData_v2(
                state,
                kind,
                text.as_mut_ptr().cast(),
                text.len(),
                title.as_ptr(),
                0,
                none,
                nothing,
            )
            .result();
            let (mut code, mut len) = (ptr::null_mut(), 0usize);
            let done =
                added.and_then(|()| sys::cuLinkComplete(state, &mut code, &mut len).result());
            let copy = done.map(|()| std::slice::from_raw_parts(code.cast::<u8>(), len).to_vec());
            let _ = sys::cuLinkDestroy(state);
            copy
        })
    };
    let said = |buffer: &[u8]| {
        String::from_utf8_lossy(buffer.split(|b| *b == 0).next().unwrap_or_default())
            .trim()
            .to_string()
    };
    match outcome {
        Ok(code) => Ok((code, said(&log))),
        Err(e) => {
            let said = said(&errors);
            Err(CudaError::Link {
                kernel: name.into(),
                reason: if said.is_empty() {
                    driver_message(e)
                } else {
                    format!("{}: {said}", driver_message(e))
                },
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_says_whether_a_kernel_is_sound() {
        let sound = "ptxas info    : Function properties for k\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 154 registers";
        assert!(is_sound(sound));
        assert!(!is_sound(""));
        assert!(!is_sound(&sound.replace(" 0 bytes spill stores", " 10 bytes spill stores")));
        assert!(!is_sound(&format!(
            "{sound}\nptxas info    : (C7509) wgmma.mma_async instructions are serialized due to the presence of Extern calls"
        )));
    }
}

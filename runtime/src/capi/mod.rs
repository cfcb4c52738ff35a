//! The C API of `include/kiln.h`, which is generated from this folder. Exported by
//! `libkiln_runtime.so` (`capi/`), and by `libkiln.so` (`capi/full/`), which adds the compiler.
//!
//! No panic crosses the API: it becomes `KILN_ERROR_INTERNAL`. Pointers are checked for null only.
mod signature;

pub use signature::{KilnDim, KilnTensorInfo};

use crate::{
    CallError, OpenError, OutOfMemory, Package, PackageError, Program, View, ViewMut,
    cuda::{self, Device},
    host::{Find, Host},
    pool::MAX_THREADS,
};
use dlpark::ffi::DLTensor;
use signature::Signature;
use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    ptr,
    sync::Arc,
};

/// Status of a call. `kiln_last_error` has the message.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the sentences stand beside the names")]
#[allow(non_camel_case_types)]
pub enum KilnStatus {
    /// Success.
    KILN_OK = 0,
    /// A null pointer, a number out of range, or text that is not UTF-8.
    KILN_ERROR_ARGUMENT = 1,
    /// A file cannot be read, is damaged, or is not a package.
    KILN_ERROR_FILE = 2,
    /// The program is for another processor, or its code could not be linked.
    KILN_ERROR_TARGET = 3,
    /// A weight is missing or does not match the program.
    KILN_ERROR_WEIGHT = 4,
    /// A tensor does not match the program; nothing has been written.
    KILN_ERROR_TENSOR = 5,
    /// A GPU or driver error. Outputs may have been partly written.
    KILN_ERROR_DEVICE = 6,
    /// Out of memory.
    KILN_ERROR_MEMORY = 7,
    /// An op that kiln does not support. Only from `libkiln.so`.
    KILN_ERROR_UNSUPPORTED = 8,
    /// Compilation failed. Only from `libkiln.so`.
    KILN_ERROR_COMPILE = 9,
    /// An internal error of kiln.
    KILN_ERROR_INTERNAL = 10,
}

/// Load options. `kiln_default_options` gives the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KilnOptions {
    /// Threads of a call on the host; 0 for one for each processor.
    pub threads: u32,
    /// Ordinal of the GPU that a GPU program runs on; unused by other programs.
    pub gpu: u32,
    /// Whether a call on a GPU launches its kernels as one CUDA graph.
    pub cuda_graphs: bool,
}

/// A loaded program. It may be called from several threads at once.
pub struct KilnProgram {
    engine: Engine,
    threads: usize,
    signature: Signature,
}

enum Engine {
    Host(Host),
    Cuda(Box<cuda::Loaded>),
}

/// A status with its message.
#[derive(Debug)]
pub struct Failure(pub KilnStatus, pub String);

use KilnStatus::*;

impl From<CallError> for Failure {
    fn from(e: CallError) -> Failure {
        let status = match &e {
            CallError::Memory(_) | CallError::Cuda(cuda::CudaError::Memory { .. }) => {
                KILN_ERROR_MEMORY
            }
            CallError::Cuda(_) => KILN_ERROR_DEVICE,
            CallError::Tiles(_) => KILN_ERROR_TARGET,
            _ => KILN_ERROR_TENSOR,
        };
        Failure(status, e.to_string())
    }
}
impl From<OpenError> for Failure {
    fn from(e: OpenError) -> Failure {
        match e {
            OpenError::Call(e) => e.into(),
            OpenError::Weight { .. } => Failure(KILN_ERROR_WEIGHT, e.to_string()),
            OpenError::Target { .. } | OpenError::Link(_) => {
                Failure(KILN_ERROR_TARGET, e.to_string())
            }
        }
    }
}
impl From<PackageError> for Failure {
    fn from(e: PackageError) -> Failure {
        Failure(KILN_ERROR_FILE, e.to_string())
    }
}
impl From<OutOfMemory> for Failure {
    fn from(e: OutOfMemory) -> Failure {
        Failure(KILN_ERROR_MEMORY, e.to_string())
    }
}

thread_local! { static LAST: RefCell<CString> = RefCell::default(); }

fn argument(reason: &str) -> Failure {
    Failure(KILN_ERROR_ARGUMENT, reason.into())
}

/// Runs a function's body: catches panics, and stores an error's message for the thread.
pub fn guarded(body: impl FnOnce() -> Result<(), Failure>) -> KilnStatus {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|s| s.to_string())
            .or_else(|| panic.downcast_ref::<String>().cloned());
        Err(Failure(
            KILN_ERROR_INTERNAL,
            format!("kiln itself failed: {}", text.unwrap_or_else(|| "no reason is known".into())),
        ))
    });
    match outcome {
        Ok(()) => KILN_OK,
        Err(Failure(status, text)) => {
            let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
            LAST.with(|last| *last.borrow_mut() = text);
            status
        }
    }
}

/// The text of a C string. Err: null, or not UTF-8.
///
/// # Safety
/// Null, or a NUL-terminated string.
pub unsafe fn text<'a>(raw: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if raw.is_null() {
        return Err(argument(&format!("{what} is null")));
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(raw) }.to_str().map_err(|_| argument(&format!("{what} is no UTF-8")))
}

/// Dereferences a pointer. Err: it is null.
unsafe fn at<'a, T>(raw: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise: null, or alive for the call.
    unsafe { raw.as_ref() }.ok_or_else(|| argument(&format!("{what} is null")))
}

/// A caller's array; null is allowed if it is empty.
unsafe fn list<'a, T>(raw: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    match (raw.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(argument(&format!("{what} is null"))),
        // SAFETY: the caller's promise: that many elements.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(raw, count) }),
    }
}

impl KilnProgram {
    /// Loads a package; `find` finds the weights that it does not hold.
    pub fn open(
        package: &Package,
        options: Option<&KilnOptions>,
        find: &mut Find,
    ) -> Result<KilnProgram, Failure> {
        let options = options.copied().unwrap_or(kiln_default_options());
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        let threads =
            if options.threads == 0 { all } else { options.threads as usize }.min(MAX_THREADS);
        let signature = Signature::of(&package.program);
        let engine = if package.program.target.is_cuda() {
            let device = Device::cuda(options.gpu as usize).map_err(CallError::from)?;
            let mode =
                if options.cuda_graphs { cuda::Mode::ReduceOverhead } else { cuda::Mode::Default };
            let settings = cuda::Settings { mode, ..Default::default() };
            Engine::Cuda(Box::new(cuda::Loaded::open(
                Arc::new(device),
                package,
                None,
                threads,
                settings,
            )?))
        } else {
            Engine::Host(Host::open(package, find, threads)?)
        };
        Ok(KilnProgram { engine, threads, signature })
    }
    fn program(&self) -> &Program {
        match &self.engine {
            Engine::Host(l) => l.program(),
            Engine::Cuda(l) => l.program(),
        }
    }
    fn call(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        stream: *mut c_void,
    ) -> Result<(), Failure> {
        match &self.engine {
            Engine::Host(_) if !stream.is_null() => {
                Err(argument("a program for the host has no stream: pass NULL"))
            }
            Engine::Host(l) => Ok(l.call(inputs, outputs, self.threads)?),
            Engine::Cuda(l) if stream.is_null() => Ok(l.call(inputs, outputs)?),
            // SAFETY: the caller's promise of `kiln_program_call`.
            Engine::Cuda(l) => {
                Ok(unsafe { l.launch(inputs, outputs, cuda::Stream::from_raw(stream)) }?)
            }
        }
    }
}

/// Passes ownership of a program to the caller.
///
/// # Safety
/// `out` is null or writable.
pub unsafe fn return_program(
    program: Result<KilnProgram, Failure>,
    out: *mut *mut KilnProgram,
) -> Result<(), Failure> {
    if out.is_null() {
        return Err(argument("out is null"));
    }
    // SAFETY: not null.
    unsafe { *out = ptr::null_mut() };
    let program = program?;
    // SAFETY: as above.
    unsafe { *out = Box::into_raw(Box::new(program)) };
    Ok(())
}

/// The message of this thread's last error; empty if there was none. Valid until the next function
/// that fails on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_last_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// kiln's version, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn kiln_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The default options: all processors, GPU 0, no CUDA graphs.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_default_options() -> KilnOptions {
    KilnOptions { threads: 0, gpu: 0, cuda_graphs: false }
}

/// Loads a compiled package (.kpkg) that holds its weights (`kiln compile --with-weights`) or has
/// none. A package is code: load only what you trust. `options` may be null. `*out` is the program,
/// which the caller owns, or null on failure.
///
/// # Safety
/// `path` is a NUL-terminated string, `options` is null or valid, `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_program_load(
    path: *const c_char,
    options: *const KilnOptions,
    out: *mut *mut KilnProgram,
) -> KilnStatus {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let made = || -> Result<KilnProgram, Failure> {
                let package = Package::load(Path::new(text(path, "path")?))?;
                KilnProgram::open(&package, options.as_ref(), &mut |g| package.weight(g))
            };
            return_program(made(), out)
        }
    })
}

/// As `kiln_program_load`, from the bytes of a package, which may be freed afterwards.
///
/// # Safety
/// `bytes` has `size` bytes; the rest as for `kiln_program_load`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_program_load_bytes(
    bytes: *const u8,
    size: usize,
    options: *const KilnOptions,
    out: *mut *mut KilnProgram,
) -> KilnStatus {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let made = || -> Result<KilnProgram, Failure> {
                let bytes = list(bytes, size, "bytes")?;
                let package =
                    Package::read(std::io::Cursor::new(bytes), crate::package::MAX_BYTES)?;
                KilnProgram::open(&package, options.as_ref(), &mut |g| package.weight(g))
            };
            return_program(made(), out)
        }
    })
}

/// Frees a program after its calls have returned. Null is allowed.
///
/// # Safety
/// Null, or a live program that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_program_free(program: *mut KilnProgram) {
    if !program.is_null() {
        // SAFETY: the caller's promise. A panic while it is freed is swallowed.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(program) })));
    }
}

/// Number of input tensors; 0 for null.
///
/// # Safety
/// Null, or a live program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_program_input_count(program: *const KilnProgram) -> usize {
    // SAFETY: the caller's promise.
    unsafe { program.as_ref() }.map_or(0, |p| p.signature.inputs())
}

/// Number of output tensors; 0 for null.
///
/// # Safety
/// Null, or a live program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_program_output_count(program: *const KilnProgram) -> usize {
    // SAFETY: the caller's promise.
    unsafe { program.as_ref() }.map_or(0, |p| p.signature.outputs())
}

/// Describes input `index`: name, dtype and shape.
///
/// # Safety
/// Null, or a live program; `info` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_program_input(
    program: *const KilnProgram,
    index: usize,
    info: *mut KilnTensorInfo,
) -> KilnStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { put(info, at(program, "program")?.signature.input(index)) })
}

/// Describes output `index`: name, dtype and shape.
///
/// # Safety
/// Null, or a live program; `info` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_program_output(
    program: *const KilnProgram,
    index: usize,
    info: *mut KilnTensorInfo,
) -> KilnStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { put(info, at(program, "program")?.signature.output(index)) })
}

unsafe fn put(info: *mut KilnTensorInfo, found: Option<KilnTensorInfo>) -> Result<(), Failure> {
    let found = found.ok_or_else(|| argument("there is no tensor of this number"))?;
    if info.is_null() {
        return Err(argument("info is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { info.write(found) };
    Ok(())
}

/// Shape of output `output` for inputs of these shapes; only the shapes of `inputs` are read.
/// `*rank` is the number of dimensions. `shape` is filled if `capacity` is at least that, and may
/// be null if `capacity` is 0.
///
/// # Safety
/// `inputs` has `input_count` valid DLPack tensors, `shape` has room for `capacity` numbers; the
/// others are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_program_output_shape(
    program: *const KilnProgram,
    inputs: *const *const DLTensor,
    input_count: usize,
    output: usize,
    shape: *mut i64,
    capacity: usize,
    rank: *mut usize,
) -> KilnStatus {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let program = at(program, "program")?;
            let views = read(inputs, input_count)?;
            let shapes: Vec<&[usize]> = views.iter().map(View::shape).collect();
            let all = program.program().output_shapes(&shapes)?;
            let sizes =
                all.get(output).ok_or_else(|| argument("there is no output of this number"))?;
            if rank.is_null() || (shape.is_null() && capacity > 0) {
                return Err(argument("rank or shape is null"));
            }
            *rank = sizes.len();
            if capacity >= sizes.len() {
                sizes
                    .iter()
                    .enumerate()
                    .for_each(|(i, n)| *shape.add(i) = i64::try_from(*n).unwrap_or(i64::MAX));
            }
        }
        Ok(())
    })
}

unsafe fn read<'a>(inputs: *const *const DLTensor, count: usize) -> Result<Vec<View<'a>>, Failure> {
    // SAFETY: the caller's promise.
    let all = unsafe { list(inputs, count, "inputs")? };
    all.iter().map(|t| unsafe { Ok(View::from_dlpack(at(*t, "an input")?)?) }).collect()
}

/// Calls a program. Tensors are DLPack's, in host or device memory: of a DLManagedTensor or
/// DLManagedTensorVersioned pass `&m->dl_tensor`. Inputs may have any strides; outputs are written,
/// row-major, to the caller's memory.
///
/// `stream` is a CUstream on which a GPU program is enqueued. The call synchronises with it only if
/// an output is in host memory. With null, and on the host, the outputs are complete on return.
///
/// `KILN_ERROR_DEVICE`: the stream is another GPU's or context's, or is being captured.
/// `KILN_ERROR_TENSOR`: a tensor is not in the memory that it states, or is on another GPU.
///
/// # Safety
/// The tensors are valid by DLPack's specification and live until the call has completed, on its
/// stream if it has one. Nothing else uses the outputs' memory meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_program_call(
    program: *const KilnProgram,
    inputs: *const *const DLTensor,
    input_count: usize,
    outputs: *const *mut DLTensor,
    output_count: usize,
    stream: *mut c_void,
) -> KilnStatus {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let program = at(program, "program")?;
            let read = read(inputs, input_count)?;
            let mut written = vec![];
            for t in list(outputs, output_count, "outputs")? {
                written.push(ViewMut::from_dlpack(
                    t.as_mut().ok_or_else(|| argument("an output is null"))?,
                )?);
            }
            program.call(&read, &mut written, stream)
        }
    })
}

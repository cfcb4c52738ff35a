//! Convolutions by cuDNN's graph API, version 9, which is looked for when one is first asked for.
//! cudarc would panic where it is not.
mod descriptor;
mod graph;

use super::{CudaError, Device};
use crate::convolution::Convolution;
use cudarc::{
    cudnn::{result, sys},
    driver::sys as driver,
};
use descriptor::{Address, Descriptor};
use std::{
    ffi::{CStr, CString, c_char, c_void},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t as Heuristic,
    cudnnBackendNumericalNote_t as Note,
};

/// Most bytes that a convolution may ask for beside its operands, as for products.
const WORKSPACE: i64 = 32 << 20;
/// Most plans that are tried: an engine may turn out not to be there, or to want more memory.
const TRIED: usize = 32;
/// A part that version 9 loads by itself, and without which it would end the process.
const PART: &str = "libcudnn_graph.so.9";

/// Whether the library is found, with the parts without which it would end the process: one of its
/// own, and the cuBLASLt of its CUDA version.
pub fn present() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    // SAFETY: opens a library and closes it again.
    *FOUND.get_or_init(
        || unsafe { sys::is_culib_present() } && opens(PART) && opens(&format!("libcublasLt.so.{}", result::get_cudart_version() / 1000)),
    )
}

/// Whether a library of that name is found. It stays open.
fn opens(name: &str) -> bool {
    // SAFETY: opens a library by a name that ends with a zero.
    CString::new(name).is_ok_and(|name| {
        !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }.is_null()
    })
}

/// What has been looked for, in words.
pub fn searched() -> String {
    format!(
        "{}; {PART}, and the libcublasLt of its CUDA version",
        super::searched("libcudnn.so.9", cudarc::get_lib_name_candidates("cudnn"))
    )
}

/// The library's words for what went wrong last on this thread.
fn failed(what: &'static str) -> impl Fn(result::CudnnError) -> CudaError {
    move |e| {
        let mut text = [0 as c_char; 512];
        // SAFETY: writes at most so many bytes, with a zero at the end.
        let said = unsafe {
            sys::cudnnGetLastErrorString(text.as_mut_ptr(), text.len());
            text[text.len() - 1] = 0;
            CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
        };
        let said = said.lines().map(str::trim).collect::<Vec<_>>().join("; ");
        CudaError::Driver { what, reason: format!("cuDNN says {:?}: {said}", e.0) }
    }
}

/// The library on a card. One thread at a time says which stream it works on, and gives it work.
pub struct Handle(Mutex<sys::cudnnHandle_t>);
// SAFETY: the library's handle is tied to no thread, and behind a mutex.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Handle {
    /// That of a card, opened when it is first asked for and kept until the process ends, as the
    /// card's context is. The card is the calling thread's. Err: the library is not found, or does
    /// not start.
    pub fn of(device: &Device) -> Result<Arc<Handle>, CudaError> {
        static KEPT: Mutex<Vec<(usize, Arc<Handle>)>> = Mutex::new(vec![]);
        if !present() {
            return Err(CudaError::Driver {
                what: "looking for cuDNN",
                reason: format!("looked for {}", searched()),
            });
        }
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let index = device.card().index;
        if let Some((_, handle)) = kept.iter().find(|(i, _)| *i == index) {
            return Ok(handle.clone());
        }
        let handle = result::create_handle().map_err(failed("starting cuDNN"))?;
        let handle = Arc::new(Handle(Mutex::new(handle)));
        kept.push((index, handle.clone()));
        Ok(handle)
    }
}

/// A convolution that the library has found a plan for.
pub struct Planned {
    handle: Arc<Handle>,
    convolution: Convolution,
    plan: Descriptor,
    /// Bytes of memory that it needs beside.
    pub workspace: usize,
}
// SAFETY: a plan is only read once it is made.
unsafe impl Send for Planned {}
unsafe impl Sync for Planned {}

impl Planned {
    /// Asks the library for the plan that it thinks the fastest. Err: it has none, or the
    /// description is none.
    pub fn new(handle: &Arc<Handle>, c: &Convolution) -> Result<Planned, CudaError> {
        let held = handle.0.lock().unwrap_or_else(PoisonError::into_inner);
        let operations = graph::operations(c)?;
        let inner: Vec<_> = operations.all.iter().map(Descriptor::inner).collect();
        let graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[*held])?
            .with(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &inner)?
            .done()?;
        let (mut last, mut tried) = (None, 0);
        for mode in [Heuristic::CUDNN_HEUR_MODE_A, Heuristic::CUDNN_HEUR_MODE_FALLBACK] {
            // What has no engines at all says so here.
            let ways = match ways(&graph, mode) {
                Ok(ways) => ways,
                Err(e) => {
                    last = Some(e);
                    continue;
                }
            };
            for way in ways {
                if tried == TRIED || !allowed(&way, c)? {
                    continue;
                }
                tried += 1;
                match plan(*held, &way) {
                    Ok((plan, bytes)) if (0..=WORKSPACE).contains(&bytes) => {
                        let (handle, convolution, workspace) =
                            (handle.clone(), c.clone(), bytes as usize);
                        return Ok(Planned { handle, convolution, plan, workspace });
                    }
                    Ok(_) => {}
                    Err(e) => last = Some(e),
                }
            }
        }
        let none = || CudaError::Driver {
            what: "asking cuDNN for a plan",
            reason: "it has none for this convolution".into(),
        };
        Err(last.unwrap_or_else(none))
    }

    /// Gives it to a stream. `parameters`: the launch's, of which some are addresses; `scratch`:
    /// the address of [`Planned::workspace`] bytes.
    pub fn launch(
        &self,
        parameters: &[u64],
        scratch: u64,
        stream: driver::CUstream,
    ) -> Result<(), CudaError> {
        let fail = failed("a convolution by cuDNN");
        let (mut ids, mut addresses) = (vec![], vec![]);
        for (id, v) in graph::operands(&self.convolution) {
            let word = parameters.get(v.arg).ok_or_else(|| CudaError::Driver {
                what: "a convolution by cuDNN",
                reason: format!("there is no parameter {}", v.arg),
            })?;
            ids.push(id);
            addresses.push(Address(
                (word + v.offset * crate::view::byte_size(&v.dtype).unwrap_or(1) as u64)
                    as *mut c_void,
            ));
        }
        let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &ids)?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &addresses)?
            .with(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[Address(scratch as *mut c_void)])?
            .done()?;
        let handle = self.handle.0.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a live stream of the card's context; tensors of the described sizes lie at these
        // addresses, as the program says.
        unsafe {
            result::set_stream(*handle, stream.cast()).map_err(&fail)?;
            sys::cudnnBackendExecute(*handle, self.plan.raw(), pack.raw()).result().map_err(&fail)
        }
    }
}

/// Ways to compute a graph, the one first that the library thinks the fastest.
fn ways(graph: &Descriptor, mode: Heuristic) -> Result<Vec<Descriptor>, CudaError> {
    Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .of(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)?
        .with(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?
        .done()?
        .descriptors(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
}

/// Whether a way computes what kiln promises: the same in each call, with sums in f32, and factors
/// of f32 not rounded unless that is allowed.
fn allowed(way: &Descriptor, c: &Convolution) -> Result<bool, CudaError> {
    let engine =
        way.descriptor(Name::CUDNN_ATTR_ENGINECFG_ENGINE, Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    let most = Note::CUDNN_NUMERICAL_NOTE_TYPE_COUNT as usize;
    let notes = engine.notes(
        Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
        Type::CUDNN_TYPE_NUMERICAL_NOTE,
        most,
    )?;
    let mut not = vec![
        Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
        Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
    ];
    if !c.tf32 {
        not.push(Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
        if c.image.dtype == "f32" {
            not.push(Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
        }
    }
    Ok(!not.iter().any(|n| notes.contains(&(*n as u32))))
}

/// A way made ready to run, and the bytes that it needs.
fn plan(handle: sys::cudnnHandle_t, way: &Descriptor) -> Result<(Descriptor, i64), CudaError> {
    let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[handle])?
        .of(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, way)?
        .done()?;
    let bytes = plan.number(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
    Ok((plan, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{convolution::Volume, gemm::Activation};

    #[test]
    fn without_the_library_the_names_are_said() {
        let said = searched();
        assert!(said.contains("libcudnn.so.9") && said.contains("libcudnn_graph.so.9"), "{said}");
    }

    /// Descriptions need no card, where the library is.
    #[test]
    fn the_library_takes_the_descriptions() {
        if !present() {
            eprintln!("skipped: there is no cuDNN");
            return;
        }
        let volume = |arg: usize, sizes: [u64; 4]| {
            let [_, c, h, w] = sizes;
            Volume {
                arg,
                offset: 0,
                dtype: "bf16".into(),
                sizes,
                strides: [c * h * w, 1, c * w, c],
            }
        };
        for (bias, residual, activation) in [
            (false, false, Activation::None),
            (true, false, Activation::Relu),
            (true, true, Activation::Relu),
            (true, false, Activation::GeluTanh),
        ] {
            let mut c = Convolution {
                image: volume(0, [4, 64, 28, 28]),
                weight: volume(1, [128, 64, 3, 3]),
                result: volume(2, [4, 128, 14, 14]),
                strides: [2, 2],
                dilation: [1, 1],
                low: [1, 1],
                high: [1, 1],
                bias: bias.then(|| volume(3, [1, 128, 1, 1])),
                residual: residual.then(|| volume(4, [4, 128, 14, 14])),
                activation,
                tf32: false,
            };
            let made = graph::operations(&c).expect("cuDNN takes it");
            assert_eq!(
                made.all.len(),
                1 + usize::from(bias)
                    + usize::from(residual)
                    + usize::from(activation != Activation::None)
            );
            // A result of another size is none.
            c.result = volume(2, [4, 128, 15, 14]);
            assert!(graph::operations(&c).is_err());
        }
    }
}

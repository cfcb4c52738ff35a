//! Convolutions by the graph API of cuDNN 9, loaded on first use. cudarc would panic if the library
//! is missing, so it is looked for first.
mod descriptor;
mod failure;
mod graph;

use super::{CudaError, Device, per_device::PerDevice};
use crate::convolution::Convolution;
use cudarc::{
    cudnn::{result, sys},
    driver::sys as driver,
};
use descriptor::{Address, Descriptor};
use failure::failed;
use std::{
    ffi::{CString, c_void},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t as Heuristic,
    cudnnBackendNumericalNote_t as Note,
};

/// Workspace limit in bytes, as for matrix products.
const MAX_WORKSPACE: i64 = 32 << 20;
/// Most engine configurations to try: some are unavailable or exceed the workspace limit.
const MAX_TRIED: usize = 32;
/// A sub-library that cuDNN 9 loads itself; without it cuDNN aborts the process.
const GRAPH_LIBRARY: &str = "libcudnn_graph.so.9";

/// Whether the library can be loaded, with the libraries without which it aborts the process:
/// `libcudnn_graph` and the cuBLASLt of its CUDA version. A cuDNN that another library of the
/// process has loaded, such as PyTorch, stays that library's: parts of two installations would be
/// mixed, which fails in both.
pub fn present() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        // SAFETY: opens a library and closes it again.
        !maps_cudnn(&maps)
            && unsafe { sys::is_culib_present() }
            && can_load(GRAPH_LIBRARY)
            && can_load(&format!("libcublasLt.so.{}", result::get_cudart_version() / 1000))
    })
}

/// Whether a part of cuDNN is among the files of `/proc/self/maps`.
fn maps_cudnn(maps: &str) -> bool {
    maps.lines()
        .any(|line| line.rsplit('/').next().is_some_and(|file| file.starts_with("libcudnn")))
}

/// Whether a library of this name can be loaded. It stays loaded.
fn can_load(name: &str) -> bool {
    // SAFETY: opens a library by a NUL-terminated name.
    CString::new(name).is_ok_and(|name| {
        !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }.is_null()
    })
}

/// The library names that were tried, for messages.
pub fn searched() -> String {
    format!(
        "{}; {GRAPH_LIBRARY}, and the libcublasLt of its CUDA version; and whether another library has loaded cuDNN",
        super::searched("libcudnn.so.9", cudarc::get_lib_name_candidates("cudnn"))
    )
}

/// A cuDNN handle. The mutex makes setting its stream and executing one step.
pub struct Handle(Mutex<sys::cudnnHandle_t>);
// SAFETY: the handle is tied to no thread, and behind a mutex.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Handle {
    /// The handle of a device, created on first use in the current context and kept until the
    /// process ends. Err: the library is missing or does not initialise.
    pub fn for_device(device: &Device) -> Result<Arc<Handle>, CudaError> {
        static HANDLES: PerDevice<Handle> = PerDevice::new();
        if !present() {
            return Err(CudaError::Driver {
                what: "looking for cuDNN",
                reason: format!("looked for {}", searched()),
            });
        }
        HANDLES.of(device, || {
            let handle = result::create_handle().map_err(failed("starting cuDNN"))?;
            Ok(Handle(Mutex::new(handle)))
        })
    }
}

/// A convolution with its execution plan.
pub struct ConvolutionPlan {
    handle: Arc<Handle>,
    convolution: Convolution,
    plan: Descriptor,
    /// Workspace in bytes.
    pub workspace: usize,
}
// SAFETY: a plan is only read once it is created.
unsafe impl Send for ConvolutionPlan {}
unsafe impl Sync for ConvolutionPlan {}

impl ConvolutionPlan {
    /// Takes the heuristic's first engine configuration that kiln allows. Err: there is none, or a
    /// descriptor is invalid.
    pub fn new(handle: &Arc<Handle>, c: &Convolution) -> Result<ConvolutionPlan, CudaError> {
        let held = handle.0.lock().unwrap_or_else(PoisonError::into_inner);
        let operations = graph::operations(c)?;
        let inner: Vec<_> = operations.all.iter().map(Descriptor::inner).collect();
        let graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
            .with(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[*held])?
            .with(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &inner)?
            .finalize()?;
        let (mut last, mut tried) = (None, 0);
        for mode in [Heuristic::CUDNN_HEUR_MODE_A, Heuristic::CUDNN_HEUR_MODE_FALLBACK] {
            // Fails here if no engine supports the graph.
            let engine_configs = match engine_configs(&graph, mode) {
                Ok(engine_configs) => engine_configs,
                Err(e) => {
                    last = Some(e);
                    continue;
                }
            };
            for config in engine_configs {
                if tried == MAX_TRIED || !allowed(&config, c)? {
                    continue;
                }
                tried += 1;
                match plan(*held, &config) {
                    Ok((plan, bytes)) if (0..=MAX_WORKSPACE).contains(&bytes) => {
                        let (handle, convolution, workspace) =
                            (handle.clone(), c.clone(), bytes as usize);
                        return Ok(ConvolutionPlan { handle, convolution, plan, workspace });
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

    /// Enqueues it. `parameters` are the launch's, some of them device pointers; `scratch` is the
    /// device address of [`ConvolutionPlan::workspace`] bytes.
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
            .finalize()?;
        let handle = self.handle.0.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a live stream of the device's context; tensors of the described sizes are at
        // these addresses, as the program says.
        unsafe {
            result::set_stream(*handle, stream.cast()).map_err(&fail)?;
            sys::cudnnBackendExecute(*handle, self.plan.raw(), pack.raw()).result().map_err(&fail)
        }
    }
}

/// Engine configurations for a graph, in the heuristic's order.
fn engine_configs(graph: &Descriptor, mode: Heuristic) -> Result<Vec<Descriptor>, CudaError> {
    Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .with_descriptor(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)?
        .with(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?
        .finalize()?
        .descriptors(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
}

/// Whether an engine configuration is deterministic, accumulates in f32, and rounds f32 operands to
/// tf32 only if the convolution allows it.
fn allowed(config: &Descriptor, c: &Convolution) -> Result<bool, CudaError> {
    let engine = config
        .descriptor(Name::CUDNN_ATTR_ENGINECFG_ENGINE, Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    let most = Note::CUDNN_NUMERICAL_NOTE_TYPE_COUNT as usize;
    let notes = engine.enumerators(
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

/// The execution plan of an engine configuration, and its workspace in bytes.
fn plan(handle: sys::cudnnHandle_t, config: &Descriptor) -> Result<(Descriptor, i64), CudaError> {
    let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[handle])?
        .with_descriptor(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)?
        .finalize()?;
    let bytes = plan.integer(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
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

    #[test]
    fn a_cudnn_of_another_library_is_seen() {
        let line =
            "7f00-7f01 r-xp 00000000 08:01 42   /opt/venv/nvidia/cudnn/lib/libcudnn_graph.so.9";
        assert!(
            maps_cudnn(line) && !maps_cudnn("7f00-7f01 r-xp 0 08:01 42  /usr/lib/libcuda.so.1")
        );
    }

    /// Finalising descriptors needs the library, but no GPU.
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
            // The result's size contradicts the window.
            c.result = volume(2, [4, 128, 15, 14]);
            assert!(graph::operations(&c).is_err());
        }
    }
}

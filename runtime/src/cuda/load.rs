//! A program on a GPU: its modules, its weights, and what its calls share.
use super::{
    CudaError, Device, Mode, Settings,
    device_functions::DeviceFunctions,
    driver_message,
    graph_blockers::graph_blockers,
    libraries::{Libraries, PreparedCall},
    link::{Image, Images, Library, link},
    memory::DeviceBuffer,
    plan::SharedPlans,
    staging::Staging,
    state::{MAX_PLANS, States},
};
use crate::{
    Bytes, CallError, OpenError, Package, Program, Store,
    call_error::tensor_error,
    control::ControlFlow,
    host::Find,
    program::{Kernel, Role},
    view::{byte_size, check_bytes},
};
use cudarc::driver::{result, sys};
use std::{
    collections::HashMap,
    ffi::CString,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// The control flow of a program, in place of kernels.
pub struct Control {
    pub(super) flow: ControlFlow,
    pub(super) parts: Vec<Loaded>,
    /// The libraries that compute functions on the GPU, as far as they are found.
    pub(super) functions: DeviceFunctions,
}

/// A program on a GPU, ready to be called from several threads at once.
pub struct Loaded {
    pub(super) program: Arc<Program>,
    pub(super) device: Arc<Device>,
    pub(super) settings: Settings,
    /// By launch.
    pub(super) functions: Vec<sys::CUfunction>,
    /// The names of the launches, then of the program, for NVTX; empty unless asked for.
    pub(super) names: Vec<CString>,
    /// By launch, the library call that replaces the kernel; empty if no launch has one.
    pub(super) prepared: Vec<Option<Arc<PreparedCall>>>,
    modules: Vec<sys::CUmodule>,
    images: Vec<Arc<Library>>,
    globals: Vec<Arc<DeviceBuffer>>,
    /// Device addresses of the globals.
    pub(super) addresses: Vec<u64>,
    pub(super) states: States,
    /// Of calls in the caller's memory.
    pub(super) workspace_plans: SharedPlans,
    /// Control flow, in place of kernels.
    pub(super) control: Option<Control>,
    /// Whether any call was launched as a CUDA graph.
    pub(super) graphs: AtomicBool,
    remarks: Mutex<Vec<String>>,
}
// SAFETY: the driver's handles are tied to no thread; what calls change is behind mutexes.
unsafe impl Send for Loaded {}
unsafe impl Sync for Loaded {}

/// Weights that are already in device memory, by name.
type SharedWeights = HashMap<String, Arc<DeviceBuffer>>;

impl Loaded {
    /// Joins a program, its kernels' images by symbol, and its globals, which are uploaded.
    pub fn new(
        device: Arc<Device>,
        program: Program,
        code: &Images,
        globals: &[Bytes],
        settings: Settings,
    ) -> Result<Loaded, CallError> {
        if program.control.is_some() {
            return Err(tensor_error(
                "program",
                &program.name,
                "is control flow between programs, which Loaded::join joins".into(),
            ));
        }
        Loaded::make(device, program, code, globals, settings, &mut SharedWeights::new())
    }

    fn make(
        device: Arc<Device>,
        program: Program,
        code: &Images,
        globals: &[Bytes],
        settings: Settings,
        shared: &mut SharedWeights,
    ) -> Result<Loaded, CallError> {
        if !device.runs(&program.target.cpu) {
            let (info, (major, minor)) = (device.info(), device.info().capability);
            let (chip, index, name) = (program.target.cpu.clone(), info.index, info.name.clone());
            return Err(CudaError::Chip { chip, index, name, major, minor }.into());
        }
        if globals.len() != program.globals.len() {
            return Err(CallError::Count {
                what: "globals",
                want: program.globals.len(),
                have: globals.len(),
            });
        }
        for (have, want) in globals.iter().zip(&program.globals) {
            let shape: Vec<usize> =
                want.shape.iter().map(|n| usize::try_from(*n).unwrap_or(usize::MAX)).collect();
            check_bytes(&want.dtype, &shape, have.len())
                .map_err(|e| tensor_error("global", &want.name, e.to_string()))?;
        }
        let _current = device.enter()?;
        let named =
            settings.nvtx.then(|| program.kernels.iter().map(|k| &k.name).chain([&program.name]));
        let names = named
            .into_iter()
            .flatten()
            .map(|n| CString::new(n.as_str()).unwrap_or_default())
            .collect();
        let mut loaded = Loaded {
            functions: vec![],
            names,
            prepared: vec![],
            modules: vec![],
            images: vec![],
            globals: vec![],
            addresses: vec![],
            states: States::new(&device, program.inputs.len(), program.outputs.len()),
            workspace_plans: SharedPlans::new(MAX_PLANS),
            control: None,
            graphs: AtomicBool::new(false),
            remarks: Mutex::default(),
            device: device.clone(),
            program: Arc::new(program),
            settings,
        };
        loaded.weights(globals, shared)?;
        let mut found: HashMap<String, sys::CUfunction> = HashMap::new();
        for k in &loaded.program.clone().kernels {
            let function = match found.get(&k.symbol) {
                Some(f) => *f,
                None => loaded.load(k, code)?,
            };
            found.insert(k.symbol.clone(), function);
            loaded.functions.push(function);
        }
        loaded.libraries();
        if settings.blocking && settings.mode == Mode::ReduceOverhead {
            loaded.remark("no CUDA graphs: each launch is waited for".into());
        }
        Ok(loaded)
    }

    /// Links and loads a package that holds its weights, or has none. Linking uses `workers`
    /// threads.
    pub fn open(
        device: Arc<Device>,
        package: &Package,
        cache: Option<&Store>,
        workers: usize,
        settings: Settings,
    ) -> Result<Loaded, CallError> {
        let code = link(&device, package.objects.iter(), cache, workers)?;
        Ok(Loaded::join(device, &package.program, &code, &mut |g| package.weight(g), settings)?)
    }

    /// Loads a program, or the programs of its control flow: images by symbol, weights from `find`,
    /// and what is computed once from these.
    pub fn join(
        device: Arc<Device>,
        program: &Program,
        code: &Images,
        find: &mut Find,
        settings: Settings,
    ) -> Result<Loaded, OpenError> {
        let mut shared = SharedWeights::new();
        let mut one = |p: &Program| -> Result<Loaded, OpenError> {
            let prepared = match &p.prepare {
                Some(p) => {
                    let globals = Package::globals(p, &[], find)?;
                    let settings = Settings { mode: Mode::Default, ..settings };
                    Loaded::make(
                        device.clone(),
                        Program::clone(p),
                        code,
                        &globals,
                        settings,
                        &mut SharedWeights::new(),
                    )?
                    .results()?
                }
                None => vec![],
            };
            let globals = Package::globals(p, &prepared, find)?;
            Ok(Loaded::make(device.clone(), p.clone(), code, &globals, settings, &mut shared)?)
        };
        let Some(control) = &program.control else { return one(program) };
        let parts = control.parts.iter().map(&mut one).collect::<Result<Vec<_>, _>>()?;
        let flow = ControlFlow::new(program)?;
        let mut loaded =
            Loaded::make(device.clone(), program.clone(), code, &[], settings, &mut shared)?;
        let functions = loaded.functions(&flow).map_err(CallError::from)?;
        if settings.mode == Mode::ReduceOverhead {
            graph_blockers(&flow).into_iter().for_each(|text| loaded.remark(text));
        }
        loaded.control = Some(Control { flow, parts, functions });
        Ok(loaded)
    }

    fn weights(&mut self, globals: &[Bytes], shared: &mut SharedWeights) -> Result<(), CudaError> {
        let stream = self.device.stream();
        let mut staging = Staging::new(&self.device);
        for (global, bytes) in self.program.globals.iter().zip(globals) {
            // Packed globals are named per program.
            let weight = global.role != Role::Packed;
            let same =
                shared.get(&global.name).filter(|m| weight && m.len() == bytes.len().max(256));
            let memory = match same {
                Some(memory) => memory.clone(),
                None => {
                    let mut memory = DeviceBuffer::none(&self.device);
                    memory.ensure(
                        bytes.len(),
                        stream,
                        &|| format!("weight @{}", global.name),
                        &|| self.planned(None),
                    )?;
                    staging.upload(memory.address(), bytes.bytes(), stream, true)?;
                    Arc::new(memory)
                }
            };
            if weight {
                shared.insert(global.name.clone(), memory.clone());
            }
            self.addresses.push(memory.address());
            self.globals.push(memory);
        }
        stream.wait(&self.device)
    }

    /// Prepares the launches' library calls. If a library is missing or does not support a call,
    /// this is a remark and the generated kernel runs.
    fn libraries(&mut self) {
        let program = self.program.clone();
        let wanted =
            || program.kernels.iter().map(|k| k.launch.as_ref().and_then(|l| l.library.as_ref()));
        if wanted().flatten().next().is_none() {
            return;
        }
        let mut libraries = Libraries::default();
        for (kernel, call) in program.kernels.iter().zip(wanted()) {
            let made = call
                .map(|c| libraries.prepare(&self.device, c).map_err(|e| (c.library(), e)))
                .transpose();
            if let Err((library, e)) = &made {
                self.missed(match libraries.found(library) {
                    true => format!("{} runs as a kernel, not by {library}: {e}", kernel.name),
                    false => format!("what {library} is faster at runs as kernels: {e}"),
                });
            }
            self.prepared.push(made.ok().flatten().map(Arc::new));
        }
    }

    /// The libraries of the functions that the program calls. Says what the host computes.
    fn functions(&self, flow: &ControlFlow) -> Result<DeviceFunctions, CudaError> {
        let _current = self.device.enter()?;
        let mut functions = DeviceFunctions::default();
        for callee in flow.callees() {
            if let Err(why) = functions.look_for(callee, &self.device) {
                self.on_host(callee, &why);
            }
        }
        Ok(functions)
    }
    /// Says that a function runs on the host.
    pub(super) fn on_host(&self, callee: &str, why: &str) {
        self.missed(format!("{callee} runs on the host, with copies to it and back: {why}"));
    }

    fn load(&mut self, k: &Kernel, code: &Images) -> Result<sys::CUfunction, CudaError> {
        let link = |reason: String| CudaError::Link { kernel: k.name.clone(), reason };
        let image = code.get(&k.symbol).ok_or_else(|| link("its code is missing".into()))?;
        let entry = k.launch.as_ref().and_then(|l| l.entry.as_ref()).unwrap_or(&k.symbol);
        let name = CString::new(entry.as_str()).map_err(|e| link(e.to_string()))?;
        // SAFETY: a cubin from the driver's linker, or from the cache with a valid checksum; module
        // and library live as long as this.
        unsafe {
            let module = match image {
                Image::Linked(bytes) => {
                    let module = result::module::load_data(bytes.as_ptr().cast())
                        .map_err(|e| link(driver_message(e)))?;
                    self.modules.push(module);
                    module
                }
                Image::Library(library) => {
                    self.images.push(library.clone());
                    library.module().map_err(|e| link(driver_message(e)))?
                }
            };
            let function = result::module::get_function(module, name)
                .map_err(|e| link(format!("{entry}: {}", driver_message(e))))?;
            if let Some(bytes) = k.launch.as_ref().map(|l| l.shared).filter(|b| *b > 0) {
                let most =
                    sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
                result::function::set_function_attribute(function, most, bytes).map_err(|e| {
                    link(format!("{bytes} bytes of shared memory: {}", driver_message(e)))
                })?;
            }
            Ok(function)
        }
    }

    /// The compiled program.
    pub fn program(&self) -> &Program {
        &self.program
    }
    /// The device it is loaded on.
    pub fn device(&self) -> &Device {
        &self.device
    }
    /// Bytes of arenas over all states, one for each concurrent call.
    pub fn arena_bytes(&self) -> usize {
        let parts = self.control.iter().flat_map(|c| &c.parts);
        self.states.arena_bytes() + parts.map(Loaded::arena_bytes).sum::<usize>()
    }
    /// How many launches run a library call.
    pub fn library_calls(&self) -> usize {
        let parts = self.control.iter().flat_map(|c| &c.parts);
        self.prepared.iter().flatten().count() + parts.map(Loaded::library_calls).sum::<usize>()
    }
    /// Whether any call was launched as a CUDA graph.
    pub fn used_graphs(&self) -> bool {
        let parts = self.control.iter().flat_map(|c| &c.parts);
        self.graphs.load(Ordering::Relaxed) || parts.into_iter().any(Loaded::used_graphs)
    }
    /// What prevents [`Mode::ReduceOverhead`], and libraries that are missing, each once.
    pub fn remarks(&self) -> Vec<String> {
        let mut all = self.remarks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for remark in self.control.iter().flat_map(|c| &c.parts).flat_map(Loaded::remarks) {
            if !all.contains(&remark) {
                all.push(remark);
            }
        }
        all
    }
    pub(super) fn remark(&self, text: String) {
        if let Some(text) = self.keep(text) {
            tracing::info!(target: "kiln::cudagraphs", program = self.program.name, "{text}");
        }
    }
    /// Adds a remark about a library.
    fn missed(&self, text: String) {
        if let Some(text) = self.keep(text) {
            tracing::info!(target: "kiln::perf_hints", program = self.program.name, "{text}");
        }
    }
    /// Adds a remark, unless it is there already.
    fn keep(&self, text: String) -> Option<String> {
        let mut all = self.remarks.lock().unwrap_or_else(PoisonError::into_inner);
        let new = !all.contains(&text);
        new.then(|| {
            all.push(text.clone());
            text
        })
    }

    /// The device memory that the program needs, in words: globals, and for a call its arena and
    /// its copies of arguments and results, in bytes.
    pub(super) fn planned(&self, call: Option<(usize, usize, usize)>) -> String {
        let bytes = |g: &crate::program::Global| {
            g.shape
                .iter()
                .fold(byte_size(&g.dtype).unwrap_or(1) as u64, |n, d| n.saturating_mul(*d))
        };
        let weights = self.program.globals.iter().map(bytes).fold(0u64, u64::saturating_add);
        let call = call.map(|(arena, inputs, outputs)| {
            format!(", {arena} bytes between kernels, {inputs} bytes of copied arguments, {outputs} bytes of copied results")
        });
        format!("{weights} bytes of weights{}", call.unwrap_or_default())
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // After a fault the driver has released everything.
        let Ok(_current) = self.device.enter() else { return };
        // Calls in flight complete before modules and weights are freed.
        self.states.trim();
        // Graphs refer to the modules' kernels.
        self.workspace_plans.lock().clear();
        self.prepared.clear();
        self.globals.clear();
        for m in &self.modules {
            // SAFETY: loaded by `new`, and no call is in flight.
            let _ = unsafe { result::module::unload(*m) };
        }
    }
}

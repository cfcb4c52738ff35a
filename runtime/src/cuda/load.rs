//! A program on a card: its code, its weights, and what its calls share.
use super::{
    CudaError, Device, Mode, Settings,
    control::{Control, blockers},
    libraries::{Called, Libraries},
    link::{Image, Images, Library, link},
    memory::Memory,
    staging::Staging,
    state::States,
    words,
};
use crate::{
    Bytes, CallError, OpenError, Package, Program, Store,
    call::tensor_error,
    control::Flow,
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

/// A program on a card, ready to be called from any thread, by several at once.
pub struct Loaded {
    pub(super) program: Arc<Program>,
    pub(super) device: Arc<Device>,
    pub(super) settings: Settings,
    /// By launch.
    pub(super) functions: Vec<sys::CUfunction>,
    /// The names of launches, and of the program at the end, for profilers; none if nobody asked.
    pub(super) names: Vec<CString>,
    /// By launch, what a library computes in the kernel's place; nothing if no launch asks for one.
    pub(super) called: Vec<Option<Arc<Called>>>,
    modules: Vec<sys::CUmodule>,
    images: Vec<Arc<Library>>,
    globals: Vec<Arc<Memory>>,
    /// Addresses of the globals.
    pub(super) addresses: Vec<u64>,
    pub(super) states: States,
    /// What runs in place of kernels, if it is control flow between programs.
    pub(super) control: Option<Control>,
    /// Whether any call was launched as a graph.
    pub(super) graphs: AtomicBool,
    remarks: Mutex<Vec<String>>,
}
// SAFETY: handles of the driver are tied to no thread; what calls change is behind mutexes.
unsafe impl Send for Loaded {}
unsafe impl Sync for Loaded {}

/// Weights that are on the card already, by name.
type Shared = HashMap<String, Arc<Memory>>;

impl Loaded {
    /// Joins a program, the code of its kernels by symbol, and its globals, which are copied to the
    /// card.
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
        Loaded::make(device, program, code, globals, settings, &mut Shared::new())
    }

    fn make(
        device: Arc<Device>,
        program: Program,
        code: &Images,
        globals: &[Bytes],
        settings: Settings,
        shared: &mut Shared,
    ) -> Result<Loaded, CallError> {
        if !device.runs(&program.target.cpu) {
            let (card, (major, minor)) = (device.card(), device.card().capability);
            let (chip, index, name) = (program.target.cpu.clone(), card.index, card.name.clone());
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
                .map_err(|e| tensor_error("global", &want.name, e))?;
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
            called: vec![],
            modules: vec![],
            images: vec![],
            globals: vec![],
            addresses: vec![],
            states: States::new(&device, program.inputs.len(), program.outputs.len()),
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

    /// Links and loads a package that holds its weights, or has none. Linking takes so many
    /// `workers`.
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

    /// Joins a program, or the programs that it calls, the code of all kernels by symbol, weights
    /// that `find` finds, and what is computed once from these.
    pub fn join(
        device: Arc<Device>,
        program: &Program,
        code: &Images,
        find: &mut Find,
        settings: Settings,
    ) -> Result<Loaded, OpenError> {
        let mut shared = Shared::new();
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
                        &mut Shared::new(),
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
        let flow = Flow::new(program)?;
        let mut loaded =
            Loaded::make(device.clone(), program.clone(), code, &[], settings, &mut shared)?;
        if settings.mode == Mode::ReduceOverhead {
            blockers(&flow).into_iter().for_each(|text| loaded.remark(text));
        }
        loaded.control = Some(Control { flow, parts });
        Ok(loaded)
    }

    fn weights(&mut self, globals: &[Bytes], shared: &mut Shared) -> Result<(), CudaError> {
        let stream = self.device.stream();
        let mut staging = Staging::new(&self.device);
        for (global, bytes) in self.program.globals.iter().zip(globals) {
            // What is prepared has a name in each program for itself.
            let weight = global.role != Role::Packed;
            let same =
                shared.get(&global.name).filter(|m| weight && m.len() == bytes.len().max(256));
            let memory = match same {
                Some(memory) => memory.clone(),
                None => {
                    let mut memory = Memory::none(&self.device);
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

    /// Asks libraries for what launches want of them. One that is not found, or cannot do it, is a
    /// remark: the kernel's own code runs.
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
                .map(|c| libraries.call(&self.device, c).map_err(|e| (c.library(), e)))
                .transpose();
            if let Err((library, e)) = &made {
                self.missed(match libraries.found(library) {
                    true => format!("{} runs as a kernel, not by {library}: {e}", kernel.name),
                    false => format!("what {library} is faster at runs as kernels: {e}"),
                });
            }
            self.called.push(made.ok().flatten().map(Arc::new));
        }
    }

    fn load(&mut self, k: &Kernel, code: &Images) -> Result<sys::CUfunction, CudaError> {
        let link = |reason: String| CudaError::Link { kernel: k.name.clone(), reason };
        let image = code.get(&k.symbol).ok_or_else(|| link("its code is missing".into()))?;
        let entry = k.launch.as_ref().and_then(|l| l.entry.as_ref()).unwrap_or(&k.symbol);
        let name = CString::new(entry.as_str()).map_err(|e| link(e.to_string()))?;
        // SAFETY: an image that the driver's linker made, or one from the cache with a right
        // checksum; module and library live as long as this.
        unsafe {
            let module = match image {
                Image::Linked(bytes) => {
                    let module = result::module::load_data(bytes.as_ptr().cast())
                        .map_err(|e| link(words(e)))?;
                    self.modules.push(module);
                    module
                }
                Image::Library(library) => {
                    self.images.push(library.clone());
                    library.module().map_err(|e| link(words(e)))?
                }
            };
            let function = result::module::get_function(module, name)
                .map_err(|e| link(format!("{entry}: {}", words(e))))?;
            if let Some(bytes) = k.launch.as_ref().map(|l| l.shared).filter(|b| *b > 0) {
                let most =
                    sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
                result::function::set_function_attribute(function, most, bytes)
                    .map_err(|e| link(format!("{bytes} bytes of shared memory: {}", words(e))))?;
            }
            Ok(function)
        }
    }

    /// What was compiled.
    pub fn program(&self) -> &Program {
        &self.program
    }
    /// The card.
    pub fn device(&self) -> &Device {
        &self.device
    }
    /// Bytes of memory between kernels, of all calls that have been under way at once.
    pub fn arena_bytes(&self) -> usize {
        let parts = self.control.iter().flat_map(|c| &c.parts);
        self.states.arena_bytes() + parts.map(Loaded::arena_bytes).sum::<usize>()
    }
    /// How many launches a library computes.
    pub fn library_calls(&self) -> usize {
        let parts = self.control.iter().flat_map(|c| &c.parts);
        self.called.iter().flatten().count() + parts.map(Loaded::library_calls).sum::<usize>()
    }
    /// Whether any call was launched as a CUDA graph.
    pub fn used_graphs(&self) -> bool {
        let parts = self.control.iter().flat_map(|c| &c.parts);
        self.graphs.load(Ordering::Relaxed) || parts.into_iter().any(Loaded::used_graphs)
    }
    /// What hinders [`Mode::ReduceOverhead`], and libraries that were not found, each thing once.
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
    /// A remark on a library.
    fn missed(&self, text: String) {
        if let Some(text) = self.keep(text) {
            tracing::info!(target: "kiln::perf_hints", program = self.program.name, "{text}");
        }
    }
    /// Keeps a remark, if it is new.
    fn keep(&self, text: String) -> Option<String> {
        let mut all = self.remarks.lock().unwrap_or_else(PoisonError::into_inner);
        let new = !all.contains(&text);
        new.then(|| {
            all.push(text.clone());
            text
        })
    }

    /// The memory that the program needs, in words; of a call its arena, its arguments' and its
    /// results' copies.
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
        // After a fault the driver has given up all of it.
        let Ok(_current) = self.device.enter() else { return };
        // What calls have launched is over before code and weights go.
        self.states.trim();
        self.called.clear();
        self.globals.clear();
        for m in &self.modules {
            // SAFETY: loaded by `new`, and no call is under way.
            let _ = unsafe { result::module::unload(*m) };
        }
    }
}

//! Calling a program on a card: sizes, memory, launches in a row, results.
use super::{CudaError, Device, driver, memory::Memory, tensor_map::Described, words};
use crate::{
    Buffer, Bytes, CallError, Program, View, ViewMut,
    call::same_dtype,
    profile::Profile,
    program::{Arg, Kernel, Launch},
};
use cudarc::driver::{result, sys};
use std::{
    collections::{BTreeMap, HashMap},
    ffi::{CString, c_void},
    sync::{Arc, Mutex},
    time::Duration,
};

/// A program on a card, ready to be called from any thread; calls take turns.
pub struct Loaded {
    program: Program,
    device: Arc<Device>,
    /// By launch.
    functions: Vec<sys::CUfunction>,
    modules: Vec<sys::CUmodule>,
    globals: Vec<Memory>,
    state: Mutex<State>,
    /// Whether each launch is waited for, so that a fault is that launch's.
    blocking: bool,
}
// SAFETY: handles of the driver are tied to no thread; what calls change is behind a mutex.
unsafe impl Send for Loaded {}
unsafe impl Sync for Loaded {}

/// Memory that calls use again.
struct State {
    arena: Memory,
    inputs: Vec<Memory>,
    outputs: Vec<Memory>,
    /// Recorded around launches.
    events: Vec<Event>,
}

impl Loaded {
    /// Joins a program, the code of its kernels by symbol, and its globals, which are copied to the card.
    pub fn new(
        device: Arc<Device>,
        program: Program,
        code: &BTreeMap<String, Vec<u8>>,
        globals: &[Bytes],
        blocking: bool,
    ) -> Result<Loaded, CudaError> {
        if !device.runs(&program.target.cpu) {
            let (card, (major, minor)) = (device.card(), device.card().capability);
            return Err(CudaError::Chip { chip: program.target.cpu.clone(), index: card.index, name: card.name.clone(), major, minor });
        }
        device.bind()?;
        let none = || Memory::none(&device);
        let state = State {
            arena: none(),
            inputs: program.inputs.iter().map(|_| none()).collect(),
            outputs: program.outputs.iter().map(|_| none()).collect(),
            events: vec![],
        };
        let mut loaded = Loaded {
            functions: vec![],
            modules: vec![],
            globals: vec![],
            state: Mutex::new(state),
            device: device.clone(),
            program,
            blocking,
        };
        let planned = || loaded.planned(None);
        let mut memories = vec![];
        for (global, bytes) in loaded.program.globals.iter().zip(globals) {
            let mut memory = none();
            memory.ensure(bytes.len(), &format!("weight @{}", global.name), &planned)?;
            memory.write(bytes.bytes())?;
            memories.push(memory);
        }
        loaded.globals = memories;
        device.stream.synchronize().map_err(driver("copying weights to the GPU"))?;
        let mut found: HashMap<String, sys::CUfunction> = HashMap::new();
        for k in loaded.program.kernels.clone() {
            let function = match found.get(&k.symbol) {
                Some(f) => *f,
                None => loaded.load(&k, code)?,
            };
            found.insert(k.symbol.clone(), function);
            loaded.functions.push(function);
        }
        Ok(loaded)
    }

    fn load(&mut self, k: &Kernel, code: &BTreeMap<String, Vec<u8>>) -> Result<sys::CUfunction, CudaError> {
        let link = |reason: String| CudaError::Link { kernel: k.name.clone(), reason };
        let bytes = code.get(&k.symbol).ok_or_else(|| link("its code is missing".into()))?;
        let name = CString::new(k.symbol.as_str()).map_err(|e| link(e.to_string()))?;
        // SAFETY: an image that the driver's linker made, or one from the cache with a right checksum; the module lives as long as this.
        unsafe {
            let module = result::module::load_data(bytes.as_ptr().cast()).map_err(|e| link(words(e)))?;
            self.modules.push(module);
            let function = result::module::get_function(module, name).map_err(|e| link(words(e)))?;
            if let Some(bytes) = k.launch.as_ref().map(|l| l.shared).filter(|b| *b > 0) {
                let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
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
    /// Bytes of memory between kernels.
    pub fn arena_bytes(&self) -> usize {
        self.state.lock().unwrap_or_else(|e| e.into_inner()).arena.len()
    }

    /// The memory that the program needs, in words.
    fn planned(&self, call: Option<(usize, usize, usize)>) -> String {
        let weights: usize = self.program.globals.iter().map(|g| g.shape.iter().product::<u64>() as usize * width(&g.dtype)).sum();
        let call = call.map(|(arena, inputs, outputs)| {
            format!(", {arena} bytes between kernels, {inputs} bytes of arguments, {outputs} bytes of results")
        });
        format!("{weights} bytes of weights{}", call.unwrap_or_default())
    }

    /// The results of a program without inputs.
    pub fn results(&self) -> Result<Vec<Bytes>, CallError> {
        self.program.results(&mut |outputs| self.call(&[], outputs))
    }

    /// Runs the program: copies the inputs to the card, launches its kernels, and copies the results back.
    pub fn call(&self, inputs: &[View], outputs: &mut [ViewMut]) -> Result<(), CallError> {
        self.measure(inputs, outputs, 1).map(drop)
    }

    /// As [`Loaded::call`], with all kernels launched that many times in a row between the copies. The time of each round, by the card's clock.
    pub fn measure(&self, inputs: &[View], outputs: &mut [ViewMut], rounds: usize) -> Result<Vec<Duration>, CallError> {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        self.device.bind()?;
        while state.events.len() <= rounds {
            state.events.push(Event::new()?);
        }
        let events: Vec<sys::CUevent> = state.events.iter().take(rounds + 1).map(|e| e.0).collect();
        self.run(inputs, outputs, &mut state, &events, false)?;
        Ok(events.windows(2).map(|e| between(e[0], e[1])).collect::<Result<_, _>>()?)
    }

    /// As [`Loaded::call`], with the time of each launch by the card's clock.
    pub fn profile(&self, inputs: &[View], outputs: &mut [ViewMut]) -> Result<Profile, CallError> {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        self.device.bind()?;
        let events: Vec<Event> = (0..self.program.kernels.len() + 1).map(|_| Event::new()).collect::<Result<_, _>>()?;
        let all: Vec<sys::CUevent> = events.iter().map(|e| e.0).collect();
        self.run(inputs, outputs, &mut state, &all, true)?;
        Ok(Profile::of(all.windows(2).map(|e| between(e[0], e[1])).collect::<Result<_, _>>()?))
    }

    /// A call. The first event is recorded before the launches, the others behind each launch, or each behind a round of all launches.
    fn run(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        state: &mut State,
        events: &[sys::CUevent],
        each_launch: bool,
    ) -> Result<(), CallError> {
        let p = &self.program;
        let shapes: Vec<&[usize]> = inputs.iter().map(|v| v.shape).collect();
        let (symbols, exprs) = p.sizes(&shapes)?;
        if outputs.len() != p.outputs.len() {
            return Err(CallError::Count { what: "outputs", want: p.outputs.len(), have: outputs.len() });
        }
        for (v, t) in inputs.iter().zip(&p.inputs) {
            same_dtype("input", v.dtype(), t)?;
        }
        for (v, t) in outputs.iter().zip(&p.outputs) {
            same_dtype("output", v.dtype(), t)?;
            p.check("output", t, v.shape, &symbols, &exprs)?;
        }
        let value = |d: crate::program::Dim| d.value(&symbols, &exprs);
        let between_kernels = usize::try_from(value(p.arena)?).unwrap_or(0);
        let size = |shape: &[usize], dtype: &str| shape.iter().product::<usize>() * width(dtype);
        let ins: Vec<usize> = inputs.iter().map(|v| size(v.shape, v.dtype())).collect();
        let outs: Vec<usize> = outputs.iter().map(|v| size(v.shape, v.dtype())).collect();
        let planned = || self.planned(Some((between_kernels, ins.iter().sum(), outs.iter().sum())));
        state.arena.ensure(between_kernels, "memory between kernels", &planned)?;
        for ((memory, n), t) in state.inputs.iter_mut().zip(&ins).zip(&p.inputs) {
            memory.ensure(*n, &format!("argument '{}'", t.name), &planned)?;
        }
        for ((memory, n), t) in state.outputs.iter_mut().zip(&outs).zip(&p.outputs) {
            memory.ensure(*n, &format!("result '{}'", t.name), &planned)?;
        }
        for ((v, memory), t) in inputs.iter().zip(&state.inputs).zip(&p.inputs) {
            let mut copy = Buffer::new();
            memory.write(v.bytes(&t.order, &mut copy)?)?;
        }
        let stream = self.device.stream.cu_stream();
        let record = |e: sys::CUevent| {
            // SAFETY: this program's own event.
            unsafe { result::event::record(e, stream) }.map_err(driver("recording an event"))
        };
        let mut ready = vec![];
        for (k, f) in p.kernels.iter().zip(&self.functions) {
            let Some(l) = &k.launch else {
                return Err(CudaError::Launch { what: k.name.clone(), reason: "the program does not say how it is launched".into() }.into());
            };
            let mut words = Vec::with_capacity(l.args.len());
            for a in &l.args {
                let missing = || CudaError::Launch { what: k.name.clone(), reason: format!("there is no {a:?}") };
                let address = |all: &[Memory], i: usize| all.get(i).map(Memory::address).ok_or_else(missing);
                words.push(match a {
                    Arg::Input(i) => address(&state.inputs, *i)?,
                    Arg::Output(i) => address(&state.outputs, *i)?,
                    Arg::Global(i) => address(&self.globals, *i)?,
                    Arg::Arena(d) => state.arena.address() + value(*d)? as u64,
                    Arg::Size(d) => value(*d)? as u64,
                });
            }
            let mut blocks = u32::try_from(value(l.grid)?.clamp(1, i64::from(i32::MAX))).unwrap_or(1);
            if l.resident > 0 {
                blocks = blocks.min(l.resident.saturating_mul(self.device.card().processors).max(1));
            }
            let mut maps = vec![];
            for m in &l.maps {
                let numbers = |all: &[crate::program::Dim]| all.iter().map(|d| value(*d)).collect::<Result<Vec<i64>, _>>();
                let (sizes, strides) = (numbers(&m.sizes)?, numbers(&m.strides)?);
                let missing = || CudaError::Launch { what: k.name.clone(), reason: format!("there is no parameter {}", m.arg) };
                let address = words.get(m.arg).ok_or_else(missing)? + width(&m.dtype) as u64 * u64::try_from(value(m.offset)?).unwrap_or(0);
                let described = Described {
                    kernel: &k.name,
                    dtype: &m.dtype,
                    address,
                    sizes: &sizes,
                    strides: &strides,
                    extent: &m.extent,
                    window: m.window,
                };
                maps.push(described.encode()?);
            }
            ready.push((k, l, *f, blocks, words, maps));
        }
        let mut marks = events.iter().copied();
        let mut mark = || marks.next().map_or(Ok(()), record);
        mark()?;
        for _ in 0..if each_launch { 1 } else { events.len().saturating_sub(1) } {
            for (k, l, f, blocks, words, maps) in &mut ready {
                self.launch(k, l, *f, *blocks, words, maps)?;
                if each_launch {
                    mark()?;
                }
            }
            if !each_launch {
                mark()?;
            }
        }
        let wait = |e: cudarc::driver::DriverError| {
            let what = format!("one of the {} launches of {} (KILN_CUDA_BLOCKING=1 says which)", p.kernels.len(), p.name);
            CudaError::Launch { what, reason: words(e) }
        };
        self.device.stream.synchronize().map_err(wait)?;
        for (v, memory) in outputs.iter_mut().zip(&state.outputs) {
            memory.read(v.bytes_mut())?;
        }
        self.device.stream.synchronize().map_err(driver("copying from the GPU"))?;
        Ok(())
    }

    fn launch(
        &self,
        k: &Kernel,
        l: &Launch,
        f: sys::CUfunction,
        blocks: u32,
        words_: &mut [u64],
        maps: &mut [sys::CUtensorMap],
    ) -> Result<(), CudaError> {
        let mut params: Vec<*mut c_void> = words_.iter_mut().map(|w| (w as *mut u64).cast()).collect();
        params.extend(maps.iter_mut().map(|m| (m as *mut sys::CUtensorMap).cast::<c_void>()));
        let stream = self.device.stream.cu_stream();
        // SAFETY: the kernel takes 64-bit words and then tensor maps, as many as the program says, and the addresses are of memory of the planned sizes.
        let launched = unsafe { result::launch_kernel(f, (blocks, 1, 1), (l.threads, 1, 1), l.shared, stream, &mut params) };
        let over = launched.and_then(|()| if self.blocking { self.device.stream.synchronize() } else { Ok(()) });
        over.map_err(|e| {
            let what =
                format!("kernel {} ({}) with {blocks} blocks of {} threads, parameters {words_:x?}", k.name, k.ops.join(" "), l.threads);
            CudaError::Launch { what, reason: words(e) }
        })
    }
}

/// An event of the driver.
struct Event(sys::CUevent);

impl Event {
    fn new() -> Result<Event, CudaError> {
        result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map(Event).map_err(driver("making an event"))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by the driver, and destroyed once.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// The time between two events that have been waited for.
fn between(from: sys::CUevent, to: sys::CUevent) -> Result<Duration, CudaError> {
    // SAFETY: live events, recorded on one stream.
    let ms = unsafe { result::event::elapsed(from, to) }.map_err(driver("reading the GPU's clock"))?;
    Ok(Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))
}

fn width(dtype: &str) -> usize {
    crate::view::byte_size(dtype).unwrap_or(1)
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if self.device.bind().is_err() {
            return;
        }
        for m in &self.modules {
            // SAFETY: loaded by `new`, and no call is under way.
            let _ = unsafe { result::module::unload(*m) };
        }
    }
}

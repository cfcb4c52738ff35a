//! Calls a host program: checks arguments, resolves sizes, provides the arena, calls the entry.
use crate::{
    Buffer, DeviceId, OutOfMemory, View, ViewMut,
    call_error::{CallError, tensor_error},
    profile::Profile,
    program::{CallSizes, Dim, Program, SizeError, Tensor},
    view::{byte_size, check_bytes, check_device, purpose, tensor_bytes},
};
use std::{any::Any, sync::Arc, sync::Mutex};

mod fixed;
use fixed::StaticShapes;

/// A program's entry. The argument array holds the arena, a profile or 0, inputs, outputs, globals
/// and symbols, each a 64-bit word; the second parameter is the number of threads.
pub type Entry = unsafe extern "C" fn(*const u64, i32);

/// Err: the tensor's dtype is not the program's.
pub(crate) fn same_dtype(what: &'static str, have: &str, t: &Tensor) -> Result<(), CallError> {
    match have == t.dtype {
        true => Ok(()),
        false => {
            Err(tensor_error(what, &t.name, format!("is {have}, the program takes {}", t.dtype)))
        }
    }
}

impl Program {
    /// What the arena is for, for out-of-memory errors.
    pub(crate) fn arena_purpose(&self) -> String {
        format!("the arena of program '{}'", self.name)
    }
    /// The results of a call without inputs, in newly allocated memory.
    pub(crate) fn results(
        &self,
        call: &mut dyn FnMut(&mut [ViewMut]) -> Result<(), CallError>,
    ) -> Result<Vec<Bytes>, CallError> {
        let shapes = self.output_shapes(&[])?;
        let mut buffers = vec![];
        for (shape, t) in shapes.iter().zip(&self.outputs) {
            let bytes = tensor_bytes("output", &t.name, &t.dtype, shape)?;
            let what = || purpose("output", &t.name, &t.dtype, shape);
            buffers.push(Buffer::zeroed(bytes).map_err(|e| e.of(what()))?);
        }
        let mut outputs = vec![];
        for ((buffer, shape), t) in buffers.iter_mut().zip(&shapes).zip(&self.outputs) {
            outputs.push(ViewMut::new(&t.dtype, shape, buffer.bytes_mut())?);
        }
        call(&mut outputs)?;
        Ok(buffers.into_iter().map(Bytes::owned).collect())
    }
    /// Indices of the inputs that a call copies first, since their strides do not match the
    /// program's layout (see [`Tensor::order`]).
    pub fn copied(&self, inputs: &[View]) -> Vec<usize> {
        let fits = |(v, t): (&View, &Tensor)| v.shape.len() != t.dims.len() || v.is_dense(&t.order);
        inputs
            .iter()
            .zip(&self.inputs)
            .enumerate()
            .filter(|(_, pair)| !fits(*pair))
            .map(|(i, _)| i)
            .collect()
    }
    /// Shapes of the outputs for inputs of these shapes.
    pub fn output_shapes(&self, inputs: &[&[usize]]) -> Result<Vec<Vec<usize>>, CallError> {
        let (symbols, exprs) = self.sizes(inputs)?;
        let shape = |t: &Tensor| -> Result<Vec<usize>, CallError> {
            t.dims.iter().map(|d| Ok(d.size(&symbols, &exprs)?)).collect()
        };
        self.outputs.iter().map(shape).collect()
    }
    /// By how much a call with inputs of these shapes moves the generator's offset: see
    /// [`Program::rng_increment`].
    pub fn rng_increment_of(&self, inputs: &[&[usize]]) -> Result<u64, CallError> {
        let (symbols, exprs) = self.sizes(inputs)?;
        Ok(self.rng_increment.size(&symbols, &exprs)? as u64)
    }

    /// Values of symbols and expressions; unbacked sizes are at their upper bounds. Checks every input size against the program first.
    pub(crate) fn sizes(&self, inputs: &[&[usize]]) -> Result<(Vec<i64>, Vec<i64>), CallError> {
        let p = self;
        if inputs.len() != p.inputs.len() {
            return Err(CallError::Count {
                what: "inputs",
                want: p.inputs.len(),
                have: inputs.len(),
            });
        }
        for (shape, t) in inputs.iter().zip(&p.inputs) {
            if shape.len() != t.dims.len() {
                let reason =
                    format!("has {} dimensions, the program takes {}", shape.len(), t.dims.len());
                return Err(tensor_error("input", &t.name, reason));
            }
        }
        let mut symbols = Vec::with_capacity(p.symbols.len());
        for s in &p.symbols {
            let shape = inputs.get(s.input).and_then(|shape| shape.get(s.dim)).copied();
            let value = shape
                .and_then(|n| i64::try_from(n).ok())
                .ok_or(CallError::Size(SizeError::Missing(Dim::Symbol(symbols.len()))))?;
            if value < s.min
                || s.max.is_some_and(|max| value > max)
                || value % s.divisor.max(1) != 0
            {
                let max = s.max.map_or("any".to_string(), |m| m.to_string());
                let multiples = if s.divisor > 1 {
                    format!(", multiples of {}", s.divisor)
                } else {
                    String::new()
                };
                let range = format!("{} to {max}{multiples}", s.min);
                let input = p.inputs[s.input].name.clone();
                return Err(CallError::Range {
                    symbol: s.name.clone(),
                    dim: s.dim,
                    input,
                    value,
                    range,
                });
            }
            symbols.push(value);
        }
        let before = CallSizes::new(p, symbols)?;
        let (symbols, exprs) = before.at_bounds(p)?;
        for (shape, t) in inputs.iter().zip(&p.inputs) {
            self.check("input", t, shape, &symbols, &exprs)?;
        }
        before.check(p)?;
        Ok((symbols, exprs))
    }

    pub(crate) fn check(
        &self,
        what: &'static str,
        t: &Tensor,
        shape: &[usize],
        symbols: &[i64],
        exprs: &[i64],
    ) -> Result<(), CallError> {
        let verb = if what == "output" { "writes" } else { "takes" };
        for (i, (have, want)) in shape.iter().zip(&t.dims).enumerate() {
            let want = want.value(symbols, exprs)?;
            if i64::try_from(*have) != Ok(want) {
                return Err(tensor_error(
                    what,
                    &t.name,
                    format!("has size {have} in dimension {i}; the program {verb} {want}"),
                ));
            }
        }
        if shape.len() == t.dims.len() {
            return Ok(());
        }
        Err(tensor_error(
            what,
            &t.name,
            format!("has {} dimensions; the program {verb} {}", shape.len(), t.dims.len()),
        ))
    }
}

/// A global's memory: an address, and its owner.
#[derive(Clone)]
pub struct Bytes {
    data: *const u8,
    len: usize,
    keep: Arc<dyn Any + Send + Sync>,
}
// SAFETY: read only, and kept alive by its owner.
unsafe impl Send for Bytes {}
unsafe impl Sync for Bytes {}

/// The length, since the bytes themselves may be many.
impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

impl Bytes {
    /// Takes ownership of a buffer.
    pub fn owned(buffer: Buffer) -> Bytes {
        let (data, len) = (buffer.as_mut_ptr().cast_const(), buffer.len());
        Bytes { data, len, keep: Arc::new(buffer) }
    }
    /// Copies bytes to a buffer of its own.
    pub fn copied(bytes: &[u8]) -> Result<Bytes, OutOfMemory> {
        let mut own = Buffer::zeroed(bytes.len())?;
        own.bytes_mut().copy_from_slice(bytes);
        Ok(Bytes::owned(own))
    }
    /// Borrows bytes from an owner, which it keeps alive.
    pub fn part_of<T: Any + Send + Sync>(keep: Arc<T>, bytes: &[u8]) -> Bytes {
        Bytes { data: bytes.as_ptr(), len: bytes.len(), keep }
    }
    /// The buffer that these bytes are all of, if they alone hold it.
    pub fn sole_buffer(&self) -> Option<Arc<Buffer>> {
        if Arc::strong_count(&self.keep) != 1 {
            return None;
        }
        let buffer = self.keep.clone().downcast::<Buffer>().ok()?;
        let whole = buffer.as_mut_ptr().cast_const() == self.data && buffer.len() == self.len;
        whole.then_some(buffer)
    }
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes that live as long as their owner.
        if self.len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(self.data, self.len) } }
    }
    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A host program with its code and globals, ready to be called from any thread.
pub struct Loaded {
    program: Program,
    entry: Entry,
    globals: Vec<Bytes>,
    fixed: Option<StaticShapes>,
    /// Arenas of finished calls, one for each concurrent call so far.
    arenas: Mutex<Vec<Buffer>>,
    _code: Box<dyn Any + Send + Sync>,
}

/// Words of a call's argument array that may be on the stack: at most, and for nearly all calls.
const STACK_WORDS: usize = 512;
const FEW_WORDS: usize = 32;

impl Loaded {
    /// Joins a program, its entry, the owner of the entry's code, and the globals' memory in the
    /// program's order.
    ///
    /// # Safety
    /// `entry` is the program's own and stays callable while `code` lives.
    pub unsafe fn new(
        program: Program,
        entry: Entry,
        code: Box<dyn Any + Send + Sync>,
        globals: Vec<Bytes>,
    ) -> Result<Loaded, CallError> {
        if globals.len() != program.globals.len() {
            return Err(CallError::Count {
                what: "globals",
                want: program.globals.len(),
                have: globals.len(),
            });
        }
        if program.control.is_some() {
            return Err(tensor_error(
                "program",
                &program.name,
                "is control flow between programs, which control::Driver runs".into(),
            ));
        }
        for t in &program.inputs {
            let rank = t.dims.len();
            if !t.order.is_empty()
                && (t.order.len() != rank || (0..rank).any(|d| !t.order.contains(&d)))
            {
                return Err(tensor_error(
                    "input",
                    &t.name,
                    format!("has {rank} dimensions, and {:?} is no order of them", t.order),
                ));
            }
        }
        if program.amx {
            crate::amx::request()?;
        }
        for (have, want) in globals.iter().zip(&program.globals) {
            let shape: Vec<usize> =
                want.shape.iter().map(|n| usize::try_from(*n).unwrap_or(usize::MAX)).collect();
            check_bytes(&want.dtype, &shape, have.len())
                .map_err(|e| tensor_error("global", &want.name, e.to_string()))?;
        }
        let fixed = StaticShapes::of(&program);
        Ok(Loaded { program, entry, globals, fixed, arenas: Mutex::default(), _code: code })
    }
    /// The compiled program.
    pub fn program(&self) -> &Program {
        &self.program
    }
    /// Bytes of arenas, over all concurrent calls so far.
    pub fn arena_bytes(&self) -> usize {
        self.arenas.lock().unwrap_or_else(|e| e.into_inner()).iter().map(Buffer::len).sum()
    }

    /// Runs a program without inputs, such as [`Program::prepare`], into newly allocated memory.
    pub fn results(&self, threads: usize) -> Result<Vec<Bytes>, CallError> {
        self.program.results(&mut |outputs| self.call(&[], outputs, threads))
    }

    /// Shapes of the outputs for inputs of these shapes.
    pub fn output_shapes(&self, inputs: &[&[usize]]) -> Result<Vec<Vec<usize>>, CallError> {
        self.program.output_shapes(inputs)
    }
    /// Shapes and bytes of the outputs, if they are static.
    pub fn fixed_outputs(&self) -> Option<&[(Vec<usize>, usize)]> {
        self.fixed.as_ref().map(|f| &f.output_shapes[..])
    }

    /// Indices of the inputs that a call copies first, since their strides do not match the
    /// program's layout (see [`Tensor::order`]).
    pub fn copied(&self, inputs: &[View]) -> Vec<usize> {
        self.program.copied(inputs)
    }

    /// Runs the program on at most `threads` threads of the pool. Copies the inputs of
    /// [`Loaded::copied`] first.
    pub fn call(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        threads: usize,
    ) -> Result<(), CallError> {
        self.call_with(inputs, outputs, threads, None)
    }

    /// As [`Loaded::call`], with the time of each launch of [`Program::kernels`]. Adds a barrier
    /// after every launch, so that the total is larger than an unprofiled call's.
    pub fn profile(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        threads: usize,
    ) -> Result<Profile, CallError> {
        let mut profile = Profile::new(self.program.kernels.len());
        self.call_with(inputs, outputs, threads, Some(&mut profile))?;
        Ok(profile)
    }

    fn call_with(
        &self,
        inputs: &[View],
        outputs: &mut [ViewMut],
        threads: usize,
        profile: Option<&mut Profile>,
    ) -> Result<(), CallError> {
        let p = &self.program;
        let count = 2 + inputs.len() + outputs.len() + self.globals.len() + p.symbols.len();
        if let Some(fixed) = self.fixed.as_ref().filter(|f| f.matches(inputs, outputs)) {
            return with_words(count, |words| {
                let tensors = inputs
                    .iter()
                    .map(|v| v.data as u64)
                    .chain(outputs.iter().map(|v| v.data as u64));
                let all = tensors.chain(self.globals.iter().map(|g| g.data as u64));
                words[2..].iter_mut().zip(all).for_each(|(word, value)| *word = value);
                self.begin_states(words, inputs);
                self.check_indices(words, inputs, &[], &[])?;
                self.enter(words, fixed.arena, threads, profile)
            });
        }
        let mut shapes = [[].as_slice(); 16];
        let many: Vec<&[usize]>;
        let shapes: &[&[usize]] = if inputs.len() <= shapes.len() {
            shapes.iter_mut().zip(inputs).for_each(|(s, v)| *s = v.shape);
            &shapes[..inputs.len()]
        } else {
            many = inputs.iter().map(|v| v.shape).collect();
            &many
        };
        let (symbols, exprs) = p.sizes(shapes)?;
        if outputs.len() != p.outputs.len() {
            return Err(CallError::Count {
                what: "outputs",
                want: p.outputs.len(),
                have: outputs.len(),
            });
        }
        let mut copies = vec![];
        with_words(count, |words| {
            let mut next = 2;
            let mut push = |word: u64| {
                words[next] = word;
                next += 1;
            };
            for (v, t) in inputs.iter().zip(&p.inputs) {
                same_dtype("input", v.dtype(), t)?;
                check_device("input", &t.name, v.device(), DeviceId::Host)?;
                if v.is_dense(&t.order) {
                    push(v.data as u64);
                } else {
                    let width = byte_size(v.dtype()).unwrap_or(1);
                    tracing::info!(target: "kiln::perf_hints", input = t.name, order = ?t.order, "copied, since it does not lie as the program reads it");
                    let copy = v.gathered(width, &t.order)?;
                    push(copy.as_mut_ptr() as u64);
                    copies.push(copy);
                }
            }
            for (v, t) in outputs.iter().zip(&p.outputs) {
                same_dtype("output", v.dtype(), t)?;
                p.check("output", t, v.shape, &symbols, &exprs)?;
                check_device("output", &t.name, v.device(), DeviceId::Host)?;
                v.check_order(&t.name)?;
                push(v.data as u64);
            }
            self.globals.iter().for_each(|g| push(g.data as u64));
            symbols.iter().for_each(|s| push(*s as u64));
            self.begin_states(words, inputs);
            self.check_indices(words, inputs, &symbols, &exprs)?;
            let bytes = p.arena.size(&symbols, &exprs)?;
            self.enter(words, bytes, threads, profile)
        })
    }

    /// Lets kernels that update a state find it in the output's memory: copies it there, unless the
    /// caller has given the same memory for both.
    fn begin_states(&self, words: &mut [u64], inputs: &[View]) {
        for state in self.program.states.iter().filter(|s| s.in_place) {
            let to = words[2 + inputs.len() + state.output];
            let from = std::mem::replace(&mut words[2 + state.input], to);
            let Some(v) = inputs.get(state.input).filter(|_| from != to) else { continue };
            let bytes = v.shape.iter().product::<usize>() * byte_size(v.dtype()).unwrap_or(0);
            // SAFETY: an input and an output of one type and shape, which the program's manifest
            // states; each has as many bytes, and the words hold their addresses.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) }
        }
    }

    /// Checks the elements of inputs that are indices, which follow two words of the array.
    fn check_indices(
        &self,
        words: &[u64],
        inputs: &[View],
        symbols: &[i64],
        exprs: &[i64],
    ) -> Result<(), CallError> {
        if self.program.indices.is_empty() {
            return Ok(());
        }
        let count = |i: usize| inputs[i].shape.iter().product();
        // SAFETY: the inputs have been checked against the program, and are dense at these
        // addresses.
        unsafe { self.program.check_indices(&words[2..], count, |d| Ok(d.value(symbols, exprs)?)) }
    }

    /// Calls the entry with its argument array, of which it sets the first two words. Every tensor
    /// in it has been checked against the program.
    fn enter(
        &self,
        words: &mut [u64],
        arena_bytes: usize,
        threads: usize,
        profile: Option<&mut Profile>,
    ) -> Result<(), CallError> {
        let mut arena =
            self.arenas.lock().unwrap_or_else(|e| e.into_inner()).pop().unwrap_or_default();
        arena.ensure(arena_bytes).map_err(|e| e.of(self.program.arena_purpose()))?;
        words[0] = arena.as_mut_ptr() as u64;
        words[1] = profile.map_or(0, |p| std::ptr::from_mut(p) as u64);
        // SAFETY: the entry is this program's, and so is the argument array.
        unsafe { (self.entry)(words.as_ptr(), i32::try_from(threads).unwrap_or(i32::MAX)) };
        self.arenas.lock().unwrap_or_else(|e| e.into_inner()).push(arena);
        Ok(())
    }
}

/// Calls `body` with `count` zeroed words, on the stack if there are few.
fn with_words<R>(count: usize, body: impl FnOnce(&mut [u64]) -> R) -> R {
    match count {
        0..=FEW_WORDS => body(&mut [0; FEW_WORDS][..count]),
        n if n <= STACK_WORDS => body(&mut [0; STACK_WORDS][..count]),
        _ => body(&mut vec![0; count]),
    }
}

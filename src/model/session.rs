//! Calls of a program with state, such as a decoder with a cache of keys and values.
use super::{Error, Executable, Model, Options};
use crate::{
    backend::Runnable,
    dialects::value::DType,
    runtime::{
        Bytes, CallError, DeviceId, Program,
        program::{Dim, Global, Role, State},
    },
    tensor::{Array, DonatedMemory, Tensor},
};
use std::sync::Arc;

/// A program and its state: the buffers that an exported program mutates, such as the cache of keys
/// and values that a decoder updates with `index_copy_`. The state stays on the program's device
/// from call to call, and new values are in the memory of the old ones.
///
/// Where a call writes one position along a dimension of a buffer, as a decoder does, one row is
/// all that is written, and nothing copies the buffer: see
/// [`State::in_place`](crate::runtime::program::State::in_place).
///
/// ```no_run
/// use kiln::Tensor;
/// let mut decoder = kiln::load("decoder.pt2")?.session(&kiln::Options::default())?;
/// for (at, token) in [3i64, 1, 4].into_iter().enumerate() {
///     let (token, at) = (Tensor::from_slice(&[1, 1], &[token])?, Tensor::from_slice(&[1], &[at as i64])?);
///     let scores = decoder.call(&[&token, &at])?.remove(0);
/// }
/// decoder.reset()?;
/// # Ok::<(), kiln::Error>(())
/// ```
pub struct Session {
    executable: Arc<Executable>,
    device: DeviceId,
    /// The state that each input is, and that each output is the new value of.
    states: Arc<[Vec<Option<usize>>; 2]>,
    /// The initial value of each of the program's states.
    initial: Arc<Vec<Initial>>,
    /// The value of each of the program's states.
    state: Vec<Arc<Array>>,
}

/// The initial value of a state.
struct Initial {
    dtype: DType,
    shape: Vec<usize>,
    elements: Bytes,
}

impl Initial {
    /// A copy on a device, which a call may overwrite.
    fn copied(&self, device: DeviceId) -> Result<Arc<Array>, Error> {
        let copy = match device {
            DeviceId::Host => Array::from_bytes(self.dtype, &self.shape, self.elements.bytes())?,
            DeviceId::Cuda(_) => {
                let host = Array::new(self.dtype, &self.shape, self.elements.clone())?;
                return Ok(Arc::new(host).beside(device)?);
            }
        };
        Ok(Arc::new(copy))
    }
}

/// Where the initial values of a program's states are.
pub(super) fn initial_values(program: &Program) -> Vec<Global> {
    let size = |d: &Dim| if let Dim::Known(n) = d { u64::try_from(*n).ok() } else { None };
    let global = |state: &State| {
        let t = program.inputs.get(state.input)?;
        Some(Global {
            name: t.name.clone(),
            dtype: t.dtype.clone(),
            shape: t.dims.iter().map(size).collect::<Option<_>>()?,
            source: state.source.clone(),
            data: None,
            role: Role::Mutable,
        })
    };
    program.states.iter().filter_map(global).collect()
}

impl Model {
    /// Compiles an archive, with the buffers that it mutates as state of the session, at their
    /// initial values. Arguments of a call are the program's other arguments. A package has states
    /// if it was built with [`Options::states`]; IR has those that it states (`kiln.state`).
    ///
    /// # Errors
    /// As [`Model::compile`]; the initial value of a buffer is missing, or the device is out of
    /// memory.
    pub fn session(&self, options: &Options) -> Result<Session, Error> {
        let options = Options { states: true, ..options.clone() };
        let executable = self.compile(&options)?;
        let device = match executable.device_info() {
            Some(info) => DeviceId::Cuda(info.index),
            None => DeviceId::Host,
        };
        let (package, mut initial) = (executable.package(), vec![]);
        let mut finder = self.finder(package, &options);
        for g in initial_values(&package.program) {
            let wrong = |reason: String| Error::Weight(format!("state '{}': {reason}", g.name));
            let dtype = DType::from_name(&g.dtype)
                .ok_or_else(|| wrong(format!("'{}' is no element type", g.dtype)))?;
            let elements = finder.find(&g).map_err(|e| wrong(e.to_string()))?;
            let shape = g.shape.iter().map(|n| usize::try_from(*n).unwrap_or(usize::MAX)).collect();
            initial.push(Initial { dtype, shape, elements });
        }
        let program = Executable::program(&executable);
        let of = |is: &dyn Fn(&State) -> bool| program.states.iter().position(is);
        let states = Arc::new([
            (0..program.inputs.len()).map(|n| of(&|s| s.input == n)).collect(),
            (0..program.outputs.len()).map(|n| of(&|s| s.output == n)).collect(),
        ]);
        let (executable, initial) = (Arc::new(executable), Arc::new(initial));
        let mut session = Session { executable, device, states, initial, state: vec![] };
        session.reset()?;
        Ok(session)
    }
}

impl Session {
    /// Runs the program once and keeps the new state. Returns its other results, in order; they
    /// are on the session's device, as the state is. Arguments may be on the host.
    ///
    /// A tensor that [`Session::state`] has given keeps its elements: if one is still held, this
    /// call copies that buffer once.
    ///
    /// # Errors
    /// Another number of arguments, dtypes or sizes than the program's; a position out of range, on
    /// the host; the device fails. The state is then unspecified if the program has started.
    pub fn call(&mut self, arguments: &[&Tensor]) -> Result<Vec<Tensor>, Error> {
        let [by_input, by_output] = &*self.states;
        let want = by_input.len() - self.state.len();
        if arguments.len() != want {
            return Err(CallError::Count { what: "inputs", want, have: arguments.len() }.into());
        }
        let given = arguments.iter().map(|t| t.array()).collect::<Result<Vec<_>, _>>()?;
        let (mut views, mut donated, mut next) = (vec![], vec![], given.iter());
        for state in by_input {
            let kept = state.and_then(|n| self.state.get(n));
            let Some(array) = kept.or_else(|| next.next()) else { continue };
            views.push(array.as_view());
            donated.push(kept.and_then(DonatedMemory::of));
        }
        let results = self.executable.run_donated(&views, &mut donated)?;
        drop((views, donated));
        let mut others = vec![];
        for (result, state) in results.into_iter().map(Arc::new).zip(by_output) {
            match state {
                Some(n) => self.state[*n] = result,
                None => others.push(Tensor::from(result)),
            }
        }
        Ok(others)
    }
    /// Gives each state its initial value. Err: the device is out of memory.
    pub fn reset(&mut self) -> Result<(), Error> {
        // First of all, so that a device need not hold both.
        self.state.clear();
        self.state =
            self.initial.iter().map(|i| i.copied(self.device)).collect::<Result<_, _>>()?;
        Ok(())
    }
    /// Another session of the same program and weights, with the initial state. Err: the device is
    /// out of memory.
    pub fn another(&self) -> Result<Session, Error> {
        let mut session = Session {
            executable: self.executable.clone(),
            device: self.device,
            states: self.states.clone(),
            initial: self.initial.clone(),
            state: vec![],
        };
        session.reset()?;
        Ok(session)
    }
    /// The states by name, such as `layers.0.keys`, with their values.
    pub fn state(&self) -> impl Iterator<Item = (&str, Tensor)> {
        let program = Executable::program(&self.executable);
        let name = |s: &State| program.inputs[s.input].name.as_str();
        program.states.iter().map(name).zip(self.state.iter().cloned().map(Tensor::from))
    }
    /// The compiled program; [`Program::states`] describes the state.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }
}

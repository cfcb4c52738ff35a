//! Named weights.
use super::{
    Init,
    init::Seeded,
    stored::{Slot, Stored, Value},
};
use crate::{
    capture::weight::Weight,
    tensor::{Array, Graph, Tensor, device},
};
use kiln_dialects::value::{self, DType};
use kiln_runtime::{DataError, DeviceId};
use std::{
    panic::Location,
    sync::{
        Arc, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// The name prefix, the dtype and the seed of a module's weights.
#[derive(Clone, Debug)]
pub struct Scope {
    prefix: String,
    dtype: DType,
    seed: u64,
}

impl Default for Scope {
    fn default() -> Self {
        Scope::root()
    }
}

impl Scope {
    /// The root scope: no prefix, f32, seed 0.
    pub fn root() -> Scope {
        Scope { prefix: String::new(), dtype: DType::F32, seed: 0 }
    }
    /// The same prefix with another dtype.
    pub fn with_dtype(self, dtype: DType) -> Scope {
        Scope { dtype, ..self }
    }
    /// The same prefix with another seed of random initial values.
    pub fn with_seed(self, seed: u64) -> Scope {
        Scope { seed, ..self }
    }
    /// A submodule's scope, with the prefix `name.`.
    pub fn child(&self, name: impl std::fmt::Display) -> Scope {
        Scope { prefix: format!("{}{name}.", self.prefix), ..self.clone() }
    }
    /// The qualified name of a weight.
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
    /// Creates a weight in this scope.
    pub fn parameter(&self, name: &str, shape: &[usize], init: Init) -> Parameter {
        Parameter::new(self.name(name), self.dtype, shape, init.seeded(self.seed))
    }
    /// Creates a weight that gradients do not train, such as running statistics.
    pub fn buffer(&self, name: &str, shape: &[usize], init: Init) -> Parameter {
        Parameter { is_buffer: true, ..self.parameter(name, shape, init) }
    }
}

/// A weight of a module.
#[derive(Debug)]
pub struct Parameter {
    init: Seeded,
    is_buffer: bool,
    stored: Arc<Stored>,
}

impl Parameter {
    /// A weight with this qualified name.
    pub fn new(name: String, dtype: DType, shape: &[usize], init: impl Into<Seeded>) -> Parameter {
        let stored = Stored {
            name,
            dtype,
            shape: shape.to_vec(),
            value: RwLock::new(Slot::Empty),
            version: AtomicU64::new(0),
        };
        Parameter { init: init.into(), is_buffer: false, stored: Arc::new(stored) }
    }
    /// Whether gradients do not train it; see [`Scope::buffer`].
    pub fn is_buffer(&self) -> bool {
        self.is_buffer
    }
    /// The qualified name.
    pub fn name(&self) -> &str {
        &self.stored.name
    }
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.stored.dtype
    }
    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.stored.shape
    }
    /// The value: loaded or set, else initialised by [`Init`]. Err: too many elements.
    pub fn value(&self) -> Result<Weight, DataError> {
        self.current()?.weight()
    }
    /// The value, initialised on first use and then cached.
    fn current(&self) -> Result<Value, DataError> {
        if let Some(value) = self.stored.value()? {
            return Ok(value);
        }
        let array = Arc::new(Array::from_weight(&self.initial(self.init)?)?);
        self.stored.value_or(Value { array, file: None })
    }
    /// Sets the value; the weight stays mutable, not frozen. Err: another dtype or shape.
    pub fn set(&self, value: &value::Tensor) -> Result<(), DataError> {
        let weight = Weight::from_tensor(value);
        self.check_type(weight.dtype, &weight.shape)?;
        self.store(weight, None)
    }
    /// The type as text, such as `f32[10, 64]`.
    pub fn type_name(&self) -> String {
        format!("{}{:?}", self.dtype(), self.shape())
    }
    pub(super) fn check_type(&self, dtype: DType, shape: &[usize]) -> Result<(), DataError> {
        if dtype == self.dtype() && shape == self.shape() {
            return Ok(());
        }
        Err(DataError::Mismatch(format!(
            "{} is {dtype}{shape:?}, but {} is expected",
            self.name(),
            self.type_name()
        )))
    }
    /// Stores a weight, on the device of the value that it replaces.
    pub(super) fn store(&self, weight: Weight, source: Option<String>) -> Result<(), DataError> {
        let array = Arc::new(Array::from_weight(&weight)?).beside(self.device())?;
        self.replace(Value { array, file: source.map(|s| (weight, s)) });
        Ok(())
    }
    /// Takes another value of the same type.
    pub(super) fn replace(&self, value: Value) {
        let moves = value.array.device() != self.device();
        self.stored.set(value);
        if moves {
            self.stored.moved();
        }
        self.stored.version.fetch_add(1, Ordering::Release);
    }
    /// Moves the value to a device (`cpu`, `cuda` or `cuda:<ordinal>`), where calls then read it in
    /// place; values set later go there too. Err: no such device, or out of its memory.
    pub fn to_device(&self, device: &str) -> Result<(), DataError> {
        let device = device::parse(device)?;
        let Value { array, file } = self.current()?;
        if let Some(moved) = array.copied_to(device)? {
            self.replace(Value { array: Arc::new(moved), file });
        }
        Ok(())
    }
    /// What it shares with compiled functions.
    pub(crate) fn stored(&self) -> &Arc<Stored> {
        &self.stored
    }
    /// Where the value is.
    pub fn device(&self) -> DeviceId {
        self.stored.device()
    }
    /// The weight as a tensor of a graph. A weight loaded from a file is frozen. Any other weight
    /// is an input that each call of a [compiled](crate::compile()) function reads anew.
    #[track_caller]
    pub fn on(&self, graph: &Graph) -> Tensor {
        let _frame = graph.frame(Location::caller());
        // Read the version before the value, so that a concurrent change is noticed.
        let version = self.stored.version();
        match self.current() {
            Ok(value) if graph.is_eager() => Tensor::from(value.array),
            Ok(value) => graph.parameter_of(&self.stored, version, &value),
            Err(e) => graph.failed("parameter", format!("{} {e}", self.name())),
        }
    }

    /// Sets the value to that of an initialiser, in its own seed's numbers. Err: too many elements.
    pub fn fill(&self, init: impl Into<Seeded>) -> Result<(), DataError> {
        self.store(self.initial(init.into())?, None)
    }
    fn initial(&self, init: Seeded) -> Result<Weight, DataError> {
        init.value(self.name(), self.dtype(), self.shape()).map(|t| Weight::from_tensor(&t))
    }
}

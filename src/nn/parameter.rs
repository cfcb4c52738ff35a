//! Weights by name.
use crate::{
    capture::weight::Weight,
    tensor::{Array, Graph, Tensor},
};
use kiln_dialects::value::{self, DType, Data, count};
use std::{
    panic::Location,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Where a module's weights get their names and their dtype from.
#[derive(Clone, Debug)]
pub struct Scope {
    prefix: String,
    dtype: DType,
}

impl Default for Scope {
    fn default() -> Self {
        Scope::root()
    }
}

impl Scope {
    /// The outermost one: no prefix, f32.
    pub fn root() -> Scope {
        Scope { prefix: String::new(), dtype: DType::F32 }
    }
    /// The same names with another dtype.
    pub fn with_dtype(self, dtype: DType) -> Scope {
        Scope { dtype, ..self }
    }
    /// A part: its weights are called `name.…`.
    pub fn child(&self, name: impl std::fmt::Display) -> Scope {
        Scope { prefix: format!("{}{name}.", self.prefix), dtype: self.dtype }
    }
    /// The full name of a weight.
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
    /// A weight of this scope.
    pub fn parameter(&self, name: &str, shape: &[usize], init: Init) -> Parameter {
        Parameter::new(self.name(name), self.dtype, shape, init)
    }
}

/// What a weight is before it is loaded or set. Random numbers depend on the name alone, so that
/// every run has the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// One number everywhere.
    Constant(f64),
    /// Uniform in [-b, b).
    Uniform(f64),
    /// Normal, mean 0 and variance 1.
    Normal,
}

/// A weight of a module.
#[derive(Debug)]
pub struct Parameter {
    init: Init,
    stored: Arc<Stored>,
}

/// What a weight is now; compiled functions keep it.
#[derive(Debug)]
pub(crate) struct Stored {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
    value: RwLock<Option<Value>>,
    /// How often the value has been changed.
    version: AtomicU64,
}

/// A value, and the file that it is from.
#[derive(Clone, Debug)]
struct Value {
    array: Arc<Array>,
    weight: Weight,
    source: Option<String>,
}

impl Stored {
    fn value(&self) -> Option<Value> {
        self.value.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// How often the value has been changed.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
    /// The elements now, if it has been given a value or asked for one.
    pub fn array(&self) -> Option<Arc<Array>> {
        self.value().map(|v| v.array)
    }
}

impl Parameter {
    /// A weight of that full name.
    pub fn new(name: String, dtype: DType, shape: &[usize], init: Init) -> Parameter {
        let stored = Stored {
            name,
            dtype,
            shape: shape.to_vec(),
            value: RwLock::new(None),
            version: AtomicU64::new(0),
        };
        Parameter { init, stored: Arc::new(stored) }
    }
    /// The full name.
    pub fn name(&self) -> &str {
        &self.stored.name
    }
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.stored.dtype
    }
    /// Sizes.
    pub fn shape(&self) -> &[usize] {
        &self.stored.shape
    }
    /// The value: what was loaded or set, else what [`Init`] says. Err: too many elements.
    pub fn value(&self) -> Result<Weight, String> {
        self.now().map(|v| v.weight)
    }
    /// The value, which from then on is kept.
    fn now(&self) -> Result<Value, String> {
        if let Some(value) = self.stored.value() {
            return Ok(value);
        }
        let weight = Weight::of(&self.initial()?);
        let value = Value { array: Arc::new(Array::of_weight(&weight)?), weight, source: None };
        let mut stored = self.stored.value.write().unwrap_or_else(PoisonError::into_inner);
        Ok(stored.get_or_insert(value).clone())
    }
    /// Gives it a value, which stays the caller's to change. Err: another dtype or shape.
    pub fn set(&self, value: &value::Tensor) -> Result<(), String> {
        let weight = Weight::of(value);
        self.fits(&weight)?;
        self.store(weight, None)
    }
    /// As `f32[10, 64]`.
    pub fn type_name(&self) -> String {
        format!("{}{:?}", self.dtype(), self.shape())
    }
    pub(super) fn fits(&self, weight: &Weight) -> Result<(), String> {
        if weight.dtype == self.dtype() && weight.shape == self.shape() {
            return Ok(());
        }
        Err(format!(
            "{} is {}{:?}, but {} is expected",
            self.name(),
            weight.dtype,
            weight.shape,
            self.type_name()
        ))
    }
    pub(super) fn store(&self, weight: Weight, source: Option<String>) -> Result<(), String> {
        let array = Arc::new(Array::of_weight(&weight)?);
        *self.stored.value.write().unwrap_or_else(PoisonError::into_inner) =
            Some(Value { array, weight, source });
        self.stored.version.fetch_add(1, Ordering::Release);
        Ok(())
    }
    /// The weight in a graph. One that comes from a file is frozen; in a function that is
    /// [compiled](crate::compile()) any other is read anew by every call.
    #[track_caller]
    pub fn on(&self, graph: &Graph) -> Tensor {
        let _frame = graph.frame(Location::caller());
        // Before the value, so that a value that is set meanwhile is noticed.
        let version = self.stored.version();
        match self.now() {
            Ok(value) if graph.is_eager() => Tensor::from(value.array),
            Ok(Value { weight, source, .. }) => {
                let from = source.clone().unwrap_or_else(|| format!("#{}", self.name()));
                graph.parameter_of(&self.stored, version, &weight, from, source.is_some())
            }
            Err(e) => graph.failed("parameter", format!("{} {e}", self.name())),
        }
    }

    fn initial(&self) -> Result<value::Tensor, String> {
        let n = count(self.shape())?;
        let mut random = Random::of(self.name());
        let numbers: Vec<f64> = match self.init {
            Init::Constant(x) => vec![x; n],
            Init::Uniform(b) => (0..n).map(|_| (2.0 * random.unit() - 1.0) * b).collect(),
            // Box and Muller, 1958.
            Init::Normal => (0..n)
                .map(|_| {
                    (-2.0 * (1.0 - random.unit()).ln()).sqrt()
                        * (std::f64::consts::TAU * random.unit()).cos()
                })
                .collect(),
        };
        let data = if self.dtype().is_float() {
            Data::F(numbers.into_iter().map(|x| self.dtype().round(x)).collect())
        } else {
            Data::I(numbers.into_iter().map(|x| self.dtype().wrap(x as i64)).collect())
        };
        Ok(value::Tensor::new(self.dtype(), self.shape().to_vec(), data)?)
    }
}

/// Steele et al., Fast splittable pseudorandom number generators, 2014 (splitmix64).
struct Random(u64);

impl Random {
    /// Seeded by a name (Fowler, Noll and Vo's hash, 64 bits).
    fn of(name: &str) -> Random {
        Random(
            name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| {
                (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
            }),
        )
    }
    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

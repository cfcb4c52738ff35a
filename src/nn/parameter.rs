//! Named weights.
use super::stored::{Stored, Value};
use crate::{
    capture::weight::Weight,
    tensor::{Array, Graph, Tensor},
};
use kiln_dialects::value::{self, DType, Data, count};
use kiln_runtime::DataError;
use std::{
    panic::Location,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// The name prefix and the dtype of a module's weights.
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
    /// The root scope: no prefix, f32.
    pub fn root() -> Scope {
        Scope { prefix: String::new(), dtype: DType::F32 }
    }
    /// The same prefix with another dtype.
    pub fn with_dtype(self, dtype: DType) -> Scope {
        Scope { dtype, ..self }
    }
    /// A submodule's scope, with the prefix `name.`.
    pub fn child(&self, name: impl std::fmt::Display) -> Scope {
        Scope { prefix: format!("{}{name}.", self.prefix), dtype: self.dtype }
    }
    /// The qualified name of a weight.
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
    /// Creates a weight in this scope.
    pub fn parameter(&self, name: &str, shape: &[usize], init: Init) -> Parameter {
        Parameter::new(self.name(name), self.dtype, shape, init)
    }
}

/// Initialisation of a weight. Random values are seeded by the qualified name, so they are the same
/// in every run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// A constant fill.
    Constant(f64),
    /// Uniform in [-b, b).
    Uniform(f64),
    /// Standard normal: mean 0, variance 1.
    Normal,
}

/// A weight of a module.
#[derive(Debug)]
pub struct Parameter {
    init: Init,
    stored: Arc<Stored>,
}

impl Parameter {
    /// A weight with this qualified name.
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
        self.current().map(|v| v.weight)
    }
    /// The value, initialised on first use and then cached.
    fn current(&self) -> Result<Value, DataError> {
        if let Some(value) = self.stored.value() {
            return Ok(value);
        }
        let weight = Weight::from_tensor(&self.initial()?);
        let value = Value { array: Arc::new(Array::from_weight(&weight)?), weight, source: None };
        let mut stored = self.stored.value.write().unwrap_or_else(PoisonError::into_inner);
        Ok(stored.get_or_insert(value).clone())
    }
    /// Sets the value; the weight stays mutable, not frozen. Err: another dtype or shape.
    pub fn set(&self, value: &value::Tensor) -> Result<(), DataError> {
        let weight = Weight::from_tensor(value);
        self.check_type(&weight)?;
        self.store(weight, None)
    }
    /// The type as text, such as `f32[10, 64]`.
    pub fn type_name(&self) -> String {
        format!("{}{:?}", self.dtype(), self.shape())
    }
    pub(super) fn check_type(&self, weight: &Weight) -> Result<(), DataError> {
        if weight.dtype == self.dtype() && weight.shape == self.shape() {
            return Ok(());
        }
        Err(DataError::Mismatch(format!(
            "{} is {}{:?}, but {} is expected",
            self.name(),
            weight.dtype,
            weight.shape,
            self.type_name()
        )))
    }
    pub(super) fn store(&self, weight: Weight, source: Option<String>) -> Result<(), DataError> {
        let array = Arc::new(Array::from_weight(&weight)?);
        *self.stored.value.write().unwrap_or_else(PoisonError::into_inner) =
            Some(Value { array, weight, source });
        self.stored.version.fetch_add(1, Ordering::Release);
        Ok(())
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
            Ok(Value { weight, source, .. }) => {
                let from = source.clone().unwrap_or_else(|| format!("#{}", self.name()));
                graph.parameter_of(&self.stored, version, &weight, from, source.is_some())
            }
            Err(e) => graph.failed("parameter", format!("{} {e}", self.name())),
        }
    }

    fn initial(&self) -> Result<value::Tensor, DataError> {
        let n = count(self.shape()).map_err(DataError::malformed)?;
        let mut random = Random::of(self.name());
        let numbers: Vec<f64> = match self.init {
            Init::Constant(x) => vec![x; n],
            Init::Uniform(b) => (0..n).map(|_| (2.0 * random.unit() - 1.0) * b).collect(),
            // Box–Muller transform (1958).
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
        value::Tensor::new(self.dtype(), self.shape().to_vec(), data).map_err(DataError::malformed)
    }
}

/// splitmix64: Steele et al., "Fast splittable pseudorandom number generators", 2014.
struct Random(u64);

impl Random {
    /// Seeded by a name (64-bit FNV hash).
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

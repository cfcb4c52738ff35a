//! Weights by name.
use crate::{capture::weight::Weight, tensor::Graph, tensor::Tensor};
use kiln_dialects::value::{self, DType, Data, count};
use std::{
    panic::Location,
    sync::{PoisonError, RwLock},
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

/// What a weight is before it is loaded or set. Random numbers depend on the name alone, so that every run has the same.
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
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    init: Init,
    value: RwLock<Option<(Weight, Option<String>)>>,
}

impl Parameter {
    /// A weight of that full name.
    pub fn new(name: String, dtype: DType, shape: &[usize], init: Init) -> Parameter {
        Parameter { name, dtype, shape: shape.to_vec(), init, value: RwLock::new(None) }
    }
    /// The full name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Sizes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// The value: what was loaded or set, else what [`Init`] says. Err: too many elements.
    pub fn value(&self) -> Result<Weight, String> {
        let stored = self.value.read().unwrap_or_else(PoisonError::into_inner).clone();
        match stored {
            Some((weight, _)) => Ok(weight),
            None => self.initial().map(|t| Weight::of(&t)),
        }
    }
    /// Gives it a value, which stays the caller's to change. Err: another dtype or shape.
    pub fn set(&self, value: &value::Tensor) -> Result<(), String> {
        let weight = Weight::of(value);
        self.fits(&weight)?;
        self.store(weight, None);
        Ok(())
    }
    /// As `f32[10, 64]`.
    pub fn type_name(&self) -> String {
        format!("{}{:?}", self.dtype, self.shape)
    }
    pub(super) fn fits(&self, weight: &Weight) -> Result<(), String> {
        if weight.dtype == self.dtype && weight.shape == self.shape {
            return Ok(());
        }
        Err(format!("{} is {}{:?}, but {} is expected", self.name, weight.dtype, weight.shape, self.type_name()))
    }
    pub(super) fn store(&self, weight: Weight, source: Option<String>) {
        *self.value.write().unwrap_or_else(PoisonError::into_inner) = Some((weight, source));
    }
    /// The weight in a graph. One that comes from a file is frozen.
    #[track_caller]
    pub fn on<'t>(&self, graph: &'t Graph) -> Tensor<'t> {
        let _frame = graph.frame(Location::caller());
        let source = self.value.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|(_, source)| source.clone());
        match self.value() {
            Ok(value) => graph.weight(&self.name, &value, source.clone().unwrap_or_else(|| format!("#{}", self.name)), source.is_some()),
            Err(e) => graph.failed("parameter", format!("{} {e}", self.name)),
        }
    }

    fn initial(&self) -> Result<value::Tensor, String> {
        let n = count(&self.shape)?;
        let mut random = Random::of(&self.name);
        let numbers: Vec<f64> = match self.init {
            Init::Constant(x) => vec![x; n],
            Init::Uniform(b) => (0..n).map(|_| (2.0 * random.unit() - 1.0) * b).collect(),
            // Box and Muller, 1958.
            Init::Normal => {
                (0..n).map(|_| (-2.0 * (1.0 - random.unit()).ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()).collect()
            }
        };
        let data = if self.dtype.is_float() {
            Data::F(numbers.into_iter().map(|x| self.dtype.round(x)).collect())
        } else {
            Data::I(numbers.into_iter().map(|x| self.dtype.wrap(x as i64)).collect())
        };
        value::Tensor::new(self.dtype, self.shape.clone(), data)
    }
}

/// Steele et al., Fast splittable pseudorandom number generators, 2014 (splitmix64).
struct Random(u64);

impl Random {
    /// Seeded by a name (Fowler, Noll and Vo's hash, 64 bits).
    fn of(name: &str) -> Random {
        Random(name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)))
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

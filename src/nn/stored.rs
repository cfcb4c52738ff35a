//! A weight's value, which its module and compiled functions share.
use crate::{capture::weight::Weight, tensor::Array};
use kiln_dialects::value::DType;
use kiln_runtime::{DataError, DeviceId};
use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};

/// A weight's current value, shared with compiled functions.
#[derive(Debug)]
pub(crate) struct Stored {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub(super) value: RwLock<Option<Value>>,
    /// Version counter, incremented by each change.
    pub(super) version: AtomicU64,
}

/// A value; if it was loaded from a file, as the file has it, and where.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub array: Arc<Array>,
    pub file: Option<(Weight, String)>,
}

impl Value {
    /// As a weight in host memory. Err: as for [`Array::bytes`].
    pub fn weight(&self) -> Result<Weight, DataError> {
        match &self.file {
            Some((weight, _)) => Ok(weight.clone()),
            None => Weight::from_array(&self.array),
        }
    }
}

/// How many weights were moved to another device, in all.
static MOVES: AtomicU64 = AtomicU64::new(0);

/// The number of [`Stored::moved`] so far.
pub(crate) fn moves() -> u64 {
    MOVES.load(Ordering::Acquire)
}

impl Stored {
    /// Counts a move to another device.
    pub(super) fn moved(&self) {
        MOVES.fetch_add(1, Ordering::Release);
    }
    /// Where the value is.
    pub fn device(&self) -> DeviceId {
        self.array().map_or(DeviceId::Host, |a| a.device())
    }
    pub(super) fn value(&self) -> Option<Value> {
        self.value.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Version counter, incremented by each change.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
    /// The current elements, if the weight was set or already initialised.
    pub fn array(&self) -> Option<Arc<Array>> {
        self.value().map(|v| v.array)
    }
}

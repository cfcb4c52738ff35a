//! A weight's value, which its module and compiled functions share.
use crate::{capture::weight::Weight, tensor::Array};
use kiln_dialects::value::DType;
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

/// A value, and the file it was loaded from.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub array: Arc<Array>,
    pub weight: Weight,
    pub source: Option<String>,
}

impl Stored {
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

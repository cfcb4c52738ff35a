//! A weight's value, which its module and compiled functions share.
use crate::{
    capture::weight::Weight,
    tensor::{Array, DonatedMemory},
};
use kiln_dialects::value::DType;
use kiln_runtime::{DataError, DeviceId};
use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicU64, Ordering},
};

/// Why a donated weight has no value.
const DONATED: &str = "was donated to a call, which has overwritten it: nn::assign gives it the new \
    value that the call returned";

/// A weight's current value, shared with compiled functions.
#[derive(Debug)]
pub(crate) struct Stored {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub(super) value: RwLock<Slot>,
    /// Version counter, incremented by each change.
    pub(super) version: AtomicU64,
}

/// What a weight has.
#[derive(Debug)]
pub(crate) enum Slot {
    /// Nothing yet: the first use makes its initial value.
    Empty,
    Value(Value),
    /// Nothing any more: its memory, on this device, was donated to a call.
    Donated(DeviceId),
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
        match &*self.read() {
            Slot::Empty => DeviceId::Host,
            Slot::Value(value) => value.array.device(),
            Slot::Donated(device) => *device,
        }
    }
    fn read(&self) -> RwLockReadGuard<'_, Slot> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }
    fn write(&self) -> RwLockWriteGuard<'_, Slot> {
        self.value.write().unwrap_or_else(PoisonError::into_inner)
    }
    /// The value, if there is one. Err: its memory was donated.
    pub(super) fn value(&self) -> Result<Option<Value>, DataError> {
        match &*self.read() {
            Slot::Empty => Ok(None),
            Slot::Value(value) => Ok(Some(value.clone())),
            Slot::Donated(_) => Err(DataError::Missing(DONATED.into())),
        }
    }
    /// The value, which is this one if there was none. Err: its memory was donated.
    pub(super) fn value_or(&self, value: Value) -> Result<Value, DataError> {
        let mut slot = self.write();
        if let Slot::Empty = *slot {
            *slot = Slot::Value(value);
        }
        drop(slot);
        self.value()?.ok_or_else(|| DataError::Missing("has no value".into()))
    }
    /// Sets the value.
    pub(super) fn set(&self, value: Value) {
        *self.write() = Slot::Value(value);
    }
    /// Takes the value for a call that overwrites its memory. `None`: something else holds it, or it
    /// is a file's.
    pub fn donate(&self) -> Option<Arc<Array>> {
        let mut slot = self.write();
        let Slot::Value(Value { array, file: None }) = &*slot else { return None };
        DonatedMemory::of(array)?;
        let device = array.device();
        match std::mem::replace(&mut *slot, Slot::Donated(device)) {
            Slot::Value(value) => Some(value.array),
            _ => None,
        }
    }
    /// Gives a value back that a call has not overwritten, unless there is a new one.
    pub fn restore(&self, array: Arc<Array>) {
        let mut slot = self.write();
        if let Slot::Donated(_) = *slot {
            *slot = Slot::Value(Value { array, file: None });
        }
    }
    /// Version counter, incremented by each change.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
    /// The current elements. Err: the weight was neither set nor initialised, or was donated.
    pub fn array(&self) -> Result<Arc<Array>, DataError> {
        let value = self.value()?.ok_or_else(|| DataError::Missing("has no value".into()))?;
        Ok(value.array)
    }
}

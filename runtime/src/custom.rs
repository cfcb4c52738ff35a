//! Functions that programs call by name: `kiln.custom_call`.
use crate::{View, ViewMut};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

/// A function of a host: it reads the inputs and writes the results, which have the sizes that the
/// program says. May run on many threads at once.
pub type CustomFn = dyn Fn(&[View], &mut [ViewMut]) -> Result<(), String> + Send + Sync;

static ALL: LazyLock<RwLock<HashMap<String, Arc<CustomFn>>>> = LazyLock::new(RwLock::default);

/// Gives a function a name. Programs that are loaded afterwards call it. Err: there is one of that
/// name.
pub fn register(name: &str, f: Arc<CustomFn>) -> Result<(), String> {
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    if all.contains_key(name) {
        return Err(format!("there is already a custom op '{name}'"));
    }
    all.insert(name.into(), f);
    Ok(())
}

/// The function of that name.
pub fn find(name: &str) -> Option<Arc<CustomFn>> {
    ALL.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
}

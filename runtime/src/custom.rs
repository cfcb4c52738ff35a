//! Host functions that programs call by name: `kiln.custom_call`. Names that begin with
//! `kiln.linalg.` and `kiln.fft.` are kiln's own.
use crate::{View, ViewMut, library, linalg};
use kiln_linalg::{Factorization, Fourier};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

/// A custom function's own error.
pub type UserError = Box<dyn std::error::Error + Send + Sync>;

/// A host function: reads inputs and writes results of the shapes that the program states. May run
/// on several threads at once.
pub type CustomFn = dyn Fn(&[View], &mut [ViewMut]) -> Result<(), UserError> + Send + Sync;

static ALL: LazyLock<RwLock<HashMap<String, Arc<CustomFn>>>> = LazyLock::new(RwLock::default);

/// A name that is registered already.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is already a custom op '{0}'")]
pub struct NameTaken(pub String);

/// Registers a function. Programs loaded afterwards can call it. Err: the name is taken.
pub fn register(name: &str, f: Arc<CustomFn>) -> Result<(), NameTaken> {
    let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
    if all.contains_key(name) || own(name).is_some() {
        return Err(NameTaken(name.into()));
    }
    all.insert(name.into(), f);
    Ok(())
}

/// The function registered under a name, or kiln's own.
pub fn find(name: &str) -> Option<Arc<CustomFn>> {
    let registered = ALL.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    registered.or_else(|| own(name))
}

/// A function of kiln's.
fn own(name: &str) -> Option<Arc<CustomFn>> {
    if let Some(f) = Factorization::find(name) {
        return Some(Arc::new(move |inputs: &[View], outputs: &mut [ViewMut]| {
            linalg::call(f, inputs, outputs)
        }));
    }
    let f = Fourier::find(name)?;
    Some(Arc::new(move |inputs: &[View], outputs: &mut [ViewMut]| {
        Ok(library::transform(f, inputs, outputs)?)
    }))
}

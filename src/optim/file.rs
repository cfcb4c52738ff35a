//! An optimizer's state as a safetensors file.
use super::{Optimizer, State, wide};
use crate::{
    capture::weight::{self, Weight},
    nn::{WeightsError, file::distinct},
    tensor::{Array, Tensor, TraceError},
};
use std::{path::Path, sync::Arc};

/// The name of the number of updates.
const COUNT: &str = "count";

fn at(file: &str, e: impl ToString) -> WeightsError {
    WeightsError::File { file: file.into(), reason: e.to_string() }
}

/// Names and values of a state's tensors; the values are those of the first step.
fn named<O: Optimizer + ?Sized>(
    optimizer: &O,
    weights: &[Tensor],
    names: &[&str],
) -> Result<Vec<(String, Tensor)>, TraceError> {
    if names.len() != weights.len() {
        let (n, m) = (names.len(), weights.len());
        return Err(super::error(format!("{n} names are given for {m} weights")));
    }
    let mut all = vec![(COUNT.to_string(), Tensor::scalar(0.0f32)?)];
    for (name, w) in names.iter().zip(weights) {
        let slots = optimizer.slots(&wide(w)?)?;
        all.extend(slots.into_iter().map(|(slot, t)| (format!("{name}.{slot}"), t)));
    }
    Ok(all)
}

pub(super) fn save<O: Optimizer + ?Sized>(
    optimizer: &O,
    weights: &[Tensor],
    names: &[&str],
    state: &State,
    path: &Path,
) -> Result<(), WeightsError> {
    let file = path.display().to_string();
    let all = named(optimizer, weights, names).map_err(|e| at(&file, e))?;
    distinct(all.iter().map(|(name, _)| name.as_str()))?;
    let values: Vec<&Tensor> =
        std::iter::once(&state.count).chain(state.slots.iter().flatten()).collect();
    if values.len() != all.len() {
        return Err(at(&file, "the state is of other weights"));
    }
    let one = |((name, _), t): ((String, Tensor), &Tensor)| {
        let array = t.array().map_err(|e| at(&file, e))?;
        Ok((name, Weight::from_array(&array).map_err(|e| at(&file, e))?))
    };
    let all = all.into_iter().zip(values).map(one).collect::<Result<Vec<_>, WeightsError>>()?;
    weight::write(path, &all).map_err(|e| at(&file, e))
}

pub(super) fn load<O: Optimizer + ?Sized>(
    optimizer: &O,
    weights: &[Tensor],
    names: &[&str],
    path: &Path,
) -> Result<State, WeightsError> {
    let file = path.display().to_string();
    let mut stored = weight::open(path).map_err(|e| at(&file, e))?;
    let (mut missing, mut misshapen, mut found) = (vec![], vec![], vec![]);
    for (name, like) in named(optimizer, weights, names).map_err(|e| at(&file, e))? {
        let like = like.array().map_err(|e| at(&file, e))?;
        match stored.remove(&name) {
            None => missing.push(name),
            Some(w) if w.dtype != like.dtype() || w.shape != like.shape() => {
                misshapen.push(format!("{name} is {}{:?}, not {like:?}", w.dtype, w.shape));
            }
            Some(w) => {
                let array = Array::from_weight(&w).and_then(|a| Arc::new(a).beside(like.device()));
                found.push(Tensor::from(array.map_err(|e| at(&file, e))?));
            }
        }
    }
    let unexpected: Vec<String> = stored.into_keys().collect();
    if !(missing.is_empty() && unexpected.is_empty() && misshapen.is_empty()) {
        return Err(WeightsError::Mismatch { file, missing, unexpected, misshapen });
    }
    let mut found = found.into_iter();
    let count = found.next().ok_or_else(|| at(&file, "has no count"))?;
    let mut slots = vec![];
    for w in weights {
        let n = wide(w).and_then(|w| optimizer.slots(&w)).map_err(|e| at(&file, e))?.len();
        slots.push(found.by_ref().take(n).collect());
    }
    Ok(State { count, slots })
}

//! Guards on inputs whose elements are indices.
use super::{Dim, Program};
use crate::call_error::CallError;
use serde::{Deserialize, Serialize};

/// An input whose elements index a dimension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexGuard {
    /// The input, of integers.
    pub input: usize,
    /// The size of the dimension.
    pub size: Dim,
    /// Whether negative indices count from the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wraps: bool,
    /// The op, its source location and the dimension.
    pub text: String,
}

impl IndexGuard {
    /// Whether elements of this type are integers.
    pub(crate) fn takes(dtype: &str) -> bool {
        matches!(dtype, "i8" | "ui8" | "i16" | "i32" | "i64")
    }
}

impl Program {
    /// Checks all guards on indices. `words` are the addresses of the inputs, each dense.
    ///
    /// # Safety
    /// Each address is that of its input, of `shape` elements of the program's dtype.
    pub(crate) unsafe fn check_indices(
        &self,
        words: &[u64],
        shape: impl Fn(usize) -> usize,
        size: impl Fn(Dim) -> Result<i64, CallError>,
    ) -> Result<(), CallError> {
        for guard in &self.indices {
            let (t, size) = (&self.inputs[guard.input], size(guard.size)?);
            let range = (if guard.wraps { -size } else { 0 }, size);
            let (word, count) = (words[guard.input], shape(guard.input));
            // SAFETY: the caller's.
            let outside = unsafe {
                match t.dtype.as_str() {
                    "i64" => outside::<i64>(word, count, range),
                    "i32" => outside::<i32>(word, count, range),
                    "i16" => outside::<i16>(word, count, range),
                    "ui8" => outside::<u8>(word, count, range),
                    _ => outside::<i8>(word, count, range),
                }
            };
            if let Some(index) = outside {
                let (input, text) = (t.name.clone(), guard.text.clone());
                return Err(CallError::Index { input, index, size, text });
            }
        }
        Ok(())
    }
}

/// The first element out of a range, if any.
///
/// # Safety
/// `word` is the address of `count` elements.
unsafe fn outside<T: Copy + Into<i64>>(
    word: u64,
    count: usize,
    (least, end): (i64, i64),
) -> Option<i64> {
    if count == 0 {
        return None;
    }
    // SAFETY: the caller's; tensors are aligned to their elements.
    let elements = unsafe { std::slice::from_raw_parts(word as *const T, count) };
    // Without a branch for each element, so that it is vectorised.
    let wrong = |i: T| (i.into() < least) | (i.into() >= end);
    if !elements.iter().fold(false, |any, i| any | wrong(*i)) {
        return None;
    }
    elements.iter().find(|i| wrong(**i)).map(|i| (*i).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_index_out_of_range() {
        let of =
            |all: &[i64], range| unsafe { outside::<i64>(all.as_ptr() as u64, all.len(), range) };
        assert_eq!(of(&[0, 4, 3], (0, 5)), None);
        assert_eq!(of(&[0, 5, -1], (0, 5)), Some(5));
        assert_eq!(of(&[0, -5, 4], (-5, 5)), None);
        assert_eq!(of(&[0, -6], (-5, 5)), Some(-6));
        assert_eq!(of(&[], (0, 0)), None);
        let bytes = [250u8, 1];
        let found = unsafe { outside::<u8>(bytes.as_ptr() as u64, 2, (0, 200)) };
        assert_eq!(found, Some(250));
    }
}

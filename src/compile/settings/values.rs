//! The values of options: what texts they take, and how these are read.
use super::Settings;
use crate::{model::AlignRandom, runtime::pool::MAX_THREADS};
use std::time::Duration;

/// What a value is not: the end of a message that starts with the option and the value.
pub(super) struct Invalid(pub String);

/// Remarks. Err: the value is invalid.
pub(super) type SetResult = Result<Vec<String>, Invalid>;

pub(super) const BOOL: &str = "true or false";

pub(super) const ALIGN: &str = "true, false, or a multiple of 256";

pub(super) const COUNT: &str = "a number from 1 on";

pub(super) const THREADS: &str = "a number from 1 to 256";

// Keeps the text above correct.
const _: () = assert!(MAX_THREADS == 256);
pub(super) const BYTES: &str = "a number of bytes, such as 500M or 4G";

pub(super) const SECONDS: &str = "a number of seconds above 0";

pub(super) const DEVICE: &str = "cpu, cuda (the first NVIDIA GPU) or cuda:<number>";

pub(super) const DYNAMIC: &str = "true, false or auto";

pub(super) const AUTOCAST: &str = "off, bf16 or f16";
pub(super) const FLOAT8: &str = "off, tensorwise or rowwise";

pub(super) const PASSES: &str = "a level (graph to linalg) or a pass's flag, a colon and passes, such as `prims: kiln-simplify,cse`; several with `;` between";

pub(super) fn expected(what: &str) -> Invalid {
    Invalid(format!(", not {what}"))
}

pub(super) fn invalid(e: impl std::fmt::Display) -> Invalid {
    Invalid(format!(": {e}"))
}

pub(super) fn flag(text: &str) -> Result<bool, Invalid> {
    match text {
        "true" | "1" | "on" => Ok(true),
        "false" | "0" | "off" => Ok(false),
        _ => Err(expected(BOOL)),
    }
}

pub(super) fn align(text: &str) -> Result<AlignRandom, Invalid> {
    let threads = text.parse().ok().filter(|n| *n >= 256 && n % 256 == 0);
    match (flag(text), threads) {
        (_, Some(threads)) => Ok(AlignRandom::Threads(threads)),
        (Ok(true), None) => Ok(AlignRandom::Device),
        (Ok(false), None) => Ok(AlignRandom::Off),
        (Err(_), None) => Err(expected(ALIGN)),
    }
}

pub(super) fn number(text: &str, most: usize, what: &str) -> Result<usize, Invalid> {
    text.parse().ok().filter(|n| (1..=most).contains(n)).ok_or_else(|| expected(what))
}

pub(super) fn seconds(text: &str) -> Result<Duration, Invalid> {
    let seconds = text
        .parse()
        .ok()
        .filter(|n: &f64| *n > 0.0)
        .and_then(|n| Duration::try_from_secs_f64(n).ok());
    seconds.ok_or_else(|| expected(SECONDS))
}

/// Sets a field.
pub(super) fn assign<T>(field: &mut T, value: Result<T, Invalid>) -> SetResult {
    *field = value?;
    Ok(vec![])
}

/// Parses a bool that enables a pass; false disables it.
pub(super) fn without(s: &mut Settings, pass: &str, text: &str) -> SetResult {
    let runs = flag(text)?;
    s.options.disable.retain(|p| p != pass);
    if !runs {
        s.options.disable.push(pass.into());
    }
    Ok(vec![])
}

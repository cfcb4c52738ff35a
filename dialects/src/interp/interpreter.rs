//! The configuration of a run, and its errors.
use crate::{
    error::{Kind, Result},
    ir::*,
    value::Tensor,
};
use std::{cell::RefCell, collections::HashMap, rc::Rc};

/// The rounding mode of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No rounding: floats stay f64.
    Exact,
    /// Each op rounds its result to its dtype, as eager PyTorch does.
    Rounded,
}

/// An error with the location chain of the op where it happened.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}{message}", if .locations.is_empty() { String::new() } else { format!("{}: ", .locations.join(" <- ")) })]
pub struct RunError {
    /// What is wrong.
    pub message: String,
    /// Where, innermost first.
    pub locations: Vec<String>,
    /// Whether the cause is an op or custom call that the interpreter does not support.
    pub unsupported: bool,
}

/// The error of a caller's function.
pub type OwnError = Box<dyn std::error::Error>;
/// A function registered under a `kiln.custom_call`'s name: inputs and `config` to results.
pub type ExternalFn<'a> = dyn Fn(&[Rc<Tensor>], Option<Attr>) -> Result<Vec<Tensor>, OwnError> + 'a;
/// Loads a global by name and source.
pub type GlobalSource<'a> = dyn Fn(&str, &str) -> Result<Tensor, OwnError> + 'a;

/// The configuration of a run.
pub struct Interpreter<'a> {
    /// Rounding.
    pub mode: Mode,
    /// Loads globals that have a source.
    pub globals: &'a GlobalSource<'a>,
    /// Custom calls by name.
    pub custom_calls: HashMap<String, Box<ExternalFn<'a>>>,
    /// Iteration limit of a `kiln.while`.
    pub max_iterations: usize,
    /// Cached results of the functions that compute globals (frozen weights).
    pub prepared: RefCell<HashMap<String, Vec<Rc<Tensor>>>>,
}

/// An error at an op.
pub(super) fn error(op: Op, message: impl Into<Error>) -> RunError {
    RunError {
        message: format!("'{}' {}", op.name(), message.into().message),
        locations: op.loc().chain(),
        unsupported: false,
    }
}

/// As [`error`], of what the interpreter does not run.
pub(super) fn unsupported(op: Op, message: impl Into<Error>) -> RunError {
    RunError { unsupported: true, ..error(op, message) }
}

/// As [`error`], at the op of the error, or else at this one.
pub(super) fn located(op: Op, e: Error) -> RunError {
    let e = e.or_at(op);
    let name = e.op.unwrap_or_else(|| op.name());
    RunError {
        message: format!("'{name}' {}", e.message),
        locations: e.loc.map_or_else(Vec::new, Loc::chain),
        unsupported: e.kind == Kind::Unsupported,
    }
}

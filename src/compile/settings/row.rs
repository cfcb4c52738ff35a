//! A row of the option table.
use super::{Settings, values::SetResult};

/// Scope of an option.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AppliesTo {
    /// Files and compiled functions.
    Both,
    /// Compiled functions alone.
    Functions,
}

/// An option.
pub(super) struct Row {
    pub name: &'static str,
    /// torch's name, if it differs.
    pub torch: Option<&'static str>,
    pub kind: &'static str,
    pub default: &'static str,
    pub variable: &'static str,
    pub applies_to: AppliesTo,
    pub summary: &'static str,
    pub set: fn(&mut Settings, &str) -> SetResult,
}

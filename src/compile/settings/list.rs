//! The options and modes as lists, for `kiln options` and the pages.
use super::{
    modes::MODES,
    row::{AppliesTo, Row},
    rows::ROWS,
};

/// An entry of [`list_options`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionInfo {
    /// Its name.
    pub name: &'static str,
    /// torch's name, if it differs.
    pub torch: Option<&'static str>,
    /// The values that it accepts.
    pub kind: &'static str,
    /// The default value.
    pub default: &'static str,
    /// A one-line description.
    pub summary: &'static str,
    /// The environment variable that sets it.
    pub variable: &'static str,
    /// Whether it also applies to files, not only to compiled functions.
    pub files: bool,
}

/// All options, those that also apply to files first.
pub fn list_options() -> Vec<OptionInfo> {
    let info = |r: &Row| OptionInfo {
        name: r.name,
        torch: r.torch,
        kind: r.kind,
        default: r.default,
        summary: r.summary,
        variable: r.variable,
        files: r.applies_to == AppliesTo::Both,
    };
    ROWS.iter().map(info).collect()
}

/// The modes, each with the options that it sets.
pub fn list_mode_options() -> Vec<(&'static str, &'static [(&'static str, &'static str)])> {
    MODES.to_vec()
}

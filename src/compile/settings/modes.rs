//! The modes, which are sets of options.

/// The modes and the options that they set.
pub(super) const MODES: &[(&str, &[(&str, &str)])] = &[
    ("default", &[]),
    ("reduce-overhead", &[("cudagraphs", "true")]),
    ("max-autotune", &[("max_autotune", "true"), ("cudagraphs", "true")]),
    ("max-autotune-no-cudagraphs", &[("max_autotune", "true")]),
];

//! Remarks of a compiled function: recompilations, graph breaks, dynamic shapes. Each is stored
//! with the function and emitted to `tracing`.
use crate::runtime::guards::Guards;
use std::{fmt, panic::Location};

/// Topic of a remark. `tracing` targets have these names, such as `kiln::recompiles`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// A recompilation after a guard failure.
    Recompiles,
    /// A size became symbolic, or was specialised.
    Dynamic,
    /// A graph break.
    GraphBreaks,
    /// The recompilation limit was reached.
    CacheLimit,
    /// An option without effect.
    Options,
    /// A failure of background compilation.
    Asynchronous,
    /// Donated arguments whose memory no result has.
    Donation,
    /// Arguments that [`autocast`](crate::autocast) converts.
    Autocast,
}

impl Topic {
    fn name(self) -> &'static str {
        match self {
            Topic::Recompiles => "recompiles",
            Topic::Dynamic => "dynamic",
            Topic::GraphBreaks => "graph_breaks",
            Topic::CacheLimit => "cache_limit",
            Topic::Options => "options",
            Topic::Asynchronous => "asynchronous",
            Topic::Donation => "donation",
            Topic::Autocast => "autocast",
        }
    }
}

/// A remark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The topic.
    pub topic: Topic,
    /// The function's name.
    pub function: String,
    /// What happened, and how to fix it.
    pub message: String,
    /// The source location: of the call, or of an op.
    pub location: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {} ({})", self.location, self.function, self.message, self.topic.name())
    }
}

/// `file:line:column`.
pub(super) fn location(at: &Location<'_>) -> String {
    format!("{}:{}:{}", at.file(), at.line(), at.column())
}

impl Remark {
    /// Emits it to `tracing`; reaching the recompilation limit is a warning.
    pub(super) fn emit(&self) {
        match self.topic {
            Topic::Recompiles => tracing::info!(target: "kiln::recompiles", "{self}"),
            Topic::Dynamic => tracing::info!(target: "kiln::dynamic", "{self}"),
            Topic::GraphBreaks => tracing::info!(target: "kiln::graph_breaks", "{self}"),
            Topic::CacheLimit => tracing::warn!(target: "kiln::recompiles", "{self}"),
            Topic::Options => tracing::info!(target: "kiln::options", "{self}"),
            Topic::Asynchronous => tracing::warn!(target: "kiln::recompiles", "{self}"),
            Topic::Autocast => tracing::info!(target: "kiln::autocast", "{self}"),
            Topic::Donation => tracing::info!(target: "kiln::donation", "{self}"),
        }
    }
}

/// Emits a new program's guards and symbolic sizes to `tracing`.
pub(super) fn emit_guards(function: &str, guards: &Guards) {
    tracing::info!(target: "kiln::guards", "{function}:\n{guards}");
    for s in &guards.symbols {
        let (input, dim) = (guards.names.get(s.input).map_or("an argument", String::as_str), s.dim);
        let most = s.max.map_or("any".into(), |m| m.to_string());
        tracing::info!(target: "kiln::dynamic", "{function}: dimension {dim} of {input} is the symbol {}, {} to {most}", s.name, s.min);
    }
}

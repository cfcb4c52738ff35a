//! What a compiled function has to say: why it compiled again, ended a graph, gave up a symbol.
//! Kept with the function, and told to `tracing`.
use crate::runtime::guards::Guards;
use std::{fmt, panic::Location};

/// What a remark is about; `tracing` targets have these names, such as `kiln::recompiles`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Compiled once more, since a guard failed.
    Recompiles,
    /// A size became a symbol, or had to stay a number.
    Dynamic,
    /// A graph ended before the function did.
    GraphBreaks,
    /// No more is compiled.
    CacheLimit,
    /// An option that changes nothing here.
    Options,
    /// What another thread met that compiled.
    Asynchronous,
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
        }
    }
}

/// A remark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// What it is about.
    pub topic: Topic,
    /// The function's name.
    pub function: String,
    /// What happened, and what can be done about it.
    pub message: String,
    /// The line that it is about: the call's, or that of an op.
    pub place: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {} ({})", self.place, self.function, self.message, self.topic.name())
    }
}

/// `file:line:column`.
pub(super) fn place(at: &Location<'_>) -> String {
    format!("{}:{}:{}", at.file(), at.line(), at.column())
}

impl Remark {
    /// Tells `tracing`; a function that is no longer compiled is a warning.
    pub(super) fn tell(&self) {
        match self.topic {
            Topic::Recompiles => tracing::info!(target: "kiln::recompiles", "{self}"),
            Topic::Dynamic => tracing::info!(target: "kiln::dynamic", "{self}"),
            Topic::GraphBreaks => tracing::info!(target: "kiln::graph_breaks", "{self}"),
            Topic::CacheLimit => tracing::warn!(target: "kiln::recompiles", "{self}"),
            Topic::Options => tracing::info!(target: "kiln::options", "{self}"),
            Topic::Asynchronous => tracing::warn!(target: "kiln::recompiles", "{self}"),
        }
    }
}

/// Tells `tracing` what a new program is right for, and which sizes are symbols there.
pub(super) fn tell_guards(function: &str, guards: &Guards) {
    tracing::info!(target: "kiln::guards", "{function}:\n{guards}");
    for s in &guards.symbols {
        let (input, dim) = (guards.names.get(s.input).map_or("an argument", String::as_str), s.dim);
        let most = s.max.map_or("any".into(), |m| m.to_string());
        tracing::info!(target: "kiln::dynamic", "{function}: dimension {dim} of {input} is the symbol {}, {} to {most}", s.name, s.min);
    }
}

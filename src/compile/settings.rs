//! Settings of compiled functions and files. One table defines the API, the environment variables,
//! `--option`, and the printed lists.
mod apply;
mod files;
mod list;
mod modes;
mod passes;
mod row;
mod rows;
mod values;

pub use list::{OptionInfo, list_mode_options, list_options};

use crate::{
    model::Options,
    runtime::{DeviceId, cuda},
};

/// Settings of a compiled function.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The function's name in remarks.
    pub name: String,
    /// The mode; see [`list_mode_options`].
    pub mode: String,
    /// Dynamic shapes: all sizes, no sizes, or (`None`) those that change.
    pub dynamic: Option<bool>,
    /// Whether a graph break is an error.
    pub fullgraph: bool,
    /// Whether to freeze weights into the program, for packing and constant folding.
    pub freeze: bool,
    /// Whether compilation is disabled.
    pub disable: bool,
    /// The backend; see [`list_backends`](crate::list_backends).
    pub backend: String,
    /// Maximum number of programs; at the limit, calls run op by op.
    pub cache_size_limit: usize,
    /// Whether to break the graph after every op.
    pub each_op: bool,
    /// Whether to compile in the background; calls run op by op meanwhile.
    pub asynchronous: bool,
    /// Whether results may be written to the memory of arguments that nothing else holds.
    pub donate: bool,
    /// Whether to keep captured graphs as text, for [`explain`](super::Compiled::explain).
    pub keep_graphs: bool,
    /// Options of the backend.
    pub options: Options,
}

impl Settings {
    /// The defaults without the environment.
    pub(super) fn plain() -> Settings {
        Settings {
            name: "function".into(),
            mode: "default".into(),
            dynamic: None,
            fullgraph: false,
            freeze: false,
            disable: false,
            backend: "kiln".into(),
            cache_size_limit: 8,
            each_op: false,
            asynchronous: false,
            donate: true,
            keep_graphs: false,
            options: Options::default(),
        }
    }
    /// Adjusts options to the device; returns a remark about options without effect on it.
    pub fn adapt_to_device(&mut self) -> Option<String> {
        if self.options.device == DeviceId::Host && self.options.mode != cuda::Mode::Default {
            (self.options.mode, self.options.reuse) = (cuda::Mode::Default, true);
            let why = "a program is one parallel region already; results are written where earlier ones were that nobody holds any more";
            let remark = format!("cudagraphs makes no graph on the host: {why}");
            tracing::info!(target: "kiln::cudagraphs", "{}: {remark}", self.name);
            return Some(remark);
        }
        None
    }
}

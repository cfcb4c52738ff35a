//! Settings of compiled functions and files. One table defines the API, the environment variables,
//! `--option`, and the printed lists.
mod rows;

use crate::{
    Error,
    lowering::CancellationToken,
    model::{CachePolicy, Options},
    passes::names::hint,
    runtime::{DeviceId, cache, cuda},
};
use rows::{AppliesTo, Invalid, MODES, ROWS, Row};
use std::{ffi::OsString, sync::OnceLock};

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
    /// Whether to keep captured graphs as text, for [`explain`](super::Compiled::explain).
    pub keep_graphs: bool,
    /// Options of the backend.
    pub options: Options,
}

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

/// Looks up a row. Err: no such option.
fn row(name: &str) -> Result<&'static Row, Error> {
    ROWS.iter().find(|r| r.name == name || r.torch == Some(name)).ok_or_else(|| {
        let all = ROWS.iter().flat_map(|r| [Some(r.name), r.torch]).flatten();
        Error::Setting(format!("there is no option '{name}'{}", hint(name, all)))
    })
}

/// The defaults with the environment applied. Errors are not cached, so that fixing the environment
/// helps.
static DEFAULTS: OnceLock<Settings> = OnceLock::new();

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
            keep_graphs: false,
            options: Options::default(),
        }
    }
    /// The defaults with the environment as it was on first use in the process. Err: a variable
    /// with an invalid value.
    pub fn new() -> Result<Settings, Error> {
        let mut settings = match DEFAULTS.get() {
            Some(known) => known.clone(),
            None => {
                let read = Settings::from_env()?;
                DEFAULTS.get_or_init(|| read).clone()
            }
        };
        // A new token: clones of one token are cancelled together.
        settings.options.cancellation = CancellationToken::new();
        Ok(settings)
    }
    /// The defaults with the current environment. Err: a variable with an invalid value.
    pub fn from_env() -> Result<Settings, Error> {
        Settings::of_variables(&|name| std::env::var_os(name))
    }
    /// The defaults with variables applied; an empty variable counts as unset.
    fn of_variables(read: &dyn Fn(&str) -> Option<OsString>) -> Result<Settings, Error> {
        let mut settings = Settings::plain();
        settings.options.cache =
            cache::default_dir(None).map_or(CachePolicy::Off, CachePolicy::Dir);
        for row in ROWS {
            let Some(value) = read(row.variable).filter(|v| !v.is_empty()) else { continue };
            let value = value
                .to_str()
                .ok_or_else(|| Error::Setting(format!("{} is not UTF-8", row.variable)))?;
            for remark in settings.apply(row, row.variable, value)? {
                tracing::info!(target: "kiln::options", "{remark}");
            }
        }
        Ok(settings)
    }
    /// Sets a row's option, called `what` in messages. Returns remarks. Err: invalid value.
    fn apply(&mut self, row: &Row, what: &str, value: &str) -> Result<Vec<String>, Error> {
        (row.set)(self, value)
            .map_err(|Invalid(want)| Error::Setting(format!("{what} is '{value}'{want}")))
    }
    /// Sets an option by name. Returns remarks if it has no effect. Err: no such option, or invalid
    /// value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<Vec<String>, Error> {
        self.apply(row(name)?, &format!("option {name}"), value)
    }
    /// As [`Settings::set`], for a file: a remark reports an option that applies to functions only.
    pub fn set_for_file(&mut self, name: &str, value: &str) -> Result<Vec<String>, Error> {
        let mut remarks = self.set(name, value)?;
        if row(name)?.applies_to == AppliesTo::Functions {
            remarks = vec![format!(
                "option {name}={value} changes nothing: it is for compiled functions, and this is a file"
            )];
        }
        Ok(remarks)
    }
    /// Sets a mode's options, as [`Settings::set`]; replaces the previous mode's.
    pub fn set_mode(&mut self, mode: &str) -> Result<Vec<String>, Error> {
        let Some((mode, options)) = MODES.iter().find(|(m, _)| *m == mode) else {
            let names: Vec<&str> = MODES.iter().map(|(m, _)| *m).collect();
            let hint = hint(mode, names.iter().copied());
            let names = names.join(", ");
            return Err(Error::Setting(format!(
                "there is no mode '{mode}'{hint} (modes: {names})"
            )));
        };
        let before = MODES.iter().find(|(m, _)| *m == self.mode).map_or(&[][..], |(_, sets)| sets);
        for (name, _) in before.iter().filter(|set| !options.contains(set)) {
            self.set(name, "false")?;
        }
        self.mode = mode.to_string();
        let mut remarks = vec![];
        for (name, value) in *options {
            remarks.extend(self.set(name, value)?.into_iter().map(|r| format!("mode {mode}: {r}")));
        }
        Ok(remarks)
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
    /// Options for compiling a file. The host has no CUDA graphs, since a program is one parallel
    /// region: requesting only graphs is an error at link time, while max-autotune ignores them.
    pub fn for_file(self) -> Options {
        let mut options = self.options;
        if (options.max_autotune || self.mode == "max-autotune") && options.device == DeviceId::Host
        {
            options.mode = cuda::Mode::Default;
        }
        options
    }
}

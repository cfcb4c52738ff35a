//! Options of a compiled function and of a compiled file: one table, from which come the API, the
//! environment variables, `--option` of the command line, and the lists that people read.
mod rows;

use crate::{
    Error,
    lowering::Stop,
    model::{CachePolicy, Options},
    passes::names::hint,
    runtime::{Place, cache, cuda},
};
use rows::{MODES, Of, ROWS, Row};
use std::{ffi::OsString, sync::OnceLock};

/// How a function is compiled and called.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What remarks call the function.
    pub name: String,
    /// The mode, of [`list_mode_options`].
    pub mode: String,
    /// Whether sizes are symbols: none for those that change.
    pub dynamic: Option<bool>,
    /// Whether a graph break is an error.
    pub fullgraph: bool,
    /// Whether weights become part of the program, to be packed and folded.
    pub freeze: bool,
    /// Whether nothing is compiled.
    pub disable: bool,
    /// The backend's name, of [`list_backends`](crate::list_backends).
    pub backend: String,
    /// How many programs a function has at most; then it runs op by op.
    pub cache_size_limit: usize,
    /// Whether ops that are noted between reads run one by one, and all functions so.
    pub each_op: bool,
    /// Whether another thread compiles, and calls run op by op until it is done.
    pub asynchronous: bool,
    /// Whether captured graphs are kept as text, for [`explain`](super::Compiled::explain).
    pub keep_graphs: bool,
    /// What the backend is told.
    pub machine: Options,
}

/// A line of [`list_options`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionInfo {
    /// Its name.
    pub name: &'static str,
    /// What torch calls it, if it has it under another name.
    pub torch: Option<&'static str>,
    /// What values it takes.
    pub kind: &'static str,
    /// What it is if nothing sets it.
    pub default: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// The environment variable that sets it.
    pub variable: &'static str,
    /// Whether it counts for files, too; otherwise for compiled functions alone.
    pub files: bool,
}

/// All options, those for files and functions first.
pub fn list_options() -> Vec<OptionInfo> {
    let info = |r: &Row| OptionInfo {
        name: r.name,
        torch: r.torch,
        kind: r.kind,
        default: r.default,
        summary: r.summary,
        variable: r.variable,
        files: r.of == Of::Both,
    };
    ROWS.iter().map(info).collect()
}

/// The modes, each with the options that it sets.
pub fn list_mode_options() -> Vec<(&'static str, &'static [(&'static str, &'static str)])> {
    MODES.to_vec()
}

/// The row of that name. Err: there is none.
fn row(name: &str) -> Result<&'static Row, Error> {
    ROWS.iter().find(|r| r.name == name || r.torch == Some(name)).ok_or_else(|| {
        let all = ROWS.iter().flat_map(|r| [Some(r.name), r.torch]).flatten();
        Error::Setting(format!("there is no option '{name}'{}", hint(name, all)))
    })
}

/// The defaults, with what the environment says. What is wrong there is not kept: somebody may mend
/// it.
static DEFAULTS: OnceLock<Settings> = OnceLock::new();

impl Settings {
    /// Without the environment.
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
            machine: Options::default(),
        }
    }
    /// The defaults, with what the environment said when a process asked first. Err: a variable
    /// whose value is none.
    pub fn new() -> Result<Settings, Error> {
        let mut settings = match DEFAULTS.get() {
            Some(known) => known.clone(),
            None => {
                let read = Settings::from_env()?;
                DEFAULTS.get_or_init(|| read).clone()
            }
        };
        // Clones of one are ended together.
        settings.machine.stop = Stop::new();
        Ok(settings)
    }
    /// The defaults, with what the environment says now. Err: a variable whose value is none.
    pub fn from_env() -> Result<Settings, Error> {
        Settings::of_variables(&|name| std::env::var_os(name))
    }
    /// The defaults, with what variables say; an empty one is as good as none.
    fn of_variables(read: &dyn Fn(&str) -> Option<OsString>) -> Result<Settings, Error> {
        let mut settings = Settings::plain();
        settings.machine.cache =
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
    /// Sets the option of a row; `what` it is called. Gives remarks. Err: it has no such value.
    fn apply(&mut self, row: &Row, what: &str, value: &str) -> Result<Vec<String>, Error> {
        (row.set)(self, value).map_err(|want| Error::Setting(format!("{what} is '{value}'{want}")))
    }
    /// Sets an option by name. Gives remarks if that changes nothing. Err: there is no such option,
    /// or it has no such value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<Vec<String>, Error> {
        self.apply(row(name)?, &format!("option {name}"), value)
    }
    /// As [`Settings::set`], for a file: an option that counts for compiled functions alone is told
    /// as a remark.
    pub fn set_for_file(&mut self, name: &str, value: &str) -> Result<Vec<String>, Error> {
        let mut remarks = self.set(name, value)?;
        if row(name)?.of == Of::Functions {
            remarks = vec![format!(
                "option {name}={value} changes nothing: it is for compiled functions, and this is a file"
            )];
        }
        Ok(remarks)
    }
    /// Sets a mode by name, as [`Settings::set`] its options, in place of those of the mode before.
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
    /// The device as the options say, and a remark on options that are for another one.
    pub fn settle(&mut self) -> Option<String> {
        if self.machine.device == Place::Host && self.machine.mode != cuda::Mode::Default {
            (self.machine.mode, self.machine.reuse) = (cuda::Mode::Default, true);
            let why = "a program is one parallel region already; results are written where earlier ones were that nobody holds any more";
            let remark = format!("cudagraphs makes no graph on the host: {why}");
            tracing::info!(target: "kiln::cudagraphs", "{}: {remark}", self.name);
            return Some(remark);
        }
        None
    }
    /// What a file is compiled with. On the host a program is one parallel region already: who asks
    /// for nothing but graphs is told when it is linked that there are none, and max-autotune goes
    /// without.
    pub fn for_file(self) -> Options {
        let mut options = self.machine;
        if (options.max_autotune || self.mode == "max-autotune") && options.device == Place::Host {
            options.mode = cuda::Mode::Default;
        }
        options
    }
}

//! Settings from the environment, and by the names of options and modes.
use super::{Settings, modes::MODES, row::Row, rows::ROWS, values::Invalid};
use crate::{
    Error, lowering::CancellationToken, model::CachePolicy, passes::names::hint, runtime::cache,
};
use std::{ffi::OsString, sync::OnceLock};

/// Looks up a row. Err: no such option.
pub(super) fn row(name: &str) -> Result<&'static Row, Error> {
    ROWS.iter().find(|r| r.name == name || r.torch == Some(name)).ok_or_else(|| {
        let all = ROWS.iter().flat_map(|r| [Some(r.name), r.torch]).flatten();
        Error::Setting(format!("there is no option '{name}'{}", hint(name, all)))
    })
}

/// The defaults with the environment applied. Errors are not cached, so that fixing the environment
/// helps.
static DEFAULTS: OnceLock<Settings> = OnceLock::new();

impl Settings {
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
}

//! Settings of files, as options of the compiler and the runtime.
use super::{Settings, apply::row, row::AppliesTo};
use crate::{
    Error,
    model::Options,
    runtime::{DeviceId, cuda},
};

impl Settings {
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

impl Options {
    /// The defaults, overridden by the environment: the variables of all options of
    /// [`list_options`](crate::list_options) that apply to files (`docs/options.md`). The cache
    /// defaults to the XDG cache directory. Err: a variable with an invalid value, with the
    /// accepted ones.
    pub fn from_env() -> Result<Options, Error> {
        Settings::from_env().map(Settings::for_file)
    }

    /// As [`Options::from_env`], with options set by name (`mode` as well). Err: no such option, or
    /// an invalid value.
    pub fn named<'n>(
        given: impl IntoIterator<Item = (&'n str, &'n str)>,
    ) -> Result<Options, Error> {
        let mut settings = Settings::from_env()?;
        for (name, value) in given {
            if name == "mode" {
                settings.set_mode(value)?;
            } else {
                settings.set(name, value)?;
            }
        }
        Ok(settings.for_file())
    }
}

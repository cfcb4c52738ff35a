//! `kiln cache`: inspects, clears, exports and imports the compile cache.
use super::{CliError, File, OptionFlags};
use crate::{
    Error, Exit,
    model::CachePolicy,
    runtime::{Remark, Store},
};
use clap::Subcommand;

#[derive(clap::Args)]
pub struct Cache {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    option_flags: OptionFlags,
}

#[derive(Subcommand)]
enum Action {
    /// Prints the cache directory and its size
    Stat,
    /// Deletes all entries
    Clear,
    /// Exports all entries to one file
    Export {
        /// The file (.kpkg)
        file: File,
    },
    /// Imports an exported file; it contains code, so import only what you trust
    Import {
        /// The file (.kpkg)
        file: File,
    },
}

fn cache_error(r: Remark) -> CliError {
    CliError::usage(r.to_string())
}

impl Cache {
    pub fn run(&self) -> Result<Exit, CliError> {
        let options = self.option_flags.settings()?.for_file();
        let CachePolicy::Dir(dir) = &options.cache else {
            return Err(CliError::usage(
                "there is no cache: KILN_CACHE_DIR is off, or there is no home folder",
            ));
        };
        let store = Store::open(dir).map_err(cache_error)?;
        match &self.action {
            Action::Stat => {
                let (programs, kernels) = store.count().map_err(cache_error)?;
                println!("{}, at most {} KiB", dir.display(), options.cache_bytes >> 10);
                println!("{} programs, {} KiB", programs.entries, programs.bytes >> 10);
                println!("{} kernels, {} KiB", kernels.entries, kernels.bytes >> 10);
            }
            Action::Clear => println!("{} KiB freed", store.trim(0).map_err(cache_error)? >> 10),
            Action::Export { file } => {
                println!("{}: {} entries", file.display(), store.export(file).map_err(Error::from)?)
            }
            Action::Import { file } => {
                println!("{} new entries", store.import(file).map_err(Error::from)?);
                store.trim(options.cache_bytes).map_err(cache_error)?;
            }
        }
        Ok(Exit::Success)
    }
}

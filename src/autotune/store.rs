//! The persistent table of measured schedules, shared by all processes: a file, appended to under a
//! file lock.
use super::{Kernels, MeasureOptions, lock_measurements, measurable, split_k::SplitKCandidates};
use crate::{
    Error, Model, Options,
    lowering::{Schedules, Target, driver::compile::CompileError},
    model::{CachePolicy, Times, random_inputs},
    runtime::{Store, cuda::libraries, file, library_call::LibraryCall},
};
use sha2::{Digest, Sha256};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    time::Instant,
};

/// File name in the cache folder.
const FILE: &str = "autotune.txt";
/// Size limit: at about 200 bytes a line it holds 300,000 kernels.
pub const MAX_TABLE: u64 = 64 << 20;

/// A table and its file.
#[derive(Clone, Debug, Default)]
pub struct ScheduleStore {
    path: Option<PathBuf>,
    /// Measured schedules.
    pub table: Schedules,
}

fn fail<E: ToString>(path: &Path) -> impl Fn(E) -> Error + '_ {
    |e| Error::File { file: path.display().to_string(), reason: e.to_string() }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

impl ScheduleStore {
    /// Reads the table of [`Options::schedules`]; with [`Options::max_autotune`] it defaults to the
    /// one in the cache folder. Err: the file cannot be read or parsed.
    pub fn of(options: &Options) -> Result<ScheduleStore, Error> {
        let own = match &options.cache {
            CachePolicy::Dir(dir) if options.max_autotune => Some(dir.join(FILE)),
            _ => None,
        };
        let Some(path) = options.schedules.clone().or(own) else {
            return Ok(ScheduleStore::default());
        };
        // A shared lock excludes writers.
        let read = file::open(&path).and_then(|f| {
            f.lock_shared()?;
            let mut text = String::new();
            f.take(MAX_TABLE).read_to_string(&mut text).map(|_| text)
        });
        let text = match read {
            Err(e) if e.kind() == io::ErrorKind::NotFound && options.max_autotune => String::new(),
            other => other.map_err(fail(&path))?,
        };
        let table = Schedules::parse(&text).map_err(fail(&path))?;
        Ok(ScheduleStore { path: Some(path), table })
    }
    /// Merges new entries into the file, keeping what other processes added since.
    pub fn add(&self, new: &Schedules) -> Result<(), Error> {
        let Some(path) = &self.path else { return Ok(()) };
        let write = || -> io::Result<Result<(), Error>> {
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            let mut file = open(path)?;
            file.lock()?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            let mut all = match Schedules::parse(&text) {
                Ok(all) => all,
                Err(e) => return Ok(Err(fail(path)(e))),
            };
            all.merge(new);
            file.rewind()?;
            let text = all.to_string();
            file.write_all(text.as_bytes())?;
            file.set_len(text.len() as u64).map(Ok)
        };
        write().map_err(fail(path)).flatten()
    }
}

/// A program's kernels as the cache stores them: keys, and whether each can be measured.
struct KernelList(Vec<(String, bool)>);

impl KernelList {
    fn read(bytes: &[u8]) -> Option<KernelList> {
        let line = |l: &str| Some((l.get(1..)?.to_string(), l.starts_with('+')));
        std::str::from_utf8(bytes).ok()?.lines().map(line).collect::<Option<_>>().map(KernelList)
    }
    fn text(&self) -> String {
        self.0
            .iter()
            .map(|(key, timed)| format!("{}{key}\n", if *timed { '+' } else { '-' }))
            .collect()
    }
}

/// Autotunes the program's kernels that the table lacks. Returns the table and the program's cache
/// key: `base` plus the schedules of its kernels. Failing to measure is not an error: the kernels
/// keep their default schedules, and `times` records the reason. Err: the model does not compile,
/// or compilation was cancelled.
pub fn autotuned(
    model: &Model,
    options: &Options,
    target: &Target,
    store: Option<&Store>,
    base: &str,
    times: &mut Times,
) -> Result<(Schedules, String), Error> {
    let store_file = ScheduleStore::of(options)?;
    let (mut table, place) = (store_file.table.clone(), format!("kernels of {base}"));
    let kernel_list =
        store.and_then(|s| s.get(&place).ok().flatten()).and_then(|bytes| KernelList::read(&bytes));
    let here = measurable(options, target);
    let lacks = |l: &KernelList, table: &Schedules| {
        l.0.iter().filter(|(k, timed)| *timed && !table.has(k, target)).count()
    };
    let mut say = |why: String| {
        tracing::info!(target: "kiln::autotune", "{why}");
        times.tuning.push(why);
    };
    let kernel_list = match kernel_list {
        Some(l) if here.is_err() || lacks(&l, &table) == 0 => l,
        _ => {
            let products = SplitKCandidates::of(model, options, target)?;
            let list = |kernels: &Kernels| {
                let products = products.keys().map(|k| (k.to_string(), true));
                KernelList(
                    products
                        .chain(kernels.keys().map(|(k, timed)| (k.to_string(), timed)))
                        .collect(),
                )
            };
            let mut kernels = Kernels::of(model, options, target, &table)?;
            if here.is_ok() && lacks(&list(&kernels), &table) > 0 {
                let _one = lock_measurements();
                // Another thread may have measured the same kernels meanwhile.
                table = ScheduleStore::of(options)?.table;
                let settings = MeasureOptions {
                    deadline: Instant::now() + options.autotune_budget,
                    cancellation: options.cancellation.clone(),
                    inputs: &|p| Ok(random_inputs(p)?),
                    progress: &|done, total, name| model.report_progress(done, total, name),
                };
                let autotuned =
                    products.measure(options, target, &settings, &mut table).and_then(|()| {
                        // Split-K factors change the set of kernels.
                        kernels = Kernels::of(model, options, target, &table)?;
                        kernels.measure(options, target, &settings, &mut table)
                    });
                match autotuned {
                    Err(e @ Error::Compile(CompileError::Cancelled(_))) => return Err(e),
                    Err(e) => say(format!("measuring schedules ended early: {e}")),
                    Ok(_) => {}
                }
                let left = lacks(&list(&kernels), &table);
                if left > 0 {
                    say(format!(
                        "{left} kernels were not measured in {:.0} s and have their default schedules",
                        options.autotune_budget.as_secs_f64()
                    ));
                }
                if let Err(e) = store_file.add(&table) {
                    say(format!("what was measured is not kept: {e}"));
                }
            }
            let kernel_list = list(&kernels);
            if let Some(store) = store {
                // A failed cache write has been logged.
                let _ = store.put(&place, kernel_list.text().as_bytes());
            }
            kernel_list
        }
    };
    match here {
        Err(why) => say(why.to_string()),
        Ok(()) if matches!(target, Target::Cuda { .. }) => {
            for library in LibraryCall::LIBRARIES.into_iter().filter(|l| !libraries::present(l)) {
                say(format!(
                    "no calls of {library} were tried: looked for {}",
                    libraries::searched(library)
                ));
            }
        }
        Ok(()) => {}
    }
    let mut sha = Sha256::new();
    sha.update(base);
    kernel_list
        .0
        .iter()
        .filter_map(|(k, _)| Some((k, table.get(k, target)?)))
        .for_each(|(k, schedule)| sha.update(format!("{k} {schedule}\n")));
    let key = format!(
        "program_{}",
        sha.finalize().iter().take(16).map(|b| format!("{b:02x}")).collect::<String>()
    );
    Ok((table, key))
}

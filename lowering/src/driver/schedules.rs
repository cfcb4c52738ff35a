//! The schedule table: autotuned schedules by kernel, as text that can be stored, shipped and
//! merged, and the candidates that autotuning tries.
//!
//! A line has a kernel's key, the target, microseconds and the schedule, separated by tabs. Of
//! several lines for one kernel the fastest counts, so concatenated tables form one table. The key
//! identifies the kernel at `linalg`, without value names, so equal kernels of different models
//! share a line.
use crate::{
    analysis::kernels_of,
    strategies::{Device, table::find},
    target::{Target, launch::LIBRARY},
};
use kiln_dialects::ir::*;
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fmt};

/// The table: (key, target) to microseconds and the schedule's text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedules(BTreeMap<(String, String), (f64, String)>);

/// The key of a kernel's function at `linalg`.
pub fn key(func: Op) -> String {
    let name = func.symbol();
    func.set_attr("sym_name", Attr::string(func.ctx(), "kernel"));
    let text = func.print(PrintOptions { local_scope: true, ..Default::default() });
    if let Some(name) = name {
        func.set_attr("sym_name", Attr::string(func.ctx(), &name));
    }
    Sha256::digest(text).iter().take(12).map(|b| format!("{b:02x}")).collect()
}

impl Schedules {
    /// Parses a table; empty lines and lines that begin with # are skipped. Err: an invalid line,
    /// with its number.
    pub fn parse(text: &str) -> Result<Schedules, String> {
        let mut all = Schedules::default();
        for (n, line) in
            text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'))
        {
            let fields: Vec<&str> = line.split('\t').collect();
            let [kernel, target, micros, schedule] = fields[..] else {
                return Err(format!(
                    "line {} has {} fields and not 4: a kernel, a target, microseconds, a schedule",
                    n + 1,
                    fields.len()
                ));
            };
            let micros = micros.parse().ok().filter(|t: &f64| *t >= 0.0);
            let micros =
                micros.ok_or_else(|| format!("line {} has no number of microseconds", n + 1))?;
            all.insert(kernel, target, micros, schedule);
        }
        Ok(all)
    }
    /// Inserts a schedule, unless the table has a faster one for the kernel.
    pub fn insert(&mut self, kernel: &str, target: &str, micros: f64, schedule: &str) {
        // Rounded to the digits of the text form.
        let (place, micros) =
            ((kernel.to_string(), target.to_string()), (micros * 1e3).round() / 1e3);
        if self.0.get(&place).is_none_or(|(old, _)| micros < *old) {
            self.0.insert(place, (micros, schedule.to_string()));
        }
    }
    /// Merges another table; the faster schedule of each kernel wins.
    pub fn merge(&mut self, other: &Schedules) {
        other.0.iter().for_each(|((kernel, target), (micros, schedule))| {
            self.insert(kernel, target, *micros, schedule)
        });
    }
    /// The schedule of a kernel, if the table has one.
    pub fn get(&self, kernel: &str, target: &Target) -> Option<&str> {
        self.0.get(&(kernel.to_string(), target.to_string())).map(|(_, s)| s.as_str())
    }
    /// All entries of a target: key and schedule.
    pub fn of(&self, target: &Target) -> impl Iterator<Item = (&str, &str)> {
        let target = target.to_string();
        self.0
            .iter()
            .filter(move |((_, t), _)| *t == target)
            .map(|((k, _), (_, s))| (k.as_str(), s.as_str()))
    }
    /// Whether the table has a schedule for a kernel.
    pub fn has(&self, kernel: &str, target: &Target) -> bool {
        self.0.contains_key(&(kernel.to_string(), target.to_string()))
    }
    /// Number of schedules.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Attaches the schedules to a module's kernels at `linalg`; returns the number of kernels.
    /// Err: an entry is not a schedule.
    pub fn apply(&self, module: Op, target: &Target) -> Result<usize> {
        let (mut count, target) = (0, target.to_string());
        if self.is_empty() {
            return Ok(0);
        }
        for func in kernels_of(module).into_iter().filter(|f| f.attr("kiln.schedule").is_none()) {
            let Some((_, text)) = self.0.get(&(key(func), target.clone())) else { continue };
            let attr = Attr::parse(func.ctx(), text).filter(|a| a.as_schedule().is_some());
            set(func, attr.ok_or_else(|| format!("'{text}' is no schedule"))?);
            count += 1;
        }
        Ok(count)
    }
}

impl fmt::Display for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|((kernel, target), (micros, schedule))| {
            writeln!(f, "{kernel}\t{target}\t{micros:.3}\t{schedule}")
        })
    }
}

/// Attaches a schedule to a kernel's function; its library entry becomes a separate attribute.
pub fn set(func: Op, schedule: Attr) {
    let (c, parts) = (func.ctx(), schedule.as_schedule());
    let Some((strategy, entries)) = parts.and_then(|(strategy, d)| Some((strategy, d.entries()?)))
    else {
        return func.set_attr("kiln.schedule", schedule);
    };
    let (library, own): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|(name, _)| name == LIBRARY_ENTRY);
    let own: Vec<(&str, Attr)> = own.iter().map(|(n, a)| (n.as_str(), *a)).collect();
    func.set_attr("kiln.schedule", Attr::schedule(c, &strategy, &own));
    library.iter().for_each(|(_, name)| func.set_attr(LIBRARY, *name));
}

/// The schedule with a library entry added, for each library that its strategy may call: (library,
/// schedule). Whether the library supports the kernel is only known at scheduling.
pub fn by_library(schedule: Attr, c: Ctx) -> Vec<(&'static str, Attr)> {
    let Some((strategy, dictionary)) = schedule.as_schedule() else { return vec![] };
    let entries = dictionary.entries().unwrap_or_default();
    let with = |name: &'static str| {
        let mut all: Vec<(&str, Attr)> = entries.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        all.push((LIBRARY_ENTRY, Attr::string(c, name)));
        all.sort_by_key(|(name, _)| *name);
        (name, Attr::schedule(c, &strategy, &all))
    };
    let libraries = find(&strategy, Device::Gpu).map_or(&[][..], |row| row.libraries());
    libraries.iter().map(|name| with(name)).collect()
}

/// The entry of a schedule in a table that is not a parameter: the library to call where it is
/// available.
const LIBRARY_ENTRY: &str = "library";

/// Candidate schedules that autotuning tries instead of the one on a kernel's function. Some may
/// not fit the kernel.
///
/// # Errors
/// The schedule is none, or its parameters are outside of their domains.
pub fn candidates(func: Op, schedule: Attr, target: &Target) -> Result<Vec<Attr>> {
    let device = if target.chip().is_some() { Device::Gpu } else { Device::Cpu };
    let name = schedule.as_schedule().map(|(name, _)| name).unwrap_or_default();
    let row = find(&name, device).at(func)?;
    row.candidates(func, schedule)
}

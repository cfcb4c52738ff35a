//! The pass trait, the row of the pass table, and registration with MLIR's pass registry.
use crate::options::{OptionRow, Options};
use kiln_dialects::{
    error::{Error, Result},
    ffi::{PassDescription, PassObject, register_pass},
    ir::{Op, walk},
    rules::Level,
};
use std::sync::{Mutex, PoisonError};

/// A pass. Its fields are its options ([`pass_options!`](crate::pass_options)).
pub trait Pass: Options + Clone + Send + 'static {
    /// The flag, such as `kiln-simplify`.
    const FLAG: &'static str;
    /// One sentence for tables and `--help`.
    const SUMMARY: &'static str;
    /// The op the pass is anchored on; empty for any.
    const ANCHOR: &'static str = "builtin.module";
    /// The levels it accepts.
    const LEVELS: &'static [Level];
    /// The level that the module is on afterwards, for a lowering pass.
    const LOWERS_TO: Option<Level> = None;
    /// Whether a pipeline is invalid without it; other passes can be disabled.
    const REQUIRED: bool = false;
    /// The effect on numerics.
    const NUMERICS: Numerics;
    /// Dependent dialects other than kiln, func and arith.
    const DIALECTS: &'static [&'static str] = &[];
    /// Runs on one op. The IR must be valid afterwards, also on failure.
    fn run(&self, op: Op) -> Result<(), Error>;
}

/// How a pass may change the numeric results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numerics {
    /// Bitwise identical.
    Exact,
    /// Reassociates sums and products, or rounds intermediate values differently.
    Reassociates,
    /// Uses another formula with a documented error bound.
    Approximates,
}

impl Numerics {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Numerics::Exact => "exact",
            Numerics::Reassociates => "reassociates",
            Numerics::Approximates => "approximates",
        }
    }
}

/// A row of the pass table.
pub struct PassRow {
    /// The flag.
    pub flag: &'static str,
    /// One sentence for tables and `--help`.
    pub summary: &'static str,
    /// The op the pass is anchored on.
    pub anchor: &'static str,
    /// The levels it accepts.
    pub levels: &'static [Level],
    /// The level that the module is on afterwards.
    pub lowers_to: Option<Level>,
    /// Whether a pipeline is invalid without it.
    pub required: bool,
    /// The effect on numerics.
    pub numerics: Numerics,
    /// The path of its Rust type, from which its source file follows.
    pub rust_path: fn() -> &'static str,
    /// Its options.
    pub options: fn() -> Vec<OptionRow>,
    /// Registers the pass with MLIR.
    pub register: fn() -> Result<()>,
    /// Parses option values in order and prints them.
    pub round_trip: fn(&[&str]) -> Result<Vec<String>>,
}

impl PassRow {
    /// The row of a pass.
    pub const fn of<P: Pass>() -> PassRow {
        PassRow {
            flag: P::FLAG,
            summary: P::SUMMARY,
            anchor: P::ANCHOR,
            levels: P::LEVELS,
            lowers_to: P::LOWERS_TO,
            required: P::REQUIRED,
            numerics: P::NUMERICS,
            rust_path: std::any::type_name::<P>,
            options: P::rows,
            register: register::<P>,
            round_trip: |values| {
                let mut pass = P::default();
                pass.set(values)?;
                Ok(pass.print())
            },
        }
    }
    /// The source path without extension, derived from the type's path.
    pub fn source(&self) -> String {
        let mut parts: Vec<&str> = (self.rust_path)().split("::").collect();
        parts.pop();
        let folder = parts.first().map_or("", |c| c.trim_start_matches("kiln_"));
        format!("{folder}/src/{}", parts.get(1..).unwrap_or_default().join("/"))
    }
    /// The file stem of source, test and snapshots: the flag without `kiln-`, underscores for
    /// hyphens.
    pub fn stem(&self) -> String {
        self.flag.trim_start_matches("kiln-").replace('-', "_")
    }
}

/// The rows of all passes that were registered, those of other crates among them.
static REGISTERED: Mutex<Vec<&'static PassRow>> = Mutex::new(vec![]);

/// The passes that this process has registered and `known` does not have, in the order in which
/// they were: those of other crates.
pub fn registered_beside(known: &[&PassRow]) -> Vec<&'static PassRow> {
    let all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().copied().filter(|row| known.iter().all(|k| k.flag != row.flag)).collect()
}

/// Registers a pass with upstream, so that pipelines can name it. Registering it again is no error.
/// A pass of another crate is registered before the first function is compiled, or before
/// `kiln::opt::main`, whose tool then has a flag for it. Err: the flag is not one that upstream
/// takes.
pub fn register<P: Pass>() -> Result<()> {
    register_with_upstream::<P>()?;
    let row: &'static PassRow = const { &PassRow::of::<P>() };
    let mut all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if all.iter().all(|r| r.flag != row.flag) {
        all.push(row);
    }
    Ok(())
}

fn register_with_upstream<P: Pass>() -> Result<()> {
    let leak = |s: String| -> &'static str { s.leak() };
    let options = P::rows().into_iter().map(|o| (leak(o.name), leak(o.help), o.default)).collect();
    register_pass::<Adapter<P>>(PassDescription {
        flag: P::FLAG,
        summary: P::SUMMARY,
        anchor: P::ANCHOR,
        dialects: P::DIALECTS,
        options,
    })
}

#[derive(Clone, Default)]
struct Adapter<P>(P);

impl<P: Pass> PassObject for Adapter<P> {
    fn configure(&mut self, values: &[&str]) -> Result<()> {
        self.0.set(values)
    }
    fn run(&mut self, op: Op) -> Result<()> {
        tracing::debug!(target: "kiln::passes", pass = P::FLAG, op = op.name(), "run");
        level_check(op, P::LEVELS)?;
        self.0.run(op).and_then(|()| match P::LOWERS_TO {
            Some(level) => check_level(op, level),
            None => Ok(()),
        })
    }
}

/// Rejects a module whose level the pass does not accept.
fn level_check(op: Op, levels: &[Level]) -> Result<()> {
    let Some(level) = level_of(op) else { return Ok(()) };
    if levels.contains(&level) {
        return Ok(());
    }
    let names: Vec<_> = levels.iter().map(|l| l.name()).collect();
    Err(format!(
        "runs on level {}, but the module is on level {}",
        names.join(" or "),
        level.name()
    )
    .into())
}

/// The `kiln.level` of the enclosing module.
pub fn level_of(op: Op) -> Option<Level> {
    let mut at = Some(op);
    while let Some(o) = at {
        if let Some(a) = o.attr("kiln.level") {
            return a.as_string().and_then(|s| Level::from_name(&s));
        }
        at = o.parent();
    }
    None
}

/// Fails at the first op that is not legal at the level.
pub fn check_level(root: Op, level: Level) -> Result<(), Error> {
    match walk(root).into_iter().find(|o| !level.allows(*o)) {
        Some(op) => Err(Error::at(op, format!("is not an op of level {}", level.name()))),
        None => Ok(()),
    }
}

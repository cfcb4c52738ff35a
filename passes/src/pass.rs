//! What a pass is, and how it gets into upstream's registry.
use crate::options::{OptionRow, Options};
use kiln_dialects::{
    error::{Error, Result},
    ffi::{PassDescription, PassObject, register_pass},
    ir::{Op, walk},
    rules::Level,
};

/// A pass. Its fields are its options ([`pass_options!`](crate::pass_options)).
pub trait Pass: Options + Clone + Send + 'static {
    /// The flag, such as `kiln-simplify`.
    const FLAG: &'static str;
    /// One sentence on what it does.
    const SUMMARY: &'static str;
    /// The op it runs on; empty for any.
    const ANCHOR: &'static str = "builtin.module";
    /// The levels on which it may run.
    const LEVELS: &'static [Level];
    /// The level that it takes the module to, for a lowering.
    const LOWERS_TO: Option<Level> = None;
    /// Whether a pipeline is wrong without it; optional passes can be disabled.
    const REQUIRED: bool = false;
    /// What it may do to results.
    const NUMERICS: Numerics;
    /// Dialects beside kiln, func and arith whose ops it makes.
    const DIALECTS: &'static [&'static str] = &[];
    /// Runs on one op. The IR is consistent afterwards, also on failure.
    fn run(&self, op: Op) -> Result<(), Error>;
}

/// What a rewrite may do to results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numerics {
    /// The same bits.
    Exact,
    /// Sums and products in another order or with other intermediate rounding.
    Reassociates,
    /// Another formula within a stated error.
    Approximates,
}

impl Numerics {
    /// The word in tables.
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
    /// One sentence.
    pub summary: &'static str,
    /// The op it runs on.
    pub anchor: &'static str,
    /// The levels on which it may run.
    pub levels: &'static [Level],
    /// The level that it takes the module to.
    pub lowers_to: Option<Level>,
    /// Whether a pipeline is wrong without it.
    pub required: bool,
    /// What it may do to results.
    pub numerics: Numerics,
    /// The path of its Rust type, which is that of its file.
    pub rust_path: fn() -> &'static str,
    /// Its options.
    pub options: fn() -> Vec<OptionRow>,
    /// Puts it into upstream's registry.
    pub register: fn() -> Result<(), String>,
    /// Reads options from text in order and prints them back.
    pub round_trip: fn(&[&str]) -> Result<Vec<String>, String>,
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
    /// Its source file or, for one with helpers, its folder's `mod.rs`, without the ending: crate
    /// and modules of its type.
    pub fn source(&self) -> String {
        let mut parts: Vec<&str> = (self.rust_path)().split("::").collect();
        parts.pop();
        let folder = parts.first().map_or("", |c| c.trim_start_matches("kiln_"));
        format!("{folder}/src/{}", parts.get(1..).unwrap_or_default().join("/"))
    }
    /// The file stem of source, test and snapshots: the flag without `kiln-`, with underscores.
    pub fn stem(&self) -> String {
        self.flag.trim_start_matches("kiln-").replace('-', "_")
    }
}

/// Registers a pass with upstream, so that pipelines can name it. Registering it again is no error.
pub fn register<P: Pass>() -> Result<(), String> {
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
    fn configure(&mut self, values: &[&str]) -> Result<(), String> {
        self.0.set(values)
    }
    fn run(&mut self, op: Op) -> Result<()> {
        tracing::debug!(target: "kiln::passes", pass = P::FLAG, op = op.name(), "run");
        level_check(op, P::LEVELS)?;
        let outcome = self.0.run(op).and_then(|()| match P::LOWERS_TO {
            Some(level) => check_level(op, level),
            None => Ok(()),
        });
        outcome
    }
}

/// A module that states a level takes only passes of that level.
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

/// The level that the op's module states.
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

/// Fails at the first op that the level does not allow.
pub fn check_level(root: Op, level: Level) -> Result<(), Error> {
    match walk(root).into_iter().find(|o| !level.allows(*o)) {
        Some(op) => Err(Error::at(op, format!("is not an op of level {}", level.name()))),
        None => Ok(()),
    }
}

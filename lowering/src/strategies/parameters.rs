//! Typed parameters of strategies: `#kiln.schedule<"NAME", {…}>` as a struct and back.
use kiln_dialects::{
    Error, Result,
    ir::{Attr, Ctx, Op},
};
use kiln_passes::names;

/// The attribute of a kernel's function that holds its schedule.
pub const SCHEDULE: &str = "kiln.schedule";

/// The values that a parameter may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Domain {
    /// From the first to the last, both included.
    Between(i64, i64),
    /// Powers of two between two, both included.
    PowerOfTwo(i64, i64),
    /// Multiples of the first, from the second to the third.
    MultipleOf(i64, i64, i64),
    /// One of a list.
    OneOf(&'static [i64]),
}

impl Domain {
    /// Whether a value is in it.
    pub fn holds(self, v: i64) -> bool {
        match self {
            Domain::Between(low, high) => (low..=high).contains(&v),
            Domain::PowerOfTwo(low, high) => {
                (low..=high).contains(&v) && v > 0 && v.count_ones() == 1
            }
            Domain::MultipleOf(unit, low, high) => (low..=high).contains(&v) && v % unit == 0,
            Domain::OneOf(all) => all.contains(&v),
        }
    }
}

impl std::fmt::Display for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let open = |high: &i64| *high == i64::MAX;
        match self {
            Domain::Between(low, high) if open(high) => write!(f, "at least {low}"),
            Domain::Between(low, high) => write!(f, "{low} to {high}"),
            Domain::PowerOfTwo(low, high) => write!(f, "a power of two from {low} to {high}"),
            Domain::MultipleOf(unit, low, high) if open(high) => {
                write!(f, "a multiple of {unit} from {low} on")
            }
            Domain::MultipleOf(unit, low, high) => {
                write!(f, "a multiple of {unit} from {low} to {high}")
            }
            Domain::OneOf(all) => {
                let all: Vec<String> = all.iter().map(i64::to_string).collect();
                write!(f, "one of {}", all.join(", "))
            }
        }
    }
}

/// A parameter as tables, help and errors show it.
#[derive(Clone, Copy, Debug)]
pub struct ParameterRow {
    /// The field's name.
    pub name: &'static str,
    /// The field's doc comment.
    pub help: &'static str,
    /// The values that it may have.
    pub domain: Domain,
}

/// A type of a parameter's field.
pub trait ParameterValue {
    /// As the attribute holds it.
    fn to_i64(&self) -> i64;
    /// From a value of the parameter's domain.
    fn from_i64(v: i64) -> Self;
}

impl ParameterValue for usize {
    fn to_i64(&self) -> i64 {
        *self as i64
    }
    fn from_i64(v: i64) -> usize {
        v as usize
    }
}

impl ParameterValue for i64 {
    fn to_i64(&self) -> i64 {
        *self
    }
    fn from_i64(v: i64) -> i64 {
        v
    }
}

impl ParameterValue for bool {
    fn to_i64(&self) -> i64 {
        i64::from(*self)
    }
    fn from_i64(v: i64) -> bool {
        v != 0
    }
}

/// A strategy's parameters; `#[derive(Parameters)]` implements it.
pub trait Parameters: Clone + std::fmt::Debug {
    /// One row a field, in the order of the fields.
    const ROWS: &'static [ParameterRow];
    /// The values in the order of the rows.
    fn values(&self) -> Vec<i64>;
    /// From as many values, each of its domain.
    fn from_values(values: &[i64]) -> Self;

    /// The attribute for a strategy of this name.
    fn attr(&self, c: Ctx, strategy: &str) -> Attr {
        let mut entries: Vec<(&str, Attr)> = Self::ROWS
            .iter()
            .zip(self.values())
            .map(|(row, v)| (row.name, Attr::i64(c, v)))
            .collect();
        entries.sort_by_key(|(name, _)| *name);
        Attr::schedule(c, strategy, &entries)
    }

    /// The same with some parameters changed; `None` where a value is outside of its domain.
    fn with(&self, changes: &[(&str, i64)]) -> Option<Self> {
        let mut values = self.values();
        for (name, v) in changes {
            let at = Self::ROWS.iter().position(|r| r.name == *name)?;
            if !Self::ROWS[at].domain.holds(*v) {
                return None;
            }
            values[at] = *v;
        }
        Some(Self::from_values(&values))
    }
}

/// Reads the parameters of a schedule on a kernel's function.
///
/// # Errors
/// A parameter that is unknown, missing, no integer or outside of its domain, at the function's
/// location.
pub fn read<P: Parameters>(func: Op, strategy: &str, schedule: Attr) -> Result<P> {
    let entries = schedule.as_schedule().and_then(|(_, d)| d.entries()).unwrap_or_default();
    let fail = |what: String| Err(Error::at(func, format!("has schedule '{strategy}' {what}")));
    let list = || P::ROWS.iter().map(|r| r.name).collect::<Vec<_>>();
    for (name, _) in &entries {
        if !P::ROWS.iter().any(|r| r.name == name) {
            let hint = names::hint(name, list());
            let all = list().join(", ");
            return fail(format!("with unknown parameter '{name}'{hint} (parameters: {all})"));
        }
    }
    let mut values = vec![];
    for row in P::ROWS {
        let Some((_, value)) = entries.iter().find(|(name, _)| name == row.name) else {
            return fail(format!("without parameter '{}', {}", row.name, row.domain));
        };
        match value.as_i64() {
            Some(v) if row.domain.holds(v) => values.push(v),
            _ => {
                return fail(format!("with {} = {value}; it is {}", row.name, row.domain));
            }
        }
    }
    Ok(P::from_values(&values))
}

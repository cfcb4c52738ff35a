//! What has to hold for a call, so that a program which was compiled for another one is right for
//! it. Plain data, checked by one routine.
//!
//! Sizes that are numbers stand in one list for all inputs, so that the check of a tensor is a
//! comparison of a head and of a piece of that list; what is open there has a symbol with a range,
//! or is the size of a symbol elsewhere.
use crate::{
    Place, View,
    program::{Condition, Dim, Expr, Symbol, values},
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// In [`Guards::sizes`]: a size that only symbols say something about.
pub const OPEN: i64 = -1;

/// The guards of one program. See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Guards {
    /// One for each leaf of the arguments.
    pub inputs: Vec<InputGuard>,
    /// What people call the leaves, such as `arg0[1]`.
    pub names: Vec<String>,
    /// The sizes of all tensors behind one another.
    pub sizes: Vec<i64>,
    /// Open sizes that are read off an input; [`Symbol::input`] counts leaves.
    pub symbols: Vec<Symbol>,
    /// Sizes (leaf, dimension) that are those of a symbol.
    pub same: Vec<Same>,
    /// Sizes that are computed from symbols.
    pub exprs: Vec<Expr>,
    /// Comparisons that were decided when the program was made.
    pub conditions: Vec<Condition>,
}

/// A further place of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Same {
    /// The leaf.
    pub input: usize,
    /// Its dimension.
    pub dim: usize,
    /// The number of the symbol.
    pub symbol: usize,
}

/// What one leaf has to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum InputGuard {
    /// A tensor.
    Tensor(TensorGuard),
    /// This number, or a number of this kind.
    Scalar(Scalar),
    /// A number of this kind with any value.
    Any(Scalar),
}

/// What a tensor has to be, beside its sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorGuard {
    /// The element type, see [`dtype_word`].
    pub dtype: u64,
    /// How many dimensions.
    pub rank: usize,
    /// Where in [`Guards::sizes`] its sizes begin.
    pub first: usize,
    /// The GPU whose memory it lies in; none for the host's.
    pub gpu: Option<usize>,
    /// How the elements lie.
    pub layout: Layout,
    /// The power of two that divides the address of the first element; 1 for nothing.
    pub align: usize,
}

/// How elements have to lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// In any way.
    Any,
    /// Without gaps, in row-major order.
    #[default]
    Rows,
    /// Without gaps, with the dimensions in this order, the outermost first.
    Order(Vec<usize>),
    /// With these strides.
    Strides(Vec<isize>),
}

/// A number or a mark of structure among the arguments.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Scalar {
    /// An integer.
    Int(i64),
    /// A float; equal if the bits are.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// How many elements a list has, or whether an option is there.
    Count(usize),
    /// Whether layers are in training.
    Training(bool),
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        match (self, other) {
            (Scalar::Int(a), Scalar::Int(b)) => a == b,
            (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
            (Scalar::Bool(a), Scalar::Bool(b)) | (Scalar::Training(a), Scalar::Training(b)) => {
                a == b
            }
            (Scalar::Count(a), Scalar::Count(b)) => a == b,
            _ => false,
        }
    }
}

impl Scalar {
    fn kind(&self) -> &'static str {
        match self {
            Scalar::Int(_) => "integer",
            Scalar::Float(_) => "float",
            Scalar::Bool(_) | Scalar::Training(_) => "truth value",
            Scalar::Count(_) => "length",
        }
    }
    /// Whether both are numbers of one kind.
    pub fn same_kind(&self, other: &Scalar) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Int(n) => write!(f, "{n}"),
            Scalar::Float(x) => write!(f, "{x:?}"),
            Scalar::Bool(b) => write!(f, "{b}"),
            Scalar::Count(n) => write!(f, "{n} elements"),
            Scalar::Training(b) => f.write_str(if *b { "training" } else { "inference" }),
        }
    }
}

/// One leaf of a call's arguments.
#[derive(Clone, Copy)]
pub enum Given<'a> {
    /// A tensor.
    Tensor(View<'a>),
    /// A number.
    Scalar(Scalar),
}

/// MLIR's name of an element type, of which none has more than 8 letters, as a number.
#[inline]
pub fn dtype_word(name: &str) -> u64 {
    match *name.as_bytes() {
        // Nearly all have three letters.
        [a, b, c] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
        ref all => {
            all.iter().take(8).enumerate().fold(0, |word, (i, b)| word | u64::from(*b) << (8 * i))
        }
    }
}

fn dtype_name(word: u64) -> String {
    word.to_le_bytes().iter().take_while(|b| **b != 0).map(|b| char::from(*b)).collect()
}

/// The first guard that a call does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The guard, such as `arg0.size(1) == 64`.
    pub guard: String,
    /// What it wants.
    pub want: String,
    /// What the call has.
    pub have: String,
    /// The leaf that it is about, if it is one's.
    pub input: Option<usize>,
    /// The dimension of that leaf, if it is about one.
    pub dim: Option<usize>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: it was {}, now it is {}", self.guard, self.want, self.have)
    }
}

fn same_sizes(want: &[i64], shape: &[usize]) -> bool {
    want.iter().zip(shape).all(|(want, have)| *want == OPEN || *want == *have as i64)
}

/// Whether sizes are those that are wanted and strides those of row-major order, in one pass.
fn rows(want: &[i64], shape: &[usize], strides: &[isize]) -> bool {
    let (mut next, mut dense, mut empty) = (1isize, true, false);
    for ((want, n), stride) in want.iter().zip(shape).zip(strides).rev() {
        if *want != OPEN && *want != *n as i64 {
            return false;
        }
        dense &= *n == 1 || *stride == next;
        empty |= *n == 0;
        next = next.wrapping_mul(*n as isize);
    }
    dense || empty
}

impl TensorGuard {
    fn meets(&self, view: &View, sizes: &[i64]) -> bool {
        let shape = view.shape();
        let here = match (view.place(), self.gpu) {
            (Place::Host, None) => true,
            (Place::Cuda(have), Some(want)) => have == want,
            _ => false,
        };
        shape.len() == self.rank
            && dtype_word(view.dtype()) == self.dtype
            && here
            && self.aligned(view)
            && sizes.get(self.first..self.first + self.rank).is_some_and(|want| {
                match (&self.layout, view.strides()) {
                    (Layout::Rows, Some(strides)) => rows(want, shape, strides),
                    _ => same_sizes(want, shape) && self.lies(view),
                }
            })
    }
    /// By a mask, since a division takes as long as all else.
    #[inline]
    fn aligned(&self, view: &View) -> bool {
        (view.data as usize) & self.align.saturating_sub(1) == 0
    }
    #[inline]
    fn lies(&self, view: &View) -> bool {
        match &self.layout {
            Layout::Any => true,
            Layout::Rows => view.lies(&[]),
            Layout::Order(order) => {
                order.len() == self.rank && order.iter().all(|d| *d < self.rank) && view.lies(order)
            }
            Layout::Strides(strides) => view.has_strides(strides),
        }
    }
}

impl Guards {
    /// Whether a call meets all guards.
    pub fn check(&self, given: &[Given]) -> bool {
        self.inputs.len() == given.len()
            && self.inputs.iter().zip(given).all(|(guard, given)| match (guard, given) {
                (InputGuard::Tensor(t), Given::Tensor(view)) => t.meets(view, &self.sizes),
                (InputGuard::Scalar(want), Given::Scalar(have)) => want == have,
                (InputGuard::Any(want), Given::Scalar(have)) => want.same_kind(have),
                _ => false,
            })
            && (self.symbols.is_empty() || self.open_sizes(given).is_none())
    }

    /// What is wrong with open sizes; the leaves are of the right kinds.
    fn open_sizes(&self, given: &[Given]) -> Option<Mismatch> {
        let size = |input: usize, dim: usize| match given.get(input) {
            Some(Given::Tensor(view)) => view.shape().get(dim).map(|n| *n as i64),
            Some(Given::Scalar(Scalar::Int(n))) => Some(*n),
            _ => None,
        };
        let place = |input: usize, dim: usize| self.size_name(input, dim);
        let mut known = Vec::with_capacity(self.symbols.len());
        for s in &self.symbols {
            let n = size(s.input, s.dim).unwrap_or(OPEN);
            if n < s.min
                || s.max.is_some_and(|max| n > max)
                || (s.divisor > 1 && n % s.divisor != 0)
            {
                let guard = format!("{} is {}", place(s.input, s.dim), s.range());
                return Some(Mismatch {
                    guard,
                    want: s.range(),
                    have: n.to_string(),
                    input: Some(s.input),
                    dim: Some(s.dim),
                });
            }
            known.push(n);
        }
        for s in &self.same {
            let (n, want) = (
                size(s.input, s.dim).unwrap_or(OPEN),
                known.get(s.symbol).copied().unwrap_or(OPEN),
            );
            if n != want {
                let first =
                    self.symbols.get(s.symbol).map_or(String::new(), |s| place(s.input, s.dim));
                let guard = format!("{} == {first}", place(s.input, s.dim));
                return Some(Mismatch {
                    guard,
                    want: want.to_string(),
                    have: n.to_string(),
                    input: Some(s.input),
                    dim: Some(s.dim),
                });
            }
        }
        if self.conditions.is_empty() {
            return None;
        }
        let failed = |c: &Condition, have: String| Mismatch {
            guard: c.text.clone(),
            want: "met".into(),
            have,
            input: None,
            dim: None,
        };
        let first = self.conditions.first()?;
        let Ok(exprs) = values(&self.exprs, &known) else {
            return Some(failed(first, "a size without a value".into()));
        };
        self.conditions.iter().find_map(|c| {
            match (c.lhs.value(&known, &exprs), c.rhs.value(&known, &exprs)) {
                (Ok(x), Ok(y)) if c.kind.holds(x, y) => None,
                (Ok(x), Ok(y)) => Some(failed(c, format!("not ({x} and {y})"))),
                _ => Some(failed(c, "a size without a value".into())),
            }
        })
    }

    fn name(&self, input: usize) -> &str {
        self.names.get(input).map_or("an argument", String::as_str)
    }

    /// What people call a size: an integer among the arguments may be one.
    fn size_name(&self, input: usize, dim: usize) -> String {
        match self.inputs.get(input) {
            Some(InputGuard::Any(_)) => self.name(input).to_string(),
            _ => format!("{}.size({dim})", self.name(input)),
        }
    }

    /// The first guard that a call does not meet.
    pub fn mismatch(&self, given: &[Given]) -> Option<Mismatch> {
        // A list of another length comes before the number of leaves, which follows from it.
        for (i, (guard, given)) in self.inputs.iter().zip(given).enumerate() {
            if let Some(found) = self.leaf(i, guard, given) {
                return Some(found);
            }
        }
        if self.inputs.len() != given.len() {
            let (want, have) = (self.inputs.len().to_string(), given.len().to_string());
            return Some(Mismatch {
                guard: "the number of arguments".into(),
                want,
                have,
                input: None,
                dim: None,
            });
        }
        self.open_sizes(given)
    }

    fn leaf(&self, i: usize, guard: &InputGuard, given: &Given) -> Option<Mismatch> {
        let name = self.name(i);
        let found = |what: &str, want: String, have: String, dim| {
            Some(Mismatch {
                guard: format!("{name}{what} == {want}"),
                want,
                have,
                input: Some(i),
                dim,
            })
        };
        match (guard, given) {
            (InputGuard::Scalar(want), Given::Scalar(have)) if want == have => None,
            (InputGuard::Any(want), Given::Scalar(have)) if want.same_kind(have) => None,
            (InputGuard::Any(want), Given::Scalar(have)) => Some(Mismatch {
                guard: format!("{name}: any {}", want.kind()),
                want: want.kind().into(),
                have: have.kind().into(),
                input: Some(i),
                dim: None,
            }),
            (InputGuard::Scalar(want), Given::Scalar(have)) => {
                found("", want.to_string(), have.to_string(), None)
            }
            (InputGuard::Tensor(t), Given::Tensor(v)) => {
                if dtype_word(v.dtype()) != t.dtype {
                    return found(".dtype", dtype_name(t.dtype), v.dtype().to_string(), None);
                }
                if v.shape().len() != t.rank {
                    return found(".rank", t.rank.to_string(), v.shape().len().to_string(), None);
                }
                let want = self.sizes.get(t.first..t.first + t.rank).unwrap_or_default();
                for (d, (want, have)) in want.iter().zip(v.shape()).enumerate() {
                    if *want != OPEN && *want != *have as i64 {
                        return found(
                            &format!(".size({d})"),
                            want.to_string(),
                            have.to_string(),
                            Some(d),
                        );
                    }
                }
                let gpu = t.gpu.map_or(Place::Host, Place::Cuda);
                if gpu != v.place() {
                    return found(".device", gpu.to_string(), v.place().to_string(), None);
                }
                if !t.lies(v) {
                    return found(".layout", t.layout.to_string(), "another".into(), None);
                }
                if !t.aligned(v) {
                    return found(
                        ".address",
                        format!("a multiple of {}", t.align),
                        format!("{:#x}", v.data as usize),
                        None,
                    );
                }
                None
            }
            (InputGuard::Tensor(_), Given::Scalar(s)) => {
                found("", "a tensor".into(), s.to_string(), None)
            }
            (InputGuard::Scalar(s) | InputGuard::Any(s), Given::Tensor(_)) => {
                found("", s.to_string(), "a tensor".into(), None)
            }
        }
    }
}

impl Symbol {
    /// Its values, in words.
    pub fn range(&self) -> String {
        let max = self.max.map_or(String::new(), |m| m.to_string());
        let by = if self.divisor > 1 {
            format!(", a multiple of {}", self.divisor)
        } else {
            String::new()
        };
        format!("{}..={max}{by}", self.min)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Any => f.write_str("of any strides"),
            Layout::Rows => f.write_str("row-major"),
            Layout::Order(order) => write!(f, "in order {order:?}"),
            Layout::Strides(strides) => write!(f, "of strides {strides:?}"),
        }
    }
}

/// One line a guard.
impl fmt::Display for Guards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, guard) in self.inputs.iter().enumerate() {
            let name = self.name(i);
            match guard {
                InputGuard::Scalar(s) => writeln!(f, "{name} == {s}")?,
                InputGuard::Any(s) => writeln!(f, "{name}: any {}", s.kind())?,
                InputGuard::Tensor(t) => {
                    let size = |d: usize| match self.sizes.get(t.first + d).copied() {
                        Some(n) if n != OPEN => n.to_string(),
                        _ => self.symbol(i, d).map_or("?".into(), |s| s.name.clone()),
                    };
                    let sizes: Vec<String> = (0..t.rank).map(size).collect();
                    let place = t.gpu.map_or(Place::Host, Place::Cuda);
                    write!(
                        f,
                        "{name}: {}[{}] {}, on {place}",
                        dtype_name(t.dtype),
                        sizes.join(", "),
                        t.layout
                    )?;
                    writeln!(
                        f,
                        "{}",
                        if t.align > 1 {
                            format!(", at a multiple of {} bytes", t.align)
                        } else {
                            String::new()
                        }
                    )?;
                }
            }
        }
        for s in &self.symbols {
            writeln!(f, "{} = {} in {}", s.name, self.size_name(s.input, s.dim), s.range())?;
        }
        for s in &self.same {
            writeln!(
                f,
                "{}.size({}) == {}",
                self.name(s.input),
                s.dim,
                self.symbols.get(s.symbol).map_or("?", |s| &s.name)
            )?;
        }
        self.conditions.iter().try_for_each(|c| writeln!(f, "{}", c.text))
    }
}

impl Guards {
    /// The symbol of a size.
    fn symbol(&self, input: usize, dim: usize) -> Option<&Symbol> {
        let own = self.symbols.iter().find(|s| (s.input, s.dim) == (input, dim));
        own.or_else(|| {
            self.same
                .iter()
                .find(|s| (s.input, s.dim) == (input, dim))
                .and_then(|s| self.symbols.get(s.symbol))
        })
    }
    /// A condition on sizes, `lhs` and `rhs` of which are numbers, symbols or [`Guards::exprs`].
    pub fn condition(&mut self, kind: crate::program::Relation, lhs: Dim, rhs: Dim, text: String) {
        self.conditions.push(Condition { kind, lhs, rhs, text });
    }
}

#[cfg(test)]
mod tests;

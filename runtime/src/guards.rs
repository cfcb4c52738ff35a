//! Guards: the conditions under which a compiled program may be reused for a call. Plain data,
//! checked by one routine.
//!
//! Static sizes of all inputs are one list, so that checking a tensor compares a head (dtype, rank)
//! and a slice of that list. A dynamic size has a symbol with a range, or equals a symbol read
//! elsewhere.
use crate::{
    Place, View,
    program::{Condition, Dim, Expr, Symbol, values},
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// In [`Guards::sizes`]: a dynamic size, which only symbols constrain.
pub const OPEN: i64 = -1;

/// The guards of one program. See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Guards {
    /// One for each leaf (flattened argument).
    pub inputs: Vec<InputGuard>,
    /// The leaves' names in messages, such as `arg0[1]`.
    pub names: Vec<String>,
    /// The sizes of all tensors, concatenated.
    pub sizes: Vec<i64>,
    /// Dynamic sizes that are read from an input; [`Symbol::input`] counts leaves.
    pub symbols: Vec<Symbol>,
    /// Sizes (leaf, dimension) that equal a symbol.
    pub same: Vec<Same>,
    /// Sizes computed from symbols.
    pub exprs: Vec<Expr>,
    /// Comparisons that were decided during tracing.
    pub conditions: Vec<Condition>,
}

/// Another size that equals a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Same {
    /// The leaf.
    pub input: usize,
    /// Its dimension.
    pub dim: usize,
    /// Index of the symbol in [`Guards::symbols`].
    pub symbol: usize,
}

/// The guard of one leaf.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum InputGuard {
    /// A tensor.
    Tensor(TensorGuard),
    /// A scalar of this kind and value.
    Scalar(Scalar),
    /// A scalar of this kind and any value.
    Any(Scalar),
}

/// What a tensor must match besides its sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorGuard {
    /// The element type, see [`dtype_word`].
    pub dtype: u64,
    /// Number of dimensions.
    pub rank: usize,
    /// Index of its first size in [`Guards::sizes`].
    pub first: usize,
    /// Ordinal of the GPU that holds it; `None` for host memory.
    pub gpu: Option<usize>,
    /// The memory layout.
    pub layout: Layout,
    /// Alignment of the first element's address, in bytes: a power of two; 1 for no requirement.
    pub align: usize,
}

/// A memory layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// Unconstrained.
    Any,
    /// Dense, row-major.
    #[default]
    Rows,
    /// Dense, with the dimensions in this order, outermost first.
    Order(Vec<usize>),
    /// These strides, in elements.
    Strides(Vec<isize>),
}

/// A scalar argument, or a structural property of the arguments.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Scalar {
    /// An integer.
    Int(i64),
    /// A float; compared by its bits.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// Elements of a list, or 0 or 1 for an option.
    Count(usize),
    /// Whether modules are in training mode.
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
    /// Whether both scalars are of one kind.
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
    /// A scalar.
    Scalar(Scalar),
}

/// MLIR's name of an element type (at most 8 characters) packed into an integer.
#[inline]
pub fn dtype_word(name: &str) -> u64 {
    match *name.as_bytes() {
        // The common case: three characters.
        [a, b, c] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
        ref all => {
            all.iter().take(8).enumerate().fold(0, |word, (i, b)| word | u64::from(*b) << (8 * i))
        }
    }
}

fn dtype_name(word: u64) -> String {
    word.to_le_bytes().iter().take_while(|b| **b != 0).map(|b| char::from(*b)).collect()
}

/// The first guard that a call violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The guard, such as `arg0.size(1) == 64`.
    pub guard: String,
    /// The expected value.
    pub want: String,
    /// The call's value.
    pub have: String,
    /// The leaf concerned, if it is one.
    pub input: Option<usize>,
    /// The dimension concerned, if it is one.
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

/// Whether static sizes match and strides are row-major, in one pass.
fn row_major_sizes(want: &[i64], shape: &[usize], strides: &[isize]) -> bool {
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
    fn satisfied_by(&self, view: &View, sizes: &[i64]) -> bool {
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
                    (Layout::Rows, Some(strides)) => row_major_sizes(want, shape, strides),
                    _ => same_sizes(want, shape) && self.has_layout(view),
                }
            })
    }
    /// A mask: a division would take as long as the rest of the check.
    #[inline]
    fn aligned(&self, view: &View) -> bool {
        (view.data as usize) & self.align.saturating_sub(1) == 0
    }
    #[inline]
    fn has_layout(&self, view: &View) -> bool {
        match &self.layout {
            Layout::Any => true,
            Layout::Rows => view.is_dense(&[]),
            Layout::Order(order) => {
                order.len() == self.rank
                    && order.iter().all(|d| *d < self.rank)
                    && view.is_dense(order)
            }
            Layout::Strides(strides) => view.has_strides(strides),
        }
    }
}

impl Guards {
    /// Whether a call satisfies all guards.
    pub fn check(&self, given: &[Given]) -> bool {
        self.inputs.len() == given.len()
            && self.inputs.iter().zip(given).all(|(guard, given)| match (guard, given) {
                (InputGuard::Tensor(t), Given::Tensor(view)) => t.satisfied_by(view, &self.sizes),
                (InputGuard::Scalar(want), Given::Scalar(have)) => want == have,
                (InputGuard::Any(want), Given::Scalar(have)) => want.same_kind(have),
                _ => false,
            })
            && (self.symbols.is_empty() || self.dynamic_sizes(given).is_none())
    }

    /// The first violated guard of dynamic sizes; assumes that the leaves' kinds match.
    fn dynamic_sizes(&self, given: &[Given]) -> Option<Mismatch> {
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

    /// A size's name in messages: an integer argument may be one.
    fn size_name(&self, input: usize, dim: usize) -> String {
        match self.inputs.get(input) {
            Some(InputGuard::Any(_)) => self.name(input).to_string(),
            _ => format!("{}.size({dim})", self.name(input)),
        }
    }

    /// The first guard that a call violates.
    pub fn mismatch(&self, given: &[Given]) -> Option<Mismatch> {
        // A list of another length is reported first: the number of leaves follows from it.
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
        self.dynamic_sizes(given)
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
                if !t.has_layout(v) {
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
    /// The symbol's range, in words.
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

/// One guard a line.
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
    /// The symbol of a size, if it is dynamic.
    fn symbol(&self, input: usize, dim: usize) -> Option<&Symbol> {
        let own = self.symbols.iter().find(|s| (s.input, s.dim) == (input, dim));
        own.or_else(|| {
            self.same
                .iter()
                .find(|s| (s.input, s.dim) == (input, dim))
                .and_then(|s| self.symbols.get(s.symbol))
        })
    }
    /// Adds a condition on sizes; `lhs` and `rhs` are constants, symbols or [`Guards::exprs`].
    pub fn condition(&mut self, kind: crate::program::Relation, lhs: Dim, rhs: Dim, text: String) {
        self.conditions.push(Condition { kind, lhs, rhs, text });
    }
}

#[cfg(test)]
mod tests;

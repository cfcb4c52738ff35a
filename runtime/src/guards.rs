//! Guards: the conditions under which a compiled program may be reused for a call. Plain data,
//! checked by one routine.
//!
//! Static sizes of all inputs are one list, so that checking a tensor compares a head (dtype, rank)
//! and a slice of that list. A dynamic size has a symbol with a range, or equals a symbol read
//! elsewhere.
mod check;

use crate::{
    DeviceId, View,
    program::{Condition, Dim, Expr, Symbol},
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// In [`Guards::sizes`]: a dynamic size, which only symbols constrain.
pub const DYNAMIC: i64 = -1;

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
pub enum LeafView<'a> {
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
                        Some(n) if n != DYNAMIC => n.to_string(),
                        _ => self.symbol(i, d).map_or("?".into(), |s| s.name.clone()),
                    };
                    let sizes: Vec<String> = (0..t.rank).map(size).collect();
                    let device = t.gpu.map_or(DeviceId::Host, DeviceId::Cuda);
                    write!(
                        f,
                        "{name}: {}[{}] {}, on {device}",
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

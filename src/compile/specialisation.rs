//! Specialisation: which sizes of a call's arguments are static and which become symbols.
//!
//! As in torch.compile (automatic dynamic shapes): the first call specialises on all sizes. A
//! dimension that changes becomes symbolic, and only that dimension. 0 and 1 are always
//! specialised. Equal sizes share a symbol (duck shaping), which is a guard. A dimension whose
//! symbol the function constrains to a constant stays static.
//!
//! On a GPU, a symbol that determines a row pitch is declared a multiple of 16 if all sizes so far
//! were. Such rows allow 16-byte loads and tensor cores. The first other size compiles a general
//! program, which is tried after the divisible one from then on.
use super::tree::Leaf;
use crate::{
    Error,
    runtime::{
        guards::{
            DYNAMIC, Guards, InputGuard, Layout, LeafView, Same, Scalar, TensorGuard, dtype_word,
        },
        program::Symbol,
    },
    tensor::{Array, Mark, Repr},
};
use std::sync::Arc;

/// Divisor of symbols whose sizes were all multiples so far: at least 16 bytes for multi-byte
/// dtypes.
pub(super) const DIVISOR: i64 = 16;

/// History of one dimension.
#[derive(Clone, Copy, Debug, Default)]
struct DimHistory {
    last: Option<usize>,
    /// It has had several sizes.
    changed: bool,
    /// A symbol was contradicted, so it stays static.
    pinned: bool,
    /// It has had a size, other than the always specialised ones, that is not a multiple of
    /// [`DIVISOR`].
    indivisible: bool,
    /// A program was compiled for multiples.
    declared: bool,
}

/// History of a number argument.
#[derive(Clone, Copy, Debug, Default)]
struct NumberHistory {
    last: Option<Scalar>,
    /// It has had several values.
    changed: bool,
    /// Its symbol was contradicted, so it stays static.
    pinned: bool,
}

/// History of all leaves.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    leaves: Vec<Vec<DimHistory>>,
    numbers: Vec<NumberHistory>,
    /// A program for multiples met another size, so further programs are for all sizes.
    no_divisors: bool,
}

/// A size of an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DimSpecialisation {
    Static(usize),
    /// Index of a symbol.
    Symbol(usize),
}

/// Specialisation of one leaf.
#[derive(Clone, Debug)]
pub(super) enum LeafSpecialisation {
    Tensor(Arc<Array>, Vec<DimSpecialisation>),
    /// Specialised: a constant of the program.
    Scalar(Scalar),
    /// An input of the program, and its symbol where it is used as a size.
    Number(Scalar, Option<usize>),
}

/// The specialisation of a program.
#[derive(Clone, Debug)]
pub(super) struct Specialisation {
    pub leaves: Vec<LeafSpecialisation>,
    /// Name and range of each symbol with its value in this call; `input` and `dim` say where it is
    /// read.
    pub symbols: Vec<(Symbol, usize)>,
}

/// The elements of a tensor leaf.
pub(super) fn array(leaf: &Leaf) -> Option<&Arc<Array>> {
    match leaf {
        Leaf::Tensor(t) => {
            if let Repr::Array(a) = &t.0 {
                Some(a)
            } else {
                None
            }
        }
        Leaf::Scalar(_) | Leaf::Number(_) => None,
    }
}

/// The leaves as guards see them. Err: a tensor without elements.
pub(super) fn leaf_views(leaves: &[Leaf]) -> Result<Vec<LeafView<'_>>, Error> {
    // Reserved up front: for many tensors, growing would dominate.
    let mut leaf_views = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        leaf_views.push(match leaf {
            &Leaf::Scalar(s) => LeafView::Scalar(s),
            Leaf::Number(s) => LeafView::Scalar(s.peek()),
            Leaf::Tensor(t) => match &t.0 {
                Repr::Array(a) => LeafView::Tensor(a.as_view()),
                _ => return Err(Error::Trace(t.error())),
            },
        });
    }
    Ok(leaf_views)
}

impl History {
    /// Records a guard failure: a call that no program covers.
    pub fn learn(&mut self, leaves: &[Leaf]) {
        self.leaves.resize_with(leaves.len(), Vec::new);
        self.numbers.resize(leaves.len(), NumberHistory::default());
        for (known, leaf) in self.numbers.iter_mut().zip(leaves) {
            let Leaf::Number(s) = leaf else { continue };
            known.changed |= known.last.is_some_and(|last| last != s.peek());
            known.last = Some(s.peek());
        }
        for (known, leaf) in self.leaves.iter_mut().zip(leaves) {
            let shape = array(leaf).map_or(&[][..], |a| a.shape());
            if known.len() != shape.len() {
                *known = vec![DimHistory::default(); shape.len()];
            }
            for (d, n) in known.iter_mut().zip(shape) {
                d.changed |= d.last.is_some_and(|last| last != *n);
                d.last = Some(*n);
                d.indivisible |= *n >= 2 && !n.is_multiple_of(DIVISOR as usize);
                self.no_divisors |= d.indivisible && d.declared;
            }
        }
    }
    /// Forbids a symbol for this dimension.
    pub fn pin(&mut self, leaf: usize, dim: usize) {
        if let Some(d) = self.leaves.get_mut(leaf).and_then(|l| l.get_mut(dim)) {
            d.pinned = true;
        } else if let Some(n) = self.numbers.get_mut(leaf) {
            n.pinned = true;
        }
    }
    /// Plans the specialisation of a new program.
    pub fn specialise(&self, leaves: &[Leaf], dynamic: Option<bool>) -> Specialisation {
        let mut spec = Specialisation { leaves: vec![], symbols: vec![] };
        for (i, leaf) in leaves.iter().enumerate() {
            let planned = match (leaf, array(leaf)) {
                (_, Some(a)) => {
                    let dims = (0..a.shape().len())
                        .map(|d| self.dim(&mut spec, a, i, d, dynamic))
                        .collect();
                    LeafSpecialisation::Tensor(a.clone(), dims)
                }
                (Leaf::Scalar(s), None) => LeafSpecialisation::Scalar(*s),
                (Leaf::Number(s), None) => self.number(s.peek(), i, dynamic),
                // Tensors without elements were rejected before.
                (Leaf::Tensor(_), None) => continue,
            };
            spec.leaves.push(planned);
        }
        // After the sizes of tensors: equality with one of them is a coincidence, so no symbol is
        // shared.
        for i in 0..spec.leaves.len() {
            let at = spec.symbols.len();
            let pinned = self.numbers.get(i).is_some_and(|n| n.pinned);
            if let Some(LeafSpecialisation::Number(Scalar::Int(n), symbol @ None)) =
                spec.leaves.get_mut(i)
                && let (false, Ok(n @ 2..)) = (pinned, usize::try_from(*n))
            {
                *symbol = Some(at);
                spec.symbols.push((
                    Symbol {
                        name: format!("s{at}"),
                        min: 2,
                        max: None,
                        divisor: 1,
                        input: i,
                        dim: 0,
                    },
                    n,
                ));
            }
        }
        spec
    }
    /// Declares symbols as multiples of [`DIVISOR`] if all sizes so far were, the dimension is not
    /// marked, and the row pitch of an argument depends on it.
    pub fn declare_divisors(&mut self, spec: &mut Specialisation) {
        for s in 0..spec.symbols.len() {
            let occurrences = spec.occurrences(s);
            let mut known = occurrences
                .iter()
                .map(|(leaf, dim)| self.leaves.get(*leaf).and_then(|l| l.get(*dim)));
            let even =
                known.all(|d| d.is_some_and(|d| d.changed && !d.indivisible)) && !self.no_divisors;
            if !even
                || !occurrences.iter().all(|p| !spec.is_marked(*p))
                || !occurrences.iter().any(|p| spec.is_row_pitch(*p))
            {
                continue;
            }
            spec.symbols[s].0.divisor = DIVISOR;
            for (leaf, dim) in occurrences {
                if let Some(d) = self.leaves.get_mut(leaf).and_then(|l| l.get_mut(dim)) {
                    d.declared = true;
                }
            }
        }
    }
    /// A bool is control flow, so it is always specialised.
    fn number(&self, value: Scalar, leaf: usize, dynamic: Option<bool>) -> LeafSpecialisation {
        let changed = self.numbers.get(leaf).is_some_and(|n| n.changed);
        match (dynamic.unwrap_or(changed), value) {
            (true, Scalar::Int(_) | Scalar::Float(_)) => LeafSpecialisation::Number(value, None),
            _ => LeafSpecialisation::Scalar(value),
        }
    }
    fn dim(
        &self,
        spec: &mut Specialisation,
        array: &Array,
        leaf: usize,
        dim: usize,
        dynamic: Option<bool>,
    ) -> DimSpecialisation {
        let n = array.shape()[dim];
        let known = self.leaves.get(leaf).and_then(|l| l.get(dim)).copied().unwrap_or_default();
        let mark = array.mark(dim);
        let wanted = match (dynamic, &mark) {
            (Some(false), _) | (_, Some(Mark::Static)) => false,
            (_, Some(Mark::Dynamic(..))) | (Some(true), _) => true,
            (None, None) => known.changed,
        };
        if n < 2 || known.pinned || !wanted {
            return DimSpecialisation::Static(n);
        }
        let (min, max) = match mark {
            Some(Mark::Dynamic(min, max)) => (min.max(2), max),
            _ => (2, None),
        };
        // A marked dimension has a range of its own.
        let same = |(s, value): &(Symbol, usize)| *value == n && (s.min, s.max) == (min, max);
        let at = spec.symbols.iter().position(same).unwrap_or_else(|| {
            let name = format!("s{}", spec.symbols.len());
            spec.symbols.push((Symbol { name, min, max, divisor: 1, input: leaf, dim }, n));
            spec.symbols.len() - 1
        });
        DimSpecialisation::Symbol(at)
    }
}

impl Specialisation {
    /// The plan with one symbol specialised; symbol indices stay.
    pub fn without(&self, symbol: usize) -> Specialisation {
        let mut spec = self.clone();
        let n = spec.symbols.get(symbol).map_or(0, |(_, n)| *n);
        for leaf in &mut spec.leaves {
            let dims = match leaf {
                LeafSpecialisation::Tensor(_, dims) => dims,
                LeafSpecialisation::Number(_, s) => {
                    *s = s.filter(|s| *s != symbol);
                    continue;
                }
                LeafSpecialisation::Scalar(_) => continue,
            };
            dims.iter_mut()
                .filter(|d| **d == DimSpecialisation::Symbol(symbol))
                .for_each(|d| *d = DimSpecialisation::Static(n));
        }
        spec
    }
    /// Occurrences of a symbol: leaves and dimensions.
    pub fn occurrences(&self, symbol: usize) -> Vec<(usize, usize)> {
        let mut all = vec![];
        for (i, leaf) in self.leaves.iter().enumerate() {
            let dims = match leaf {
                LeafSpecialisation::Tensor(_, dims) => dims,
                LeafSpecialisation::Number(_, s) => {
                    all.extend((*s == Some(symbol)).then_some((i, 0)));
                    continue;
                }
                LeafSpecialisation::Scalar(_) => continue,
            };
            all.extend(
                dims.iter()
                    .enumerate()
                    .filter(|(_, d)| **d == DimSpecialisation::Symbol(symbol))
                    .map(|(d, _)| (i, d)),
            );
        }
        all
    }
    /// Whether the dimension was marked by [`mark_dynamic`](crate::tensor::mark_dynamic) or
    /// `mark_static`.
    fn is_marked(&self, (leaf, dim): (usize, usize)) -> bool {
        matches!(self.leaves.get(leaf), Some(LeafSpecialisation::Tensor(array, _)) if array.mark(dim).is_some())
    }
    /// Whether the row pitch of the leaf is a multiple of [`DIVISOR`] only if this dimension is:
    /// not the outermost one, and the static inner sizes are not a multiple already.
    fn is_row_pitch(&self, (leaf, dim): (usize, usize)) -> bool {
        let Some(LeafSpecialisation::Tensor(_, dims)) = self.leaves.get(leaf) else { return false };
        let inner = dims
            .iter()
            .skip(dim + 1)
            .map(|d| if let DimSpecialisation::Static(n) = d { *n } else { 1 });
        dim > 0 && !inner.fold(1, usize::wrapping_mul).is_multiple_of(DIVISOR as usize)
    }
    /// Indices of the symbols in use.
    pub fn used(&self) -> Vec<usize> {
        (0..self.symbols.len()).filter(|s| !self.occurrences(*s).is_empty()).collect()
    }
    /// Whether a leaf is a number passed as an input.
    pub fn is_number(&self, leaf: usize) -> bool {
        matches!(self.leaves.get(leaf), Some(LeafSpecialisation::Number(..)))
    }
    /// The guards of this plan. With `open`, any size and number passes. Of the number inputs,
    /// those in `sized` are used as sizes.
    pub fn guards(&self, names: Vec<String>, open: bool, sized: &[usize]) -> Guards {
        let mut guards = Guards { names, ..Default::default() };
        for leaf in &self.leaves {
            let (array, dims) = match leaf {
                // Segments call the function with its value each time.
                LeafSpecialisation::Scalar(
                    s @ (Scalar::Int(_) | Scalar::Float(_) | Scalar::Bool(_)),
                ) if open => {
                    guards.inputs.push(InputGuard::Any(*s));
                    continue;
                }
                LeafSpecialisation::Scalar(s) => {
                    guards.inputs.push(InputGuard::Scalar(*s));
                    continue;
                }
                LeafSpecialisation::Number(s, _) => {
                    guards.inputs.push(InputGuard::Any(*s));
                    continue;
                }
                LeafSpecialisation::Tensor(array, dims) => (array, dims),
            };
            let (first, rank) = (guards.sizes.len(), dims.len());
            let dtype = dtype_word(array.dtype().name());
            guards.inputs.push(InputGuard::Tensor(TensorGuard {
                dtype,
                rank,
                first,
                gpu: array.device().gpu(),
                layout: Layout::Rows,
                align: 1,
            }));
            let size = |d: &DimSpecialisation| {
                if let (DimSpecialisation::Static(n), false) = (d, open) {
                    *n as i64
                } else {
                    DYNAMIC
                }
            };
            guards.sizes.extend(dims.iter().map(size));
        }
        if open {
            return guards;
        }
        for s in self.used() {
            let occurrences = self.occurrences(s);
            let Some((input, dim)) = occurrences.first().copied() else { continue };
            if self.is_number(input) && !sized.contains(&input) {
                continue;
            }
            let symbol = guards.symbols.len();
            guards.symbols.push(Symbol { input, dim, ..self.symbols[s].0.clone() });
            guards.same.extend(occurrences.into_iter().skip(1).map(|(input, dim)| Same {
                input,
                dim,
                symbol,
            }));
        }
        guards
    }
}

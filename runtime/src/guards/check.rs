//! Whether a call satisfies the guards of a program, and which it violates.
use super::{
    DYNAMIC, Guards, InputGuard, Layout, LeafView, Mismatch, Scalar, TensorGuard, dtype_name,
    dtype_word,
};
use crate::{
    DeviceId, View,
    program::{Condition, values},
};

fn same_sizes(want: &[i64], shape: &[usize]) -> bool {
    want.iter().zip(shape).all(|(want, have)| *want == DYNAMIC || *want == *have as i64)
}

/// Whether static sizes match and strides are row-major, in one pass.
fn row_major_sizes(want: &[i64], shape: &[usize], strides: &[isize]) -> bool {
    let (mut next, mut dense, mut empty) = (1isize, true, false);
    for ((want, n), stride) in want.iter().zip(shape).zip(strides).rev() {
        if *want != DYNAMIC && *want != *n as i64 {
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
        let here = match (view.device(), self.gpu) {
            (DeviceId::Host, None) => true,
            (DeviceId::Cuda(have), Some(want)) => have == want,
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
    pub fn check(&self, leaves: &[LeafView]) -> bool {
        self.inputs.len() == leaves.len()
            && self.inputs.iter().zip(leaves).all(|(guard, leaves)| match (guard, leaves) {
                (InputGuard::Tensor(t), LeafView::Tensor(view)) => {
                    t.satisfied_by(view, &self.sizes)
                }
                (InputGuard::Scalar(want), LeafView::Scalar(have)) => want == have,
                (InputGuard::Any(want), LeafView::Scalar(have)) => want.same_kind(have),
                _ => false,
            })
            && (self.symbols.is_empty() || self.dynamic_sizes(leaves).is_none())
    }

    /// The first violated guard of dynamic sizes; assumes that the leaves' kinds match.
    fn dynamic_sizes(&self, leaves: &[LeafView]) -> Option<Mismatch> {
        let size = |input: usize, dim: usize| match leaves.get(input) {
            Some(LeafView::Tensor(view)) => view.shape().get(dim).map(|n| *n as i64),
            Some(LeafView::Scalar(Scalar::Int(n))) => Some(*n),
            _ => None,
        };
        let size_name = |input: usize, dim: usize| self.size_name(input, dim);
        let mut known = Vec::with_capacity(self.symbols.len());
        for s in &self.symbols {
            let n = size(s.input, s.dim).unwrap_or(DYNAMIC);
            if n < s.min
                || s.max.is_some_and(|max| n > max)
                || (s.divisor > 1 && n % s.divisor != 0)
            {
                let guard = format!("{} is {}", size_name(s.input, s.dim), s.range());
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
                size(s.input, s.dim).unwrap_or(DYNAMIC),
                known.get(s.symbol).copied().unwrap_or(DYNAMIC),
            );
            if n != want {
                let first =
                    self.symbols.get(s.symbol).map_or(String::new(), |s| size_name(s.input, s.dim));
                let guard = format!("{} == {first}", size_name(s.input, s.dim));
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

    pub(super) fn name(&self, input: usize) -> &str {
        self.names.get(input).map_or("an argument", String::as_str)
    }

    /// A size's name in messages: an integer argument may be one.
    pub(super) fn size_name(&self, input: usize, dim: usize) -> String {
        match self.inputs.get(input) {
            Some(InputGuard::Any(_)) => self.name(input).to_string(),
            _ => format!("{}.size({dim})", self.name(input)),
        }
    }

    /// The first guard that a call violates.
    pub fn mismatch(&self, leaves: &[LeafView]) -> Option<Mismatch> {
        // A list of another length is reported first: the number of leaves follows from it.
        for (i, (guard, leaves)) in self.inputs.iter().zip(leaves).enumerate() {
            if let Some(found) = self.leaf(i, guard, leaves) {
                return Some(found);
            }
        }
        if self.inputs.len() != leaves.len() {
            let (want, have) = (self.inputs.len().to_string(), leaves.len().to_string());
            return Some(Mismatch {
                guard: "the number of arguments".into(),
                want,
                have,
                input: None,
                dim: None,
            });
        }
        self.dynamic_sizes(leaves)
    }

    fn leaf(&self, i: usize, guard: &InputGuard, leaves: &LeafView) -> Option<Mismatch> {
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
        match (guard, leaves) {
            (InputGuard::Scalar(want), LeafView::Scalar(have)) if want == have => None,
            (InputGuard::Any(want), LeafView::Scalar(have)) if want.same_kind(have) => None,
            (InputGuard::Any(want), LeafView::Scalar(have)) => Some(Mismatch {
                guard: format!("{name}: any {}", want.kind()),
                want: want.kind().into(),
                have: have.kind().into(),
                input: Some(i),
                dim: None,
            }),
            (InputGuard::Scalar(want), LeafView::Scalar(have)) => {
                found("", want.to_string(), have.to_string(), None)
            }
            (InputGuard::Tensor(t), LeafView::Tensor(v)) => {
                if dtype_word(v.dtype()) != t.dtype {
                    return found(".dtype", dtype_name(t.dtype), v.dtype().to_string(), None);
                }
                if v.shape().len() != t.rank {
                    return found(".rank", t.rank.to_string(), v.shape().len().to_string(), None);
                }
                let want = self.sizes.get(t.first..t.first + t.rank).unwrap_or_default();
                for (d, (want, have)) in want.iter().zip(v.shape()).enumerate() {
                    if *want != DYNAMIC && *want != *have as i64 {
                        return found(
                            &format!(".size({d})"),
                            want.to_string(),
                            have.to_string(),
                            Some(d),
                        );
                    }
                }
                let gpu = t.gpu.map_or(DeviceId::Host, DeviceId::Cuda);
                if gpu != v.device() {
                    return found(".device", gpu.to_string(), v.device().to_string(), None);
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
            (InputGuard::Tensor(_), LeafView::Scalar(s)) => {
                found("", "a tensor".into(), s.to_string(), None)
            }
            (InputGuard::Scalar(s) | InputGuard::Any(s), LeafView::Tensor(_)) => {
                found("", s.to_string(), "a tensor".into(), None)
            }
        }
    }
}

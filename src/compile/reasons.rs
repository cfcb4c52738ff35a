//! Recompilation reasons and their remedies: the texts of remarks.
use super::{Arguments, Compiled, Function, Leaf, entry::Entry};
use crate::runtime::guards::{InputGuard, LeafView, Scalar as Number};
use std::sync::Arc;

impl<F: Function<A>, A: Arguments> Compiled<F, A> {
    /// Why no program covers a call; `None` if there was no program.
    pub(super) fn recompiled(
        &self,
        entries: &[Arc<Entry>],
        all: &[Leaf],
        leaf_views: &[LeafView],
    ) -> Option<String> {
        let last = entries.last()?;
        if let Some(e) = last.compile_error() {
            return Some(format!(
                "compiled again with sizes as numbers, since with symbols there is no program: {e}"
            ));
        }
        let Some(m) = last.guards.mismatch(leaf_views) else {
            let weight = last.stale().unwrap_or("a weight");
            return Some(format!(
                "compiled again, since {weight} was changed, which is part of the program; without freeze(true) it need not be"
            ));
        };
        let remedy = match (m.input.and_then(|i| last.guards.inputs.get(i)), m.dim) {
            (Some(InputGuard::Tensor(_)), Some(d)) if self.settings.dynamic == Some(false) => {
                format!(
                    "sizes are numbers, since dynamic is false; without that dimension {d} becomes a symbol"
                )
            }
            (Some(InputGuard::Tensor(_)), Some(d)) if m.want.contains("a multiple of") => {
                format!(
                    "from now on programs are for all sizes, behind those for multiples; mark_dynamic on dimension {d} makes one for all at the first call"
                )
            }
            (Some(InputGuard::Tensor(_)), Some(d)) => {
                format!(
                    "mark_dynamic on dimension {d} makes one program for all sizes at the first call"
                )
            }
            (Some(InputGuard::Scalar(value)), _) => match m.input.and_then(|i| all.get(i)) {
                Some(Leaf::Number(_)) => {
                    self.number_remedy(last, m.input.unwrap_or_default(), value)
                }
                _ => PLAIN_NUMBER_REMEDY.into(),
            },
            _ => "calls with other types have programs of their own".into(),
        };
        Some(format!("compiled again, since {m}; {remedy}"))
    }

    /// The remedy for a number that changed.
    fn number_remedy(&self, entry: &Entry, leaf: usize, value: &Number) -> String {
        match (entry.specialised_numbers.iter().find(|(l, _)| *l == leaf), value) {
            _ if self.settings.dynamic == Some(false) => "numbers are part of the program, since dynamic is false".into(),
            (Some((_, why)), _) => format!("each value has a program of its own, since {why}"),
            (None, Number::Int(_) | Number::Float(_)) => {
                "from now on it is an input of the program, which dynamic(true) makes it at the first call".into()
            }
            _ => "a truth value is a part of the program".into(),
        }
    }

    pub(super) fn limit(
        &self,
        entries: &[Arc<Entry>],
        all: &[Leaf],
        leaf_views: &[LeafView],
    ) -> String {
        let n = entries.len();
        let found = entries.last().and_then(|e| e.guards.mismatch(leaf_views));
        let leaf = found.as_ref().and_then(|m| m.input).and_then(|i| all.get(i));
        let remedy = if let Some(Leaf::Scalar(_)) = leaf {
            PLAIN_NUMBER_REMEDY
        } else {
            "pass it in another way"
        };
        let why = found.map_or("guards fail".into(), |m| m.to_string());
        format!(
            "{n} programs have been made, which is the limit; calls that none is right for run op by op from now on. What changes: {why}; \
             {remedy}, or raise the option cache_size_limit"
        )
    }
}

/// Remedy for plain number arguments.
const PLAIN_NUMBER_REMEDY: &str = "a plain number is a part of the program, each value of one; where the function takes it as a kiln::Scalar, one program takes all";

//! A compiled graph of a function, and its calls.
use super::{background::ProgramFuture, donation::may_have_written, specialisation, tree::Leaf};
use crate::{
    Error,
    dialects::value::DType,
    runtime::{
        DataError,
        guards::{LeafView, Scalar},
        program::Alias,
    },
    tensor::{self, Array, DonatedMemory, Lifted, ResultSource, Tensor, resolve_slot},
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A captured and compiled graph.
pub(super) struct CompiledGraph {
    /// `None` if nothing has to be computed.
    pub program: Option<Arc<ProgramFuture>>,
    /// Inputs after the arguments: lifted weights, which each call reads anew, and numbers.
    pub lifted: Vec<Lifted>,
    /// Of each of them, whether it is a weight that is donated.
    pub donated_weights: Vec<bool>,
    /// Results that calls have written to the memory of inputs.
    pub donations: AtomicU64,
    pub results: Vec<ResultLeaf>,
    /// The captured graph as text, if kept.
    pub text: String,
}

/// A leaf of the function's result.
pub(super) enum ResultLeaf {
    Tensor(ResultSource),
    Scalar(Scalar),
    /// A number, computed as a 0-d tensor.
    Number(ResultSource),
}

impl CompiledGraph {
    /// Runs it on arguments that satisfy the guards; `leaf_views` is their view for guards. `None`
    /// if the program is still being compiled, or failed to compile.
    pub fn run(
        &self,
        leaves: &[Leaf],
        leaf_views: &[LeafView],
    ) -> Result<Option<Vec<Leaf>>, Error> {
        let program = match self.program.as_ref().map(|p| p.ready()) {
            None => None,
            Some(None) => return Ok(None),
            Some(ready) => ready,
        };
        let aliases = program.and_then(|p| p.program()).map_or(&[][..], |p| &p.aliases);
        let (lifted, taken) = self.lifted(leaves, aliases)?;
        let results: Vec<Arc<Array>> = match program {
            None => vec![],
            Some(program) => {
                let mut views = Vec::with_capacity(leaf_views.len() + lifted.len());
                views.extend(leaf_views.iter().filter_map(|g| {
                    if let LeafView::Tensor(view) = g { Some(*view) } else { None }
                }));
                views.extend(lifted.iter().map(|a| a.as_view()));
                let mut donated = donated(leaves, &lifted, aliases);
                let offered = donated.iter().flatten().count();
                let made = program.run_donated(&views, &mut donated).inspect_err(|e| {
                    if !may_have_written(e) {
                        self.restore(&taken, &lifted);
                    }
                })?;
                let used = offered - donated.iter().flatten().count();
                self.donations.fetch_add(used as u64, Ordering::Relaxed);
                made.into_iter().map(Arc::new).collect()
            }
        };
        let input =
            |n| leaves.iter().filter_map(specialisation::array).chain(&lifted).nth(n).cloned();
        let leaf = |r: &ResultLeaf| match r {
            ResultLeaf::Scalar(s) => Ok(Leaf::Scalar(*s)),
            ResultLeaf::Tensor(slot) => {
                Ok(Leaf::Tensor(resolve_slot(slot, &results, input)?.into()))
            }
            ResultLeaf::Number(slot) => {
                let array: Tensor = resolve_slot(slot, &results, input)?.into();
                let float = array.dtype()?.is_float();
                let value =
                    if float { Scalar::Float(array.item()?) } else { Scalar::Int(array.item()?) };
                Ok(Leaf::Number(tensor::Scalar::plain(value)))
            }
        };
        self.results.iter().map(leaf).collect::<Result<_, _>>().map(Some)
    }

    /// The values of lifted inputs in a call, and which of them it has taken from their weights.
    fn lifted(
        &self,
        leaves: &[Leaf],
        aliases: &[Alias],
    ) -> Result<(Vec<Arc<Array>>, Vec<usize>), Error> {
        let (mut all, mut taken) = (Vec::with_capacity(self.lifted.len()), vec![]);
        let mut wanted = vec![false; self.lifted.len()];
        if self.donated_weights.contains(&true) {
            let arguments = leaves.iter().filter_map(specialisation::array).count();
            for n in aliases.iter().filter_map(|a| a.input.checked_sub(arguments)) {
                if let (Some(wanted), Some(donated)) =
                    (wanted.get_mut(n), self.donated_weights.get(n))
                {
                    *wanted = *donated;
                }
            }
        }
        for (n, input) in self.lifted.iter().enumerate() {
            let value = match input {
                Lifted::Weight(w) if wanted[n] => w.donate(),
                _ => None,
            };
            if value.is_some() {
                taken.push(n);
            }
            match value.map_or_else(|| lifted(input, leaves), Ok) {
                Ok(array) => all.push(array),
                Err(e) => {
                    self.restore(&taken, &all);
                    return Err(e);
                }
            }
        }
        Ok((all, taken))
    }

    /// Gives weights back that a call has not overwritten. `taken`: which of the lifted inputs.
    fn restore(&self, taken: &[usize], lifted: &[Arc<Array>]) {
        for n in taken {
            if let (Some(Lifted::Weight(w)), Some(array)) = (self.lifted.get(*n), lifted.get(*n)) {
                w.restore(array.clone());
            }
        }
    }
}

/// The memory of inputs that results may take, for each input.
fn donated(
    leaves: &[Leaf],
    lifted: &[Arc<Array>],
    aliases: &[Alias],
) -> Vec<Option<DonatedMemory>> {
    if aliases.is_empty() {
        return vec![];
    }
    let arrays = leaves.iter().filter_map(specialisation::array).chain(lifted);
    let arrays: Vec<&Arc<Array>> = arrays.collect();
    let mut donated = vec![];
    donated.resize_with(arrays.len(), || None);
    for alias in aliases {
        if let Some(array) = arrays.get(alias.input) {
            donated[alias.input] = DonatedMemory::of(array);
        }
    }
    donated
}

/// The value of a lifted input in a call.
fn lifted(input: &Lifted, leaves: &[Leaf]) -> Result<Arc<Array>, Error> {
    let value = |leaf: &usize| match leaves.get(*leaf) {
        Some(Leaf::Number(s)) => s.peek(),
        Some(Leaf::Scalar(s)) => *s,
        _ => Scalar::Count(0),
    };
    let made = match input {
        Lifted::Weight(w) => {
            return w.array().map_err(|e| Error::Weight(format!("weight {} {e}", w.name)));
        }
        Lifted::Array(array) => return Ok(array.clone()),
        Lifted::Number(leaf) => match value(leaf) {
            Scalar::Float(x) => Array::from_slice(&[], &[x]),
            Scalar::Int(n) => Array::from_slice(&[], &[n]),
            other => Err(format!("{other} is no number").into()),
        },
        Lifted::Size(leaf) => match value(leaf) {
            Scalar::Int(n) => usize::try_from(n)
                .map_err(DataError::malformed)
                .and_then(|n| Array::from_bytes(DType::I8, &[0, n], &[])),
            other => Err(format!("{other} is no size").into()),
        },
    };
    Ok(made.map(Arc::new)?)
}

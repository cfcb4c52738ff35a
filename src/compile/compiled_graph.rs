//! A compiled graph of a function, and its calls.
use super::{background::ProgramFuture, specialisation, tree::Leaf};
use crate::{
    Error,
    dialects::value::DType,
    runtime::{
        DataError,
        guards::{LeafView, Scalar},
    },
    tensor::{self, Array, Lifted, ResultSource, Tensor, resolve_slot},
};
use std::sync::Arc;

/// A captured and compiled graph.
pub(super) struct CompiledGraph {
    /// `None` if nothing has to be computed.
    pub program: Option<Arc<ProgramFuture>>,
    /// Inputs after the arguments: lifted weights, which each call reads anew, and numbers.
    pub lifted: Vec<Lifted>,
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
        let lifted = self
            .lifted
            .iter()
            .map(|input| lifted(input, leaves))
            .collect::<Result<Vec<Arc<Array>>, _>>()?;
        let results: Vec<Arc<Array>> = match program {
            None => vec![],
            Some(program) => {
                let mut views = Vec::with_capacity(leaf_views.len() + lifted.len());
                views.extend(leaf_views.iter().filter_map(|g| {
                    if let LeafView::Tensor(view) = g { Some(*view) } else { None }
                }));
                views.extend(lifted.iter().map(|a| a.as_view()));
                program.run(&views)?.into_iter().map(Arc::new).collect()
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
            return w
                .array()
                .ok_or_else(|| Error::Weight(format!("weight {} has no value", w.name)));
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

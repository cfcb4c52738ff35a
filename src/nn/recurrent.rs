//! `torch.nn.LSTM`, `GRU` and `RNN`, with `batch_first=True`.
use super::{Module, Parameter, Scope, linear::bound};
use crate::tensor::{Cell, Recurrence, Tensor};
use std::panic::Location;

/// Recurrent layers over [B, T, inputs]; the result is [B, T, hidden · directions].
#[derive(Debug)]
pub struct Recurrent {
    cell: Cell,
    form: Recurrence,
    hidden: usize,
    weights: Vec<Parameter>,
}

impl Recurrent {
    /// `inputs` features to `hidden` ones in each direction. Weights have PyTorch's names
    /// (`weight_ih_l0`, `bias_hh_l1_reverse`), and its initial values: uniform in ±1 / sqrt(hidden).
    pub fn new(
        scope: &Scope,
        cell: Cell,
        inputs: usize,
        hidden: usize,
        form: Recurrence,
    ) -> Recurrent {
        let (rows, mut weights) = (cell.gates().saturating_mul(hidden), vec![]);
        for layer in 0..form.layers {
            let columns = if layer == 0 { inputs } else { hidden * form.directions() };
            for direction in ["", "_reverse"].into_iter().take(form.directions()) {
                let mut add = |name: &str, shape: &[usize]| {
                    let name = format!("{name}_l{layer}{direction}");
                    weights.push(scope.parameter(&name, shape, bound(hidden)));
                };
                add("weight_ih", &[rows, columns]);
                add("weight_hh", &[rows, hidden]);
                if form.biases {
                    add("bias_ih", &[rows]);
                    add("bias_hh", &[rows]);
                }
            }
        }
        Recurrent { cell, form, hidden, weights }
    }
    /// The outputs and the final state from an initial one, or from zeros; see
    /// [`Tensor::recurrent`] for its form.
    #[track_caller]
    pub fn run(&self, x: &Tensor, state: Option<Vec<Tensor>>) -> (Tensor, Vec<Tensor>) {
        let g = x.graph();
        let _frame = g.frame(Location::caller());
        let zeros = || {
            let rows = self.form.layers * self.form.directions();
            let zero =
                x.dtype().map(|dtype| g.zeros([rows.into(), x.size(0), self.hidden.into()], dtype));
            vec![zero.unwrap_or_else(|_| x.clone()); self.cell.states()]
        };
        let weights = self.weights.iter().map(|w| w.on(&g)).collect();
        x.recurrent(self.cell, state.unwrap_or_else(zeros), weights, self.form)
    }
}

impl Module for Recurrent {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.run(x, None).0
    }
    fn parameters(&self) -> Vec<&Parameter> {
        self.weights.iter().collect()
    }
}

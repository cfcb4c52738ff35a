//! Recurrent layers: PyTorch's `torch.lstm`, `gru`, `rnn_tanh` and `rnn_relu`.
use super::{Tensor, arg::Arg, emit};
use crate::capture::aten::Val;
use std::panic::Location;

/// The cell of a recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// `torch.nn.LSTM`: its state is an output and a cell.
    Lstm,
    /// `torch.nn.GRU`.
    Gru,
    /// `torch.nn.RNN` with tanh.
    Tanh,
    /// `torch.nn.RNN` with relu.
    Relu,
}

impl Cell {
    /// Gates: the rows of a weight for each row of the hidden state.
    pub(crate) fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }
    /// Tensors of the state.
    pub(crate) fn states(self) -> usize {
        if self == Cell::Lstm { 2 } else { 1 }
    }
}

/// How many layers there are, and in which directions they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recurrence {
    /// Layers, each on the outputs of the one before.
    pub layers: usize,
    /// Whether a second cell goes from the end to the beginning; outputs are concatenated.
    pub bidirectional: bool,
    /// Whether gates have biases.
    pub biases: bool,
}

impl Default for Recurrence {
    fn default() -> Recurrence {
        Recurrence { layers: 1, bidirectional: false, biases: true }
    }
}

impl Recurrence {
    /// 2 if bidirectional, else 1.
    pub(crate) fn directions(self) -> usize {
        1 + usize::from(self.bidirectional)
    }
}

impl Tensor {
    /// Recurrent layers over [B, T, inputs]: the outputs [B, T, hidden · directions], and the final
    /// state, each tensor [layers · directions, B, hidden]. `state` is the initial one, in the same
    /// form: hidden, and the cell for [`Cell::Lstm`]. `weights` are PyTorch's, in its order: for each
    /// layer and direction the gates' weights of the input and of the hidden state, then their
    /// biases. Error: another number of weights, or other shapes.
    #[track_caller]
    pub fn recurrent(
        &self,
        cell: Cell,
        state: Vec<Tensor>,
        weights: Vec<Tensor>,
        form: Recurrence,
    ) -> (Tensor, Vec<Tensor>) {
        let (op, target) = match cell {
            Cell::Lstm => ("lstm", "aten.lstm.input"),
            Cell::Gru => ("gru", "aten.gru.input"),
            Cell::Tanh => ("rnn_tanh", "aten.rnn_tanh.input"),
            Cell::Relu => ("rnn_relu", "aten.rnn_relu.input"),
        };
        if state.len() != cell.states() {
            let reason = format!("has {} tensors as its state, not {}", state.len(), cell.states());
            let poisoned = self.refuse(op, reason);
            return (poisoned.clone(), vec![poisoned; cell.states()]);
        }
        let [first] = &state[..] else {
            let hx = Arg::Tensors(state);
            let [y, hidden, cell] = self.layers(op, target, hx, weights, form);
            return (y, vec![hidden, cell]);
        };
        let [y, hidden] = self.layers(op, target, Arg::tensor(first), weights, form);
        (y, vec![hidden])
    }
    #[track_caller]
    fn layers<const R: usize>(
        &self,
        op: &'static str,
        target: &'static str,
        hx: Arg,
        weights: Vec<Tensor>,
        form: Recurrence,
    ) -> [Tensor; R] {
        let flag = |on: bool| Arg::Plain(Val::Bool(on));
        let args = vec![
            ("input", Arg::tensor(self)),
            ("hx", hx),
            ("params", Arg::Tensors(weights)),
            ("has_biases", flag(form.biases)),
            ("num_layers", Arg::from(form.layers as i64)),
            ("dropout", Arg::from(0.0)),
            ("train", flag(false)),
            ("bidirectional", flag(form.bidirectional)),
            ("batch_first", flag(true)),
        ];
        emit::exactly(Location::caller(), op, target, args)
    }
}

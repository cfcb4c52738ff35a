//! Whether weights are where they were when a program was compiled.
use crate::{
    nn::stored::{self, Stored},
    runtime::DeviceId,
    tensor::Lifted,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Where weights were when a program was compiled for their devices.
#[derive(Default)]
pub(super) struct Placed {
    weights: Vec<(Arc<Stored>, DeviceId)>,
    /// The moves of any weight that have been looked at.
    moves: AtomicU64,
}

impl Placed {
    /// The lifted weights of a program that is about to be compiled.
    pub fn of(lifted: &[Lifted]) -> Placed {
        // Before the devices, so that a move meanwhile is noticed.
        let moves = AtomicU64::new(stored::moves());
        let weight = |l: &Lifted| match l {
            Lifted::Weight(w) => Some((w.clone(), w.device())),
            _ => None,
        };
        Placed { weights: lifted.iter().filter_map(weight).collect(), moves }
    }
    /// Whether all are where they were.
    pub fn is_current(&self) -> bool {
        let moves = stored::moves();
        if self.moves.load(Ordering::Relaxed) == moves {
            return true;
        }
        let same = self.weights.iter().all(|(w, device)| w.device() == *device);
        if same {
            self.moves.store(moves, Ordering::Relaxed);
        }
        same
    }
}

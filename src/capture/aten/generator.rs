//! The state of the random number generator of a graph under capture.
use crate::capture::unsupported;
use kiln_dialects::{ir::*, sym::Dim, value::DType};

/// Name of the input that holds the generator state.
pub const STATE: &str = "rng_state";

/// The generator of a program under capture.
pub struct Rng {
    /// The builder at the function's entry block.
    entry: Builder,
    /// The state, once an op has drawn.
    state: Option<Value>,
    /// Number of draws so far.
    draws: i64,
    /// Number of loops around the insertion point.
    pub loops: usize,
}

impl Rng {
    /// The generator of a function, at its entry block.
    pub fn new(entry: Builder) -> Rng {
        Rng { entry, state: None, draws: 0, loops: 0 }
    }
    /// The state and the number of the next draw. Err: inside a loop.
    pub(super) fn next(&mut self) -> Result<(Value, i64)> {
        if self.loops > 0 {
            return Err(unsupported("draws random numbers in a loop"));
        }
        let state = *self.state.get_or_insert_with(|| {
            let ty = Type::tensor(self.entry.ctx, DType::I64, &[Dim::Known(2)]);
            self.entry.argument(ty, self.entry.loc.named(STATE))
        });
        self.draws += 1;
        Ok((state, self.draws - 1))
    }
    /// The type of the state if an op has drawn, which the function's signature lacks.
    pub fn state_type(&self) -> Option<Type> {
        self.state.map(|s| s.ty())
    }
}

//! The state of the random number generator of a graph under capture.
use crate::capture::unsupported;
use kiln_dialects::{ir::*, sym::Dim, value::DType};

/// Name of the input that holds the generator state.
pub const STATE: &str = "rng_state";

/// Which numbers the elements of a draw take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RandomOrder {
    /// Those of `kiln.random_bits`, which depend on no device.
    #[default]
    RowMajor,
    /// Those of PyTorch's kernels on a GPU that runs so many threads at once: SMs times threads an
    /// SM.
    Cuda {
        /// The threads, a positive multiple of 256.
        threads: i64,
    },
}

/// The generator of a program under capture.
pub struct Rng {
    /// The builder at the function's entry block.
    entry: Builder,
    /// The type of the state, once the function takes it.
    taken: Option<Type>,
    /// The state here, if the function takes it: its argument, or what a loop has left.
    state: Option<Value>,
    /// Number of draws of this state so far.
    draws: i64,
    /// Number of loops around the insertion point.
    loops: usize,
    /// Number of branches around the insertion point.
    branches: usize,
    /// Which numbers a draw takes.
    order: RandomOrder,
    /// How far draws in PyTorch's order have moved the offset.
    advanced: Size,
}

/// The generator outside of a region, while capture is inside.
pub struct Outside(Option<Value>, i64);

/// What capture enters.
#[derive(Clone, Copy)]
pub enum Inside {
    /// A branch, whose draws count on.
    Branch,
    /// A branch that gives the state on, or a step or the condition of a loop: it begins with a
    /// state and a number of draws of it, if it may draw.
    Own {
        /// Whether it is of a loop.
        looped: bool,
        /// The state and its draws.
        begins: Option<(Value, i64)>,
    },
}

impl Inside {
    /// Whether it is of a loop.
    fn looped(self) -> bool {
        matches!(self, Inside::Own { looped: true, .. })
    }
}

impl Rng {
    /// The generator of a function, at its entry block.
    pub fn new(entry: Builder, order: RandomOrder) -> Rng {
        let (state, advanced) = (None, Size::Static(0));
        let (loops, branches) = (0, 0);
        Rng { entry, taken: None, state, draws: 0, loops, branches, order, advanced }
    }
    fn state(&mut self) -> Value {
        *self.state.get_or_insert_with(|| {
            let ty = Type::tensor(self.entry.ctx, DType::I64, &[Dim::Known(2)]);
            self.taken = Some(ty);
            self.entry.argument(ty, self.entry.loc.named(STATE))
        })
    }
    /// The state and the number of the next draw. Err: the order is PyTorch's, which the op does
    /// not follow.
    pub(super) fn next(&mut self) -> Result<(Value, i64)> {
        if self.order != RandomOrder::RowMajor {
            return Err(unsupported(
                "draws random numbers by a GPU kernel of its own, whose order align_random_eager does not follow",
            ));
        }
        let state = self.state();
        self.draws += 1;
        Ok((state, self.draws - 1))
    }
    /// The state and the number of draws that a loop begins with; each step carries them on.
    pub fn carry(&mut self) -> (Value, i64) {
        let draws = self.draws;
        (self.state(), draws)
    }
    /// Whether loops carry a state: draws in PyTorch's order are refused in them.
    pub fn carries(&self) -> bool {
        self.order == RandomOrder::RowMajor
    }
    /// Enters a region.
    pub fn enter(&mut self, inside: Inside) -> Outside {
        self.loops += usize::from(inside.looped());
        self.branches += usize::from(!inside.looped());
        let outside = Outside(self.state, self.draws);
        if let Inside::Own { begins: Some((state, draws)), .. } = inside {
            (self.state, self.draws) = (Some(state), draws);
        }
        outside
    }
    /// Leaves it; returns the state there and the number of its draws.
    pub fn leave(&mut self, inside: Inside, outside: Outside) -> (Option<Value>, i64) {
        self.loops -= usize::from(inside.looped());
        self.branches -= usize::from(!inside.looped());
        let left = (self.state, self.draws);
        if let Inside::Own { .. } = inside {
            (self.state, self.draws) = (outside.0, outside.1);
        }
        left
    }
    /// Goes on with the state that a loop or a branch has left, after a number of draws of it.
    pub fn resume(&mut self, state: Value, draws: i64) {
        (self.state, self.draws) = (Some(state), draws);
    }
    /// The threads of the GPU whose order draws follow, if any.
    pub(super) fn threads(&self) -> Option<i64> {
        match self.order {
            RandomOrder::RowMajor => None,
            RandomOrder::Cuda { threads } => Some(threads),
        }
    }
    /// The state of a draw in PyTorch's order, and how far earlier draws have moved its offset.
    /// Err: in a branch or a loop, after which the offset would depend on data.
    pub(super) fn aligned(&mut self) -> Result<(Value, Size)> {
        if self.loops + self.branches > 0 {
            return Err(unsupported(
                "draws random numbers in a branch or a loop, where align_random_eager cannot know how many follow",
            ));
        }
        Ok((self.state(), self.advanced))
    }
    /// Moves the offset of draws in PyTorch's order.
    pub(super) fn advance_to(&mut self, advanced: Size) {
        self.advanced = advanced;
    }
    /// How far a call moves the offset of PyTorch's generator.
    pub fn advanced(&self) -> Size {
        self.advanced
    }
    /// The type of the state if an op has drawn, which the function's signature lacks.
    pub fn state_type(&self) -> Option<Type> {
        self.taken
    }
}

//! Tiles in the registers of a thread. Of 8 columns it has 2 adjacent ones, in a row and in the
//! eighth row below.
use crate::gpu::lower_tiles::rings::{Shared, Stage};
use kiln_dialects::ir::*;

/// What a value of a tile program became.
#[derive(Clone)]
pub(super) enum Lowered {
    Scalar(Value),
    Stage(Stage),
    Shared(Shared),
    /// The result of a product that may be under way, as a structure for each 64 rows.
    Pending(Vec<Value>),
    /// Elements of an accumulator: of each 64 rows, of each 8 columns both of the first row, then of
    /// the second.
    Elements(Vec<Value>),
    /// The same, as pairs of 16-bit floats.
    Pairs(Vec<Value>),
    /// A left operand: of each 16 columns, both rows of the first 8, then of the second.
    Operand(Vec<Value>),
    Rows([Value; 2]),
    /// A tile whose columns are all these rows.
    Broadcast([Value; 2]),
    /// A fragment of equal elements.
    Splat(Value),
    /// An op on fragments that is computed where its only user is, element by element.
    Deferred(Op),
    /// A tile in shared memory, of which a map reads elements where it takes them.
    Local(Op),
    /// An element a column, which a map loads where it takes it.
    Loaded(Op),
    /// Both elements of each 8 columns, which were loaded before.
    ColumnElements(Vec<Value>),
    /// The first column, and the last one if the tile may go beyond.
    Columns(Value, Option<Value>),
}

impl Lowered {
    /// Its registers, where a loop carries it.
    pub(super) fn flat(&self) -> Vec<Value> {
        match self {
            Lowered::Scalar(v) => vec![*v],
            Lowered::Stage(s) => vec![s.index, s.parity],
            Lowered::Shared(s) => vec![s.address],
            Lowered::Pending(all)
            | Lowered::Elements(all)
            | Lowered::Pairs(all)
            | Lowered::ColumnElements(all)
            | Lowered::Operand(all) => all.clone(),
            Lowered::Rows(both) | Lowered::Broadcast(both) => both.to_vec(),
            Lowered::Splat(v) => vec![*v],
            Lowered::Deferred(_) | Lowered::Local(_) | Lowered::Loaded(_) => vec![],
            Lowered::Columns(first, last) => [*first].into_iter().chain(*last).collect(),
        }
    }
    /// Values like these, with other registers.
    pub(super) fn like(these: &[Lowered], flat: &[Value]) -> Result<Vec<Lowered>> {
        let mut rest = flat;
        these
            .iter()
            .map(|old| {
                let (own, more) =
                    rest.split_at_checked(old.flat().len()).ok_or("carries too few values")?;
                rest = more;
                Ok(match old {
                    Lowered::Scalar(_) => Lowered::Scalar(own[0]),
                    Lowered::Pending(_) => Lowered::Pending(own.to_vec()),
                    Lowered::Stage(_) => Lowered::Stage(Stage { index: own[0], parity: own[1] }),
                    Lowered::Shared(s) => Lowered::Shared(Shared { address: own[0], ..*s }),
                    Lowered::Elements(_) => Lowered::Elements(own.to_vec()),
                    Lowered::Pairs(_) => Lowered::Pairs(own.to_vec()),
                    Lowered::Operand(_) => Lowered::Operand(own.to_vec()),
                    Lowered::ColumnElements(_) => Lowered::ColumnElements(own.to_vec()),
                    Lowered::Rows(_) => Lowered::Rows([own[0], own[1]]),
                    Lowered::Broadcast(_) => Lowered::Broadcast([own[0], own[1]]),
                    Lowered::Splat(_) => Lowered::Splat(own[0]),
                    Lowered::Deferred(op) => Lowered::Deferred(*op),
                    Lowered::Local(op) => Lowered::Local(*op),
                    Lowered::Loaded(op) => Lowered::Loaded(*op),
                    Lowered::Columns(..) => Lowered::Columns(own[0], own.get(1).copied()),
                })
            })
            .collect()
    }
}

/// Row and column, from the thread's first ones, of element `i` of an accumulator.
pub(super) fn place(i: usize) -> (usize, usize) {
    (i / 2 % 2, i / 4 * 8 + i % 2)
}

/// The element of an accumulator at a row and column from the thread's first ones.
pub(super) fn register(row: usize, column: usize) -> usize {
    column / 8 * 4 + row * 2 + column % 2
}

/// The registers of an accumulator's type for 64 rows.
pub(super) fn registers(ty: Type) -> Result<usize> {
    let columns = ty.dims().last().and_then(|d| d.known()).ok_or("is no tile in registers")?;
    Ok(columns as usize / 2)
}

/// Whether an op is one of arith or math on fragments.
pub(super) fn is_elementwise(op: Op) -> bool {
    let fragment = op.result_count() == 1 && op.result(0).ty().fragment_layout().is_some();
    fragment && op.kind().is_none()
}

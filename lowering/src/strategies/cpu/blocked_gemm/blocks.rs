//! What the code of a blocked product shares: its packed matrices, and the columns of a register
//! tile.
use crate::{
    analysis::Access,
    emit::{
        code::Code,
        lanes::{LaneValue, Lanes},
        loops::{FixedDims, Loops},
    },
    strategies::cpu::blocked_gemm::{GemmRoles, Unit},
};
use kiln_dialects::ir::*;

/// What the code of one product refers to.
pub(super) struct Blocks<'a> {
    /// Loops over columns in vectors, with the epilogue stages.
    pub(super) loops: Loops<'a>,
    /// Roles of the dimensions.
    pub(super) product: GemmRoles,
    /// Instructions that multiply.
    pub(super) unit: Unit,
    /// Rows of a register tile.
    pub(super) m: usize,
    /// Row stride of the packed left matrix, in elements.
    pub(super) left_stride: i64,
    /// Row stride of the accumulators in scratch, in elements.
    pub(super) accumulator_stride: i64,
    /// Packed rows of the left matrix.
    pub(super) left: Value,
    /// Packed columns of the right matrix; `None` if they are read in place.
    pub(super) right: Option<Value>,
    /// Accumulators in scratch, if there are several blocks of K or the unit requires them.
    pub(super) accumulators: Option<Value>,
    /// Whether K is one block.
    pub(super) single: bool,
}

/// Columns of a register tile.
pub(super) struct ColumnGroup {
    /// Fixed loops: all but rows, vector and K.
    pub(super) fixed: FixedDims,
    /// First index in the vector dimension.
    pub(super) start: Value,
    /// Vector count.
    pub(super) count: usize,
    /// Mask of active lanes; `None` if all are.
    pub(super) mask: Option<Value>,
    /// First index in the block of columns.
    pub(super) column: Value,
}

/// A half-open range.
pub(super) type Range = (Value, Value);

impl Blocks<'_> {
    /// The fixed loops, with the one over rows if there is one.
    pub(super) fn at_row(&self, fixed: &FixedDims, row: Value) -> FixedDims {
        let mut fixed = fixed.clone();
        self.product.rows.iter().for_each(|d| fixed[*d] = Some(row));
        fixed
    }

    /// The address of an element that an access reads.
    pub(super) fn element_address(
        &self,
        c: Code,
        access: &Access,
        fixed: &FixedDims,
        vector: Option<LaneValue>,
    ) -> Result<Value> {
        let dims = self.loops.dims(c, fixed, vector)?;
        let one = Lanes { count: 1, mask: None };
        match self.loops.scope.address(c, &access.at, &dims, one)? {
            LaneValue::Uniform(at) => Ok(at),
            _ => Err("has columns that are not in one place".into()),
        }
    }

    /// The scratch address of a group's row of accumulators.
    pub(super) fn accumulator_address(
        &self,
        c: Code,
        g: &ColumnGroup,
        row: Value,
        rows: Range,
    ) -> Result<Value> {
        c.add(c.mul(c.sub(row, rows.0)?, c.index(self.accumulator_stride)?)?, g.column)
    }
}

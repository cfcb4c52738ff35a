//! Pads and concatenations: ops that only insert their operands into a larger tensor are fused into
//! the kernels that compute these operands (destination passing).
use crate::kernels::{
    class::Class,
    fuse::group::{FusionMode, Grouping, Kind, LoopSpan, without_unit_dims},
    graph::Leaf,
    marks::is_packed,
    op_facts::{folding_op, reads},
};
use kiln_dialects::{
    Result,
    ir::{Node as _, Size, Value},
    ops::{DotGeneral, InsertSlice, OpKind, Pad},
};

/// Why a row kernel inserts its rows but copies nothing else.
pub(crate) const OUTSIDE_ROWS: &str = "it has no loops for elements outside its rows";

/// Most elements that a kernel copies per element it computes: its thread count follows from its
/// own work.
pub const MOST_COPIED: i64 = 4;

/// Whether a pad adds elements along a dimension, or may.
fn pads_along(pad: &Pad, d: usize) -> bool {
    [&pad.low[d], &pad.high[d]].iter().any(|s| s.known() != Some(0))
}

impl Grouping<'_> {
    /// Whether a kernel can copy another slice into the tensor it already inserts into; returns
    /// the kernel's kind then.
    pub(crate) fn copies_slice(&self, n: usize, g: usize) -> Result<(Kind, LoopSpan)> {
        let group = &self.groups[g];
        if group.nodes.iter().any(|m| self.pads(*m)) {
            return Err("its result is padded, which must be the last op".into());
        }
        if self.by_rows(g) {
            return Err(OUTSIDE_ROWS.into());
        }
        let whole = self.slice_source(n).unwrap_or(self.graph.nodes[n].value);
        self.check_copied(self.graph.count(self.graph.facts.dims(whole)), g)
            .map(|()| (group.kind, LoopSpan::Full))
    }

    /// Fails if the kernel's own work is too small to copy so many elements.
    fn check_copied(&self, copied: i64, g: usize) -> Result<()> {
        let own = self.graph.count(&self.groups[g].dims);
        if copied > own.saturating_mul(MOST_COPIED) {
            Err("it would copy much more than it computes".into())
        } else {
            Ok(())
        }
    }

    /// Whether a kernel runs over rows that depend on each other's reductions, so that it inserts
    /// one slice and nothing else.
    pub(crate) fn by_rows(&self, g: usize) -> bool {
        matches!(self.groups[g].kind, Kind::Rows | Kind::Reduce | Kind::Attention)
    }

    /// Whether a node only inserts its operands into a larger tensor.
    pub(crate) fn only_inserts(&self, n: usize) -> bool {
        let node = &self.graph.nodes[n];
        node.class == Class::Single
            && node.value.def().is_some_and(|o| {
                matches!(o.kind(), Some(OpKind::Concat | OpKind::Pad | OpKind::InsertSlice))
            })
    }

    /// Whether a node is a pad.
    pub(crate) fn pads(&self, n: usize) -> bool {
        self.graph.nodes[n].value.def().is_some_and(|o| o.kind() == Some(OpKind::Pad))
    }

    /// Whether a kernel that pads or inserts its result can do the other as well: both write each
    /// element as it is computed.
    pub(crate) fn pads_and_inserts(&self, n: usize, g: usize) -> bool {
        let moved = |m: usize| self.graph.nodes[m].value.def().map(|o| o.operand(0));
        let placing: Vec<usize> =
            self.groups[g].nodes.iter().copied().filter(|m| self.only_inserts(*m)).collect();
        let [other] = placing[..] else { return false };
        let one_each = (self.pads(n) && self.slice_source(other).is_some())
            || (self.pads(other) && self.slice_source(n).is_some());
        one_each && moved(n) == moved(other)
    }

    /// The source slice of a node that is an `insert_slice`.
    pub(crate) fn slice_source(&self, n: usize) -> Option<Value> {
        self.graph.nodes[n].value.def().and_then(InsertSlice::of).map(|o| o.source)
    }

    /// The kernel that inserts the previous slice into the same tensor, if another kernel computes
    /// this slice: it can copy the slice.
    pub(crate) fn previous_slice_kernel(&self, n: usize) -> Option<usize> {
        let place = self.graph.nodes[n].value.def().and_then(InsertSlice::of)?;
        let before = self.kernel_of(place.dest?)?;
        // The source may be seen through movements, such as a reshape that drops a unit dimension.
        let own = |v: Value| self.kernel_of(self.graph.base(v)) == Some(before);
        let computed =
            own(place.source) || self.graph.leaves(place.source).iter().any(|leaf| own(leaf.value));
        (!computed).then_some(before)
    }

    /// Whether a kernel computes the position that a node inserts its slice at. A kernel loads it
    /// once, before its loops.
    fn computes_position(&self, n: usize, g: usize) -> bool {
        let start = self.graph.nodes[n].value.def().and_then(InsertSlice::of).and_then(|o| o.start);
        let leaves = start.map(|v| self.graph.leaves(v)).unwrap_or_default();
        leaves.iter().any(|l| self.kernel_of(self.graph.base(l.value)) == Some(g))
    }

    /// Whether a kernel can write its result directly into the destination of a pad or a
    /// concatenation; returns the kernel's kind then.
    pub(crate) fn writes_into_destination(&self, n: usize, g: usize) -> Result<(Kind, LoopSpan)> {
        let (node, group) = (&self.graph.nodes[n], &self.groups[g]);
        if self.computes_position(n, g) {
            return Err("it computes the position that the slice is at".into());
        }
        let op = |m: usize| self.graph.nodes[m].value.def().map(|o| folding_op(o).unwrap_or(o));
        let made_by = |kind: OpKind| {
            group.nodes.iter().any(|m| op(*m).is_some_and(|o| o.kind() == Some(kind)))
        };
        let alone = self.slice_source(n).is_some();
        match group.kind {
            Kind::Contract if made_by(OpKind::Convolution) || made_by(OpKind::DotGeneral) => {}
            Kind::Single if made_by(OpKind::ReduceWindow) => {}
            _ if self.by_rows(g) && alone => {}
            _ if self.by_rows(g) => return Err(OUTSIDE_ROWS.into()),
            _ => return Err("it is a whole-tensor op".into()),
        }
        if group.nodes.iter().any(|m| self.only_inserts(*m)) && !self.pads_and_inserts(n, g) {
            return Err("its result is written into a larger tensor already".into());
        }
        let adds = |all: &[Size]| all.iter().all(|s| s.known().is_some_and(|n| n >= 0));
        if op(n).and_then(Pad::of).is_some_and(|p| !adds(&p.low) || !adds(&p.high)) {
            return Err("it may drop elements".into());
        }
        if op(n).and_then(Pad::of).is_some_and(|p| self.interleaves(&p)) {
            return Err("its threads would fill the pixels between those that they compute".into());
        }
        if op(n).and_then(Pad::of).is_some_and(|p| self.splits_rows(&p, g)) {
            return Err(
                "its rows would be lines of pixels, with a weight that is not packed".into()
            );
        }
        let mine = |l: &&Leaf| self.kernel_of(self.graph.base(l.value)) == Some(g);
        let leaves: Vec<&Leaf> = node.leaves.iter().filter(mine).collect();
        let [leaf] = leaves[..] else { return Err("it reads several of its elements".into()) };
        // A tensor that other kernels have inserted slices into is handed on, not copied.
        let dest = self.graph.nodes[n].value.def().and_then(InsertSlice::of).and_then(|o| o.dest);
        let handed_on = |l: &&Leaf| {
            Some(l.value) == dest && l.value.def().is_some_and(|o| InsertSlice::of(o).is_some())
        };
        let others = node
            .leaves
            .iter()
            .filter(|l| !mine(l) && !handed_on(l))
            .map(|l| self.graph.count(self.graph.facts.dims(l.value)));
        self.check_copied(others.fold(0, i64::saturating_add), g)?;
        let whole = |m: &usize| {
            let dims = without_unit_dims(self.graph.facts.dims(leaf.value));
            dims == if self.forms[*m] == LoopSpan::Full {
                group.dims.clone()
            } else {
                group.row_dims()
            }
        };
        match self.graph.node_of.get(&leaf.value).filter(|m| whole(m) && self.reads_whole(n, leaf))
        {
            Some(m) => Ok((group.kind, self.forms[*m])),
            None => Err(format!("it reads {} at other indices", self.name(leaf.value)).into()),
        }
    }

    /// Whether padding is between elements, as the gradient of a strided convolution has it: along
    /// dimensions of one element.
    fn interleaves(&self, pad: &Pad) -> bool {
        let dims = self.graph.facts.dims(pad.input);
        (1..dims.len()).any(|d| dims[d].known() == Some(1) && pads_along(pad, d))
    }

    /// Whether padding would split the rows of a matmul that packs its right operand for all of them.
    fn splits_rows(&self, pad: &Pad, g: usize) -> bool {
        let packs = |m: &usize| {
            let op = self.graph.nodes[*m].value.def().map(|o| folding_op(o).unwrap_or(o));
            op.filter(|o| !is_packed(*o))
                .and_then(DotGeneral::of)
                .is_some_and(|o| o.lhs_batch.is_empty())
        };
        let dims = self.graph.facts.dims(pad.input);
        // Rows are joined across all dimensions but the columns.
        let line = (1..dims.len().saturating_sub(1)).find(|d| pads_along(pad, *d));
        let splits = line.is_some_and(|d| dims[..d].iter().any(|n| n.known() != Some(1)));
        let refused = matches!(self.mode, FusionMode::Fused { split_rows: false, .. });
        refused && splits && self.groups[g].nodes.iter().any(packs)
    }

    /// Whether a node that is no loop nest reads a whole leaf in its layout; the operand may have
    /// additional unit dimensions.
    fn reads_whole(&self, n: usize, leaf: &Leaf) -> bool {
        let Some(op) = self.graph.nodes[n].value.def() else { return false };
        let dims = |v: Value| self.graph.facts.dims(v);
        let whole = |v: &Value| {
            let loops: Vec<usize> =
                (0..dims(*v).len()).filter(|d| dims(*v)[*d].known() != Some(1)).collect();
            without_unit_dims(dims(*v)) == without_unit_dims(dims(leaf.value))
                && self.reads_in_place(leaf, &loops)
        };
        reads(op)
            .iter()
            .find(|v| self.graph.leaves(**v).iter().any(|l| l.value == leaf.value))
            .is_some_and(whole)
    }

    /// Whether a node inserts the result of a pointwise kernel into a larger tensor, once, as its
    /// only reader.
    pub(crate) fn inserts_result_of(&self, n: usize, from: usize) -> bool {
        // A cheap early exit: few nodes insert, and this runs for every pair of kernels.
        if !self.only_inserts(n) || self.computes_position(n, from) {
            return false;
        }
        let of_it = |l: &&Leaf| self.kernel_of(self.graph.base(l.value)) == Some(from);
        let leaves = |m: usize| self.graph.nodes[m].leaves.iter().filter(of_it);
        let direct = |l: &Leaf| self.graph.node_of.contains_key(&l.value);
        let [leaf] = leaves(n).collect::<Vec<_>>()[..] else { return false };
        let inside = self.groups[from].nodes.iter().flat_map(|m| leaves(*m));
        self.reads_whole(n, leaf)
            && std::iter::once(leaf).chain(inside).all(direct)
            && self.only(from, n)
    }
}

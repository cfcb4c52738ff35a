//! Paddings and concatenations: what only puts its operands into a larger tensor can be done by the kernels that compute these.
use super::{Class, Decide, Form, Leaf, turns, wide};
use kiln_dialects::{
    ir::{Node as _, Size, Value},
    ops::{OpKind, Pad, Place},
};

impl Decide<'_> {
    /// Whether a node does no more than put its operands into a larger tensor.
    pub(super) fn places(&self, n: usize) -> bool {
        let node = &self.graph.nodes[n];
        node.class == Class::Single
            && node.value.def().is_some_and(|o| matches!(o.kind(), Some(OpKind::Concat | OpKind::Pad | OpKind::Place)))
    }

    /// Whether a node is a padding.
    pub(super) fn pads(&self, n: usize) -> bool {
        self.graph.nodes[n].value.def().is_some_and(|o| o.kind() == Some(OpKind::Pad))
    }

    /// Whether a kernel that pads its result, or puts it in place, can do the other as well: both write each element as it is computed.
    pub(super) fn places_beside(&self, n: usize, g: usize) -> bool {
        let moved = |m: usize| self.graph.nodes[m].value.def().map(|o| o.operand(0));
        let placing: Vec<usize> = self.groups[g].nodes.iter().copied().filter(|m| self.places(*m)).collect();
        let [other] = placing[..] else { return false };
        let one_each = (self.pads(n) && self.piece(other).is_some()) || (self.pads(other) && self.piece(n).is_some());
        one_each && moved(n) == moved(other)
    }

    /// The piece that a node puts into a larger tensor.
    pub(super) fn piece(&self, n: usize) -> Option<Value> {
        self.graph.nodes[n].value.def().and_then(Place::of).map(|o| o.piece)
    }

    /// The kernel that puts the piece before into the same tensor, if it is another's than the piece's: it can copy the piece.
    pub(super) fn goes_on(&self, n: usize) -> Option<usize> {
        let place = self.graph.nodes[n].value.def().and_then(Place::of)?;
        let before = self.home(place.whole?)?;
        (self.home(self.graph.base(place.piece)) != Some(before)).then_some(before)
    }

    /// Whether a convolution's kernel can write its result right to where a padding or a concatenation wants it.
    pub(super) fn ends(&self, n: usize, g: usize) -> Result<(), String> {
        let (node, group) = (&self.graph.nodes[n], &self.groups[g]);
        let op = |m: usize| self.graph.nodes[m].value.def().map(|o| turns(o).unwrap_or(o));
        if !group.nodes.iter().any(|m| op(*m).is_some_and(|o| o.kind() == Some(OpKind::Convolution))) {
            return Err("only a convolution's result is placed".into());
        }
        let adds = |all: &[Size]| all.iter().all(|s| s.known().is_some_and(|n| n >= 0));
        if op(n).and_then(Pad::of).is_some_and(|p| !adds(&p.low) || !adds(&p.high)) {
            return Err("it may take elements away".into());
        }
        let mine = |l: &&Leaf| self.home(self.graph.base(l.value)) == Some(g);
        let leaves: Vec<&Leaf> = node.leaves.iter().filter(mine).collect();
        let [leaf] = leaves[..] else { return Err("it reads several of its values".into()) };
        let full = |m: &usize| self.forms[*m] == Form::Full && wide(self.graph.facts.dims(leaf.value)) == group.dims;
        match self.graph.node_of.get(&leaf.value).is_some_and(full) && self.reads_whole(leaf) {
            true => Ok(()),
            false => Err(format!("it reads {} at another place", self.name(leaf.value))),
        }
    }

    /// Whether a node that is no loop nest reads a leaf as it lies.
    fn reads_whole(&self, leaf: &Leaf) -> bool {
        let dims = self.graph.facts.dims(leaf.value);
        let loops: Vec<usize> = (0..dims.len()).filter(|d| dims[*d].known() != Some(1)).collect();
        self.reads_in_place(leaf, &loops)
    }

    /// Whether a node puts what a pointwise kernel computes into a larger tensor, once, and nothing else reads it.
    pub(super) fn only_places(&self, n: usize, from: usize) -> bool {
        // Hardly any node does, and all that follows is asked of every pair of kernels.
        if !self.places(n) {
            return false;
        }
        let of_it = |l: &&Leaf| self.home(self.graph.base(l.value)) == Some(from);
        let leaves = |m: usize| self.graph.nodes[m].leaves.iter().filter(of_it);
        let direct = |l: &Leaf| self.graph.node_of.contains_key(&l.value);
        let [leaf] = leaves(n).collect::<Vec<_>>()[..] else { return false };
        let inside = self.groups[from].nodes.iter().flat_map(|m| leaves(*m));
        self.reads_whole(leaf) && std::iter::once(leaf).chain(inside).all(direct) && self.only(from, n)
    }
}

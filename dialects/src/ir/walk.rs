//! Walks, iterative so that deep nesting cannot overflow the stack.
use super::*;

/// `root` and all ops below it in pre-order.
pub fn walk(root: Op) -> Vec<Op> {
    let (mut all, mut stack) = (vec![], vec![root]);
    while let Some(op) = stack.pop() {
        all.push(op);
        let inner: Vec<Op> = blocks(op).into_iter().flat_map(|b| b.ops()).collect();
        stack.extend(inner.into_iter().rev());
    }
    all
}

/// The functions in `root`, in order. They are listed before any is changed: an op that is erased
/// in one must not be asked on the way to the next.
pub fn functions_in(root: Op) -> Vec<Op> {
    walk(root).into_iter().filter(|o| o.isa::<func::Func>()).collect()
}

/// The number of ops that [`walk`] returns.
pub fn op_count(root: Op) -> usize {
    let inside =
        |b: &Block| std::iter::successors(b.first(), |op| op.next()).map(op_count).sum::<usize>();
    1 + blocks(root).iter().map(inside).sum::<usize>()
}

/// The blocks of an op's regions, in order.
pub fn blocks(op: Op) -> Vec<Block> {
    let mut all = vec![];
    for region in op.regions() {
        let mut next = region.first();
        while let Some(b) = next {
            all.push(b);
            next = b.next();
        }
    }
    all
}

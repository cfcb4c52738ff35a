//! Moves launches behind the last readers of what they may overwrite.
use crate::program::plan::{
    Kernels, base, in_place, is_written, launches_in, only_read, positions,
};
use kiln_dialects::{
    ir::*,
    ops::{Launch, OpKind},
};

/// Moves launches that may overwrite a donor with a chosen result behind the other launches that
/// read it, unless something needs their results before. `chosen` gets the launch and the result's
/// number.
pub(super) fn sink(
    about: &Kernels,
    block: Block,
    donors: &[Value],
    chosen: impl Fn(Op, usize) -> bool,
) -> Result<()> {
    let mut place = positions(&block.ops());
    for op in launches_in(block).into_iter().rev() {
        let launch = Launch::of(op).ok_or_malformed(op)?;
        // What writes to such an argument may come in between.
        if launch.inputs.iter().any(|v| is_written(base(*v))) {
            continue;
        }
        let overwritten: Vec<Value> = in_place(about, &launch.kernel)
            .into_iter()
            .filter(|(r, _)| chosen(op, *r))
            .filter_map(|(_, i)| only_read(&launch, i).filter(|v| donors.contains(v)))
            .collect();
        if overwritten.is_empty() {
            continue;
        }
        let position = |o: &Op| place.get(o).copied().unwrap_or(usize::MAX);
        let readers = overwritten.iter().flat_map(|v| views(*v).1);
        let Some(last) = readers.max_by_key(position).filter(|o| o.kind() == Some(OpKind::Launch))
        else {
            continue;
        };
        let (mut moved, mut users) = (vec![op], vec![]);
        for r in op.results() {
            let (all, by) = views(r);
            moved.extend(all);
            users.extend(by);
        }
        let needed = users.iter().map(position).min().unwrap_or(usize::MAX);
        if position(&last) <= position(&op) || needed <= position(&last) {
            continue;
        }
        moved[1..].sort_by_key(position);
        let mut after = last;
        for op in moved {
            op.move_after(after);
            after = op;
        }
        place = positions(&block.ops());
    }
    Ok(())
}

/// The views of a value, and the other ops that use it or a view of it.
pub(super) fn views(v: Value) -> (Vec<Op>, Vec<Op>) {
    let (mut views, mut users, mut stack) = (vec![], vec![], vec![v]);
    while let Some(v) = stack.pop() {
        for (user, _) in v.uses() {
            if user.kind() == Some(OpKind::Reshape) {
                views.push(user);
                stack.push(user.result(0));
            } else {
                users.push(user);
            }
        }
    }
    (views, users)
}

/// Whether a value or a view of it is a result of the function that ends so.
pub(super) fn is_returned(v: Value, end: Op) -> bool {
    views(v).1.contains(&end)
}

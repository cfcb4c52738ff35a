//! Draws of random numbers that no result depends on: without any other, the program does not take
//! the state of the generator.
use kiln_dialects::ir::{Op, Value, walk};
use std::collections::HashSet;

/// Erases what depends on the generator state and is dead. False: something live depends on it.
pub fn erase_dead(func: Op, state: Value) -> bool {
    let (mut seen, mut open) = (HashSet::new(), vec![state]);
    while let Some(value) = open.pop() {
        for (user, _) in value.uses() {
            let Some(user) = reached(user) else { return false };
            if seen.insert(user) {
                open.extend(user.results());
            }
        }
    }
    // Users come after what they use.
    walk(func).into_iter().rev().filter(|op| seen.contains(op)).for_each(Op::erase);
    true
}

/// The op whose results depend on an operand of `user`; `None` if it has an effect.
fn reached(user: Op) -> Option<Op> {
    match user.name().as_str() {
        "kiln.yield" => user.parent(),
        "kiln.bind_shape" => Some(user),
        // Others bind the symbol.
        "kiln.unbacked_size" | "kiln.custom_call" => None,
        _ => (user.result_count() > 0).then_some(user),
    }
}

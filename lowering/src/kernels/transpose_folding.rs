//! Transpose folding: pointwise ops before a transpose are computed by the transpose's reader, for
//! chips whose kernels transpose tiles in shared memory.
//!
//! Why: a kernel reads the operand it transposes in whole sectors, as a kernel of these ops would,
//! so their result need not be stored. Each element is still computed once: the transpose is the
//! only reader, and has each element once. Not folded are ops that a product or reduction may take
//! as an epilogue, since its result would be stored wider or read again, and ops with many
//! operands, which would all have to be transposed.
use crate::kernels::{
    class::{Class, Role},
    marks::in_prologue,
};
use kiln_dialects::{
    ir::{Op, Value},
    ops::OpKind,
};
use std::collections::{HashMap, HashSet};

/// Most ops folded into one transpose.
const MOST_OPS: usize = 16;
/// Most stored operands of the folded ops.
const MOST_READ: usize = 6;

/// The folded ops, which their readers compute.
#[derive(Default)]
pub struct FoldedOps {
    /// Maps each folded value to the reader's value that it is computed with.
    reader_of: HashMap<Value, Value>,
    /// The folded ops of each such reader, last op first; readers are nodes, so nothing
    /// rematerialises them.
    pub ops: HashMap<Value, Vec<Op>>,
}

impl FoldedOps {
    /// Whether a value is folded into its reader.
    pub fn has(&self, v: Value) -> bool {
        self.reader_of.contains_key(&v)
    }

    /// Analyses a block's ops, given in order. `must`: values that are stored.
    pub fn reader_of(ops: &[Op], roles: &HashMap<Op, Role>, must: &HashSet<Value>) -> FoldedOps {
        let free = Free { roles, must, used: epilogue_values(ops, roles) };
        let mut folded = FoldedOps::default();
        let mut reads: HashMap<Value, HashSet<Value>> = HashMap::new();
        for op in
            ops.iter().rev().filter(|op| free.pointwise(**op) && !must.contains(&op.result(0)))
        {
            let Some(node) = folded.reader(&free, *op) else { continue };
            let mut read = reads.get(&node).cloned().unwrap_or_default();
            read.remove(&op.result(0));
            read.extend(
                op.operands().into_iter().map(|v| free.base(v)).filter(|v| free.stored(*v)),
            );
            if read.len() <= MOST_READ
                && folded.ops.get(&node).is_none_or(|all| all.len() < MOST_OPS)
            {
                reads.insert(node, read);
                folded.reader_of.insert(op.result(0), node);
                folded.ops.entry(node).or_default().push(*op);
            }
        }
        folded
    }

    /// The single value with which all readers of an op through a transpose are computed.
    fn reader(&self, free: &Free<'_>, op: Op) -> Option<Value> {
        let (mut v, mut transposed) = (op.result(0), false);
        loop {
            if transposed && free.must.contains(&v) {
                return Some(v);
            }
            let mut users: Vec<Op> = vec![];
            for (user, _) in v.uses() {
                if !users.contains(&user) {
                    users.push(user);
                }
            }
            let [user] = users[..] else {
                let all = !users.is_empty() && users.iter().all(|u| free.pointwise(*u));
                let nodes: HashSet<Option<&Value>> = users
                    .iter()
                    .map(|u| {
                        u.results().first().and_then(|v| self.reader_of.get(v)).filter(|_| all)
                    })
                    .collect();
                return match nodes.into_iter().collect::<Vec<_>>()[..] {
                    // All readers belong to one expression.
                    [Some(node)] => Some(*node),
                    _ => Some(v).filter(|_| all && transposed),
                };
            };
            match (user.kind(), free.roles.get(&user)) {
                (Some(OpKind::Transpose | OpKind::Reshape), Some(Role::Move)) => {
                    transposed |= user.kind() == Some(OpKind::Transpose)
                }
                // A transpose that is stored, whatever reads it.
                (Some(OpKind::Transpose), Some(Role::Compute(Class::Pointwise))) => {
                    return Some(user.result(0));
                }
                _ if free.pointwise(user) => {
                    let node = self.reader_of.get(&user.result(0)).copied();
                    return if transposed { node.or(Some(user.result(0))) } else { node };
                }
                _ => return None,
            }
            v = user.result(0);
        }
    }
}

/// The folding conditions. Ops in a GEMM's prologue never fold.
struct Free<'a> {
    roles: &'a HashMap<Op, Role>,
    must: &'a HashSet<Value>,
    used: HashSet<Value>,
}

impl Free<'_> {
    /// Whether an op is pointwise and not part of an epilogue.
    fn pointwise(&self, op: Op) -> bool {
        let role =
            self.roles.get(&op) == Some(&Role::Compute(Class::Pointwise)) && !in_prologue(op);
        role && op.kind().is_some_and(OpKind::is_elementwise)
            && op.result_count() == 1
            && !self.used.contains(&op.result(0))
    }
    /// The value underneath movement ops, which fold into the reader's index.
    fn base(&self, mut v: Value) -> Value {
        while let Some(op) = v.def().filter(|o| self.roles.get(o) == Some(&Role::Move)) {
            v = op.operand(0);
        }
        v
    }
    /// Whether a value is read from memory, unless its op is folded here as well.
    fn stored(&self, v: Value) -> bool {
        v.ty().is_tensor()
            && v.def()
                .is_none_or(|op| !matches!(self.roles.get(&op), Some(Role::Generator | Role::Host)))
    }
}

/// Values that depend on a product, reduction, scan or attention and that may be its epilogue.
fn epilogue_values(ops: &[Op], roles: &HashMap<Op, Role>) -> HashSet<Value> {
    let mut taken = HashSet::new();
    for op in ops {
        let begins = matches!(
            roles.get(op),
            Some(
                Role::Inner
                    | Role::Compute(
                        Class::Contract | Class::Reduce | Class::Scan | Class::Attention
                    )
            )
        );
        let goes_on = matches!(roles.get(op), Some(Role::Move | Role::Compute(Class::Pointwise)));
        if begins || (goes_on && op.operands().iter().any(|v| taken.contains(v))) {
            taken.extend(op.results());
        }
    }
    taken
}

//! The private copy of a kernel's function in which structured ops are loop nests.
use crate::analysis::{
    Structure,
    generalize::{AttentionGradientNests, AttentionNests, generalize, is_structured},
};
use kiln_dialects::ir::*;
use std::collections::HashMap;

/// A copy of a function, in no block, which is freed with the last kernel that was read from it.
#[derive(Debug)]
pub struct Generalized {
    /// The copy.
    pub func: Op,
    /// The structure of each loop nest that was a structured op.
    pub structures: HashMap<Op, Structure>,
    /// The loop nests of its attention.
    pub attention: Option<AttentionNests>,
    /// The loop nests of attention's derivatives.
    pub attention_gradient: Option<AttentionGradientNests>,
    /// For each op of the copy that the function has too, the function's.
    ops: HashMap<Op, Op>,
    /// The same for values.
    values: HashMap<Value, Value>,
}

impl Generalized {
    /// The copy of a function; `None` for one without structured ops, which is read as it is.
    pub fn of(func: Op) -> Result<Option<Generalized>> {
        if !is_structured(func) {
            return Ok(None);
        }
        let mut copy = Generalized {
            func: func.copy()?,
            structures: HashMap::new(),
            attention: None,
            attention_gradient: None,
            ops: HashMap::new(),
            values: HashMap::new(),
        };
        let block = |f: Op| f.regions().first().and_then(|r| r.first()).ok_or_at(f, "has no body");
        let (old, new) = (block(func)?, block(copy.func)?);
        copy.values.extend(new.args().into_iter().zip(old.args()));
        for (new, old) in new.ops().into_iter().zip(old.ops()) {
            copy.ops.insert(new, old);
            copy.values.extend(new.results().into_iter().zip(old.results()));
        }
        let origins = generalize(copy.func)?;
        (copy.structures, copy.attention) = (origins.structures, origins.attention);
        copy.attention_gradient = origins.attention_gradient;
        Ok(Some(copy))
    }
    /// The function's op that an op of the copy is a copy of.
    pub fn original(&self, op: Op) -> Op {
        self.ops.get(&op).copied().unwrap_or(op)
    }
    /// The function's value that a value of the copy is a copy of.
    pub fn original_value(&self, v: Value) -> Value {
        self.values.get(&v).copied().unwrap_or(v)
    }
}

impl Drop for Generalized {
    fn drop(&mut self) {
        self.func.erase();
    }
}

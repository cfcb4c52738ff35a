//! `kiln-freeze`: moves computations that depend on frozen weights only into a function that runs
//! once, when the program is loaded.
//!
//! Why: packed and transposed weights, norm statistics and tables of rotary angles would be
//! recomputed in each call. LLVM cannot fold them, since weights are not constants to it. Upstream
//! folds constants whose data is in the IR, where weights never are.
//!
//! A value moves if it is not much larger than the weights it depends on, or if it costs more to
//! compute than to read. Movement ops (broadcasts, reshapes, slices) stay, since they only index.
//! Where they read an op marked `kiln.stored`, that op's result moves. Ops marked `kiln.prologue`
//! stay: a product computes them in registers. With `either-order` transposes that only matmuls
//! read stay too: the tensor-core kernels of GPUs take K-major operands of any size, N-major ones
//! only of multiples of 8.
//!
//! Numerics: exact. The same ops on the same values.
//!
//! ```text
//! before:  %v = kiln.get_global @var   %0 = kiln.add %v, %eps   %1 = kiln.rsqrt %0   %2 = kiln.broadcast_in_dim %1 …
//! after:   kiln.global @frozen_0 from "prepare#0"   func.func @prepare() { … kiln.rsqrt … }
//!          %1 = kiln.get_global @frozen_0   %2 = kiln.broadcast_in_dim %1 …
//! ```
use crate::kernels::{
    frozen::{Frozen, STORED, bytes, is_expensive, is_movement},
    marks::in_prologue,
};
use kiln_dialects::{ir::*, ops::*, rules::Level};
use kiln_passes::{Numerics, Pass};
use std::collections::{HashMap, HashSet};

kiln_passes::pass_options! {
    /// The pass.
    pub struct Freeze {
        /// Largest size of a frozen value in percent of the bytes of its weights
        pub growth: i64 = 175,
        /// Bytes that a frozen value may always have if it costs more to compute than to read
        pub table: i64 = 67108864,
        /// Keeps transposes that only matmuls read, which take an operand in either order
        pub either_order: bool = false,
    }
}

impl Pass for Freeze {
    const FLAG: &'static str = "kiln-freeze";
    const SUMMARY: &'static str =
        "Moves ops that depend only on frozen weights into @prepare, which runs at load time";
    const LEVELS: &'static [Level] = &[Level::Prims];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        let all = blocks(root).into_iter().flat_map(|b| b.ops());
        let mut names: HashSet<String> = all.filter_map(Op::symbol).collect();
        for func in functions_in(root) {
            self.function(func, &mut names)?;
        }
        Ok(())
    }
}

/// Search state: the values to move, in the order they are found.
struct Search<'a> {
    pass: &'a Freeze,
    frozen: &'a Frozen,
    seen: HashSet<Value>,
    found: HashSet<Value>,
}

impl Freeze {
    fn function(&self, func: Op, names: &mut HashSet<String>) -> Result<()> {
        let Some(block) = func.regions().first().and_then(|r| r.first()) else { return Ok(()) };
        let ops = block.ops();
        let frozen = Frozen::of(&ops);
        let mut search =
            Search { pass: self, frozen: &frozen, seen: HashSet::new(), found: HashSet::new() };
        let stays = |op: &&Op| !op.results().iter().any(|v| frozen.contains(*v));
        for op in ops.iter().filter(stays) {
            op.operands().into_iter().filter(|v| frozen.contains(*v)).for_each(|v| search.need(v));
        }
        let found = search.found;
        let moved: Vec<Value> =
            ops.iter().flat_map(|o| o.results()).filter(|v| found.contains(v)).collect();
        if moved.is_empty() {
            return Ok(());
        }
        let b = Builder::before(func).ok_or_at(func, "is in no block")?;
        let prepare = fresh("prepare", names);
        let cone: HashSet<Op> = moved.iter().flat_map(|v| frozen.cone(*v)).collect();
        let types: Vec<Type> = moved.iter().map(|v| v.ty()).collect();
        let mut fill = |b: Builder, _: Vec<Value>| {
            let mut map: HashMap<Value, Value> = HashMap::new();
            for op in ops.iter().filter(|o| cone.contains(o)) {
                let new = b.at(op.loc()).clone_op(*op, &|v| map.get(&v).copied().unwrap_or(v))?;
                map.extend(op.results().into_iter().zip(new.results()));
            }
            b.ret(&moved.iter().map(|v| map[v]).collect::<Vec<_>>()).map(|_| ())
        };
        b.function(&prepare, &[], &types, &mut fill).at(func)?;
        for (n, v) in moved.iter().enumerate() {
            let op = v.def().ok_or_at(func, "has no op")?;
            let global = Global {
                sym_name: fresh(&format!("frozen_{n}"), names),
                sym_visibility: Some("private".into()),
                is_mutable: false,
                r#type: v.ty(),
                source: Some(format!("{prepare}#{n}")),
                value: None,
            };
            b.at(op.loc()).create_with(&global, &[], &mut []).at(func)?;
            let own = Builder::before(op).ok_or_at(op, "is in no block")?;
            let get = GetGlobal { is_mutable: false, global: global.sym_name };
            v.replace_uses(own.create_with(&get, &[v.ty()], &mut []).at(func)?.result(0));
        }
        for op in ops.into_iter().rev() {
            let free = op.results().iter().all(|v| frozen.contains(*v) && v.uses().is_empty());
            if free && op.result_count() > 0 {
                op.erase();
            }
        }
        Ok(())
    }
}

impl Search<'_> {
    /// Finds which part of a frozen value with non-frozen readers moves.
    fn need(&mut self, v: Value) {
        if !self.seen.insert(v) {
            return;
        }
        if let Some(stored) = stored_below(v) {
            self.found.insert(stored);
            return;
        }
        let Some(op) = v.def() else { return };
        let only_place =
            matches!(op.kind(), Some(OpKind::BroadcastInDim | OpKind::Reshape | OpKind::Slice))
                || self.pass.either_order && is_matmul_operand(op)
                || in_prologue(op);
        if !only_place && op.operand_count() > 0 && self.pays(v) {
            self.found.insert(v);
            return;
        }
        op.operands().into_iter().for_each(|o| self.need(o));
    }

    fn pays(&self, v: Value) -> bool {
        let cone = self.frozen.cone(v);
        let weights: i64 = cone
            .iter()
            .filter(|o| is_memory(**o))
            .map(|o| bytes(o.result(0)))
            .fold(0, i64::saturating_add);
        let size = bytes(v);
        let table = size > 8 && size <= self.pass.table && cone.iter().any(|o| is_expensive(*o));
        let allowed = weights as i128 * self.pass.growth as i128 + 100 * 4096;
        table || weights > 0 && size as i128 * 100 <= allowed
    }
}

/// Whether an op is a transpose that only matmuls read.
fn is_matmul_operand(op: Op) -> bool {
    op.kind() == Some(OpKind::Transpose)
        && op.result(0).uses().iter().all(|(o, _)| o.kind() == Some(OpKind::DotGeneral))
}

/// Whether an op's result is in memory anyway (a global or a literal).
fn is_memory(op: Op) -> bool {
    match op.kind() {
        Some(OpKind::GetGlobal) => true,
        Some(OpKind::Constant) => op.attr("value").and_then(Attr::splat_value).is_none(),
        _ => false,
    }
}

/// The value under a chain of movement ops that is marked to be materialised.
fn stored_below(mut v: Value) -> Option<Value> {
    loop {
        let op = v.def()?;
        if op.attr(STORED).is_some() {
            return Some(v);
        }
        v = op.kind().is_some_and(is_movement).then(|| op.operand(0))?;
    }
}

/// A symbol name that is not taken yet.
fn fresh(stem: &str, names: &mut HashSet<String>) -> String {
    let mut all = std::iter::once(stem.to_string()).chain((1..).map(|n| format!("{stem}_{n}")));
    let name = all.find(|n| !names.contains(n)).unwrap_or_default();
    names.insert(name.clone());
    name
}

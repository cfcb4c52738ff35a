//! Greedy pattern rewriting with patterns written in Rust.
use super::*;
use crate::{ffi, ops::OpKind};

/// A rewrite of ops of one kind.
#[derive(Clone, Copy)]
pub struct Pattern {
    /// A name for logs and statistics.
    pub name: &'static str,
    /// The op it looks at.
    pub root: OpKind,
    /// Rewrites and returns true, or leaves everything as it is and returns false.
    pub apply: fn(Op, &Rewriter) -> Result<bool, String>,
}

/// Changes IR so that the driver knows of it.
pub struct Rewriter(MlirRewriterBase);

impl Rewriter {
    /// A builder in front of `op`, with its location. Ops that it makes are announced by [`Rewriter::replace`].
    pub fn before(&self, op: Op) -> Result<Builder, String> {
        Builder::before(op).ok_or_else(|| "is in no block".to_string())
    }
    /// Replaces all results of `op` and erases it.
    pub fn replace(&self, op: Op, values: &[Value]) {
        let raw: Vec<_> = values.iter().map(|v| v.raw()).collect();
        unsafe { mlirRewriterBaseReplaceOpWithValues(self.0, op.raw(), raw.len() as isize, raw.as_ptr()) }
    }
    /// Erases an op without uses.
    pub fn erase(&self, op: Op) {
        unsafe { mlirRewriterBaseEraseOp(self.0, op.raw()) }
    }
}

struct Run {
    patterns: &'static [Pattern],
    error: Option<String>,
}

/// Applies `patterns` everywhere below `root` until nothing changes, with upstream's greedy driver.
/// With `canonicalize`, the context's folders run as well. Returns how often the driver was entered.
pub fn apply_patterns(root: Op, patterns: &'static [Pattern]) -> Result<(), String> {
    let mut runs: Vec<Box<(Pattern, *mut Run)>> = vec![];
    let mut state = Run { patterns, error: None };
    let ok = unsafe {
        let set = mlirRewritePatternSetCreate(root.ctx().raw());
        for p in state.patterns {
            let data = Box::new((*p, &raw mut state));
            let callbacks = MlirRewritePatternCallbacks { construct: None, destruct: None, matchAndRewrite: Some(trampoline) };
            let ptr = (&raw const *data) as *mut std::ffi::c_void;
            let raw = mlirOpRewritePatternCreate(sref(p.root.name()), 1, root.ctx().raw(), callbacks, ptr, 0, std::ptr::null_mut());
            mlirRewritePatternSetAdd(set, raw);
            runs.push(data);
        }
        let frozen = mlirFreezeRewritePattern(set);
        let config = mlirGreedyRewriteDriverConfigCreate();
        let ok = mlirApplyPatternsAndFoldGreedilyWithOp(root.raw(), frozen, config).value != 0;
        mlirGreedyRewriteDriverConfigDestroy(config);
        mlirFrozenRewritePatternSetDestroy(frozen);
        ok
    };
    match state.error {
        Some(e) => Err(e),
        None if ok => Ok(()),
        None => Err("the patterns did not converge".into()),
    }
}

extern "C" fn trampoline(
    _: MlirRewritePattern,
    op: MlirOperation,
    rewriter: MlirPatternRewriter,
    data: *mut std::ffi::c_void,
) -> MlirLogicalResult {
    // SAFETY: `data` is one of the boxes that apply_patterns keeps alive while the driver runs.
    let (pattern, run) = unsafe { &*data.cast::<(Pattern, *mut Run)>() };
    let op = Op::of(op);
    let rewriter = Rewriter(unsafe { mlirPatternRewriterAsBase(rewriter) });
    let hit = ffi::guard(op.loc(), pattern.name, Ok(false), || (pattern.apply)(op, &rewriter));
    let hit = hit.unwrap_or_else(|e| {
        let run = unsafe { &mut **run };
        run.error.get_or_insert_with(|| format!("pattern {} at {}: {e}", pattern.name, op.loc()));
        false
    });
    MlirLogicalResult { value: hit as i8 }
}

impl Rewriter {
    pub(crate) fn of(raw: MlirPatternRewriter) -> Rewriter {
        Rewriter(unsafe { mlirPatternRewriterAsBase(raw) })
    }
}

//! Greedy pattern rewriting with patterns in Rust.
use super::*;
use crate::{ffi, ops::OpKind};

/// A rewrite pattern, rooted at ops of one kind.
#[derive(Clone, Copy)]
pub struct Pattern {
    /// A name for logs and statistics.
    pub name: &'static str,
    /// The root op.
    pub root: OpKind,
    /// Rewrites and returns true, or leaves the IR unchanged and returns false.
    pub apply: fn(Op, &Rewriter) -> Result<bool>,
}

/// The pattern rewriter: changes IR and notifies the driver.
pub struct Rewriter(MlirRewriterBase);

impl Rewriter {
    /// A builder before `op`, with its location. [`Rewriter::replace`] notifies the driver of its
    /// ops.
    pub fn before(&self, op: Op) -> Result<Builder> {
        Builder::before(op).ok_or_at(op, "is in no block")
    }
    /// Replaces all results of `op` and erases it.
    #[track_caller]
    pub fn replace(&self, op: Op, values: &[Value]) {
        let all: Vec<_> = values.iter().map(|v| v.raw()).collect();
        let raw = op.raw();
        #[cfg(debug_assertions)]
        generation::erase(op);
        unsafe {
            mlirRewriterBaseReplaceOpWithValues(self.0, raw, all.len() as isize, all.as_ptr())
        }
    }
    /// Erases an op without uses.
    #[track_caller]
    pub fn erase(&self, op: Op) {
        let raw = op.raw();
        #[cfg(debug_assertions)]
        generation::erase(op);
        unsafe { mlirRewriterBaseEraseOp(self.0, raw) }
    }
}

struct Run {
    hits: usize,
    error: Option<Error>,
}

/// Applies `patterns` below `root` to a fixed point with upstream's greedy driver, which also folds
/// and erases dead ops. Returns the number of applications. Stopping after `rounds` iterations is
/// no error: the IR is valid throughout.
pub fn apply_patterns(root: Op, patterns: &[Pattern], rounds: usize) -> Result<usize> {
    let mut run = Run { hits: 0, error: None };
    // Boxed, so that the pointers that the driver holds stay valid.
    let data: Vec<Box<(Pattern, *mut Run)>> =
        patterns.iter().map(|p| Box::new((*p, &raw mut run))).collect();
    unsafe {
        let set = mlirRewritePatternSetCreate(root.ctx().raw());
        for d in &data {
            let callbacks = MlirRewritePatternCallbacks {
                construct: None,
                destruct: None,
                matchAndRewrite: Some(trampoline),
            };
            let ptr = (&raw const **d) as *mut std::ffi::c_void;
            let raw = mlirOpRewritePatternCreate(
                sref(d.0.root.name()),
                1,
                root.ctx().raw(),
                callbacks,
                ptr,
                0,
                std::ptr::null_mut(),
            );
            mlirRewritePatternSetAdd(set, raw);
        }
        let frozen = mlirFreezeRewritePattern(set);
        let config = mlirGreedyRewriteDriverConfigCreate();
        mlirGreedyRewriteDriverConfigSetMaxIterations(config, rounds as i64);
        mlirApplyPatternsAndFoldGreedilyWithOp(root.raw(), frozen, config);
        mlirGreedyRewriteDriverConfigDestroy(config);
        mlirFrozenRewritePatternSetDestroy(frozen);
    }
    run.error.map_or(Ok(run.hits), Err)
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
    let rewriter = Rewriter::of(rewriter);
    let hit = ffi::guard(op.loc(), pattern.name, Ok(false), || (pattern.apply)(op, &rewriter));
    // SAFETY: the driver is single-threaded, and `run` outlives it.
    let run = unsafe { &mut **run };
    let hit = hit.unwrap_or_else(|e| {
        let message = format!("pattern {} at {}: {}", pattern.name, op.loc(), e.message);
        run.error.get_or_insert(Error { message, ..e });
        false
    });
    run.hits += usize::from(hit);
    MlirLogicalResult { value: hit as i8 }
}

impl Rewriter {
    pub(crate) fn of(raw: MlirPatternRewriter) -> Rewriter {
        Rewriter(unsafe { mlirPatternRewriterAsBase(raw) })
    }
}

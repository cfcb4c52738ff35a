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
    pub apply: fn(Op, &Rewriter) -> Result<bool>,
}

/// Changes IR so that the driver knows of it.
pub struct Rewriter(MlirRewriterBase);

impl Rewriter {
    /// A builder in front of `op`, with its location. Ops that it makes are announced by
    /// [`Rewriter::replace`].
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

/// Applies `patterns` everywhere below `root` until nothing changes, with upstream's greedy driver,
/// which also folds and drops dead ops. Returns how often a pattern applied. Giving up after
/// `rounds` rounds over the IR is no error: the IR is right at any time.
pub fn apply_patterns(root: Op, patterns: &[Pattern], rounds: usize) -> Result<usize> {
    let mut run = Run { hits: 0, error: None };
    // Boxed, so that the addresses that the driver holds do not move.
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
        run.error.get_or_insert_with(|| Error { message, ..e });
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

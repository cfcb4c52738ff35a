//! MLIR's pass manager, built from pipeline text.
use super::*;
use crate::ffi::{self, Events};

/// A parsed pipeline on `builtin.module`.
pub struct PassManager(MlirPassManager);

impl PassManager {
    /// Parses `builtin.module(…)`. Err: upstream's message.
    pub fn parse(c: Ctx, pipeline: &str) -> Result<PassManager> {
        Context::register_upstream();
        let pm = PassManager(unsafe {
            mlirPassManagerCreateOnOperation(c.raw(), sref("builtin.module"))
        });
        let mut ok = false;
        let error = printed(|cb, d| unsafe {
            ok = mlirParsePassPipeline(
                mlirPassManagerGetAsOpPassManager(pm.0),
                sref(pipeline),
                cb,
                d,
            )
            .value
                != 0;
        });
        if ok { Ok(pm) } else { Err(error.trim().into()) }
    }
    /// The pipeline with every option, as upstream prints it.
    pub fn text(&self) -> String {
        printed(|cb, d| unsafe {
            mlirPrintPassPipeline(mlirPassManagerGetAsOpPassManager(self.0), cb, d)
        })
    }
    /// Enables the verifier after each pass.
    pub fn verify(&self, on: bool) {
        unsafe { mlirPassManagerEnableVerifier(self.0, on) }
    }
    /// Runs the pipeline with `events` attached. Diagnostics go to the context's handlers.
    pub fn run(&self, op: Op, events: &dyn Events) -> bool {
        let ctx = op.ctx();
        ffi::with_events(ctx, self.0, events, || unsafe {
            mlirPassManagerRunOnOp(self.0, op.raw()).value != 0
        })
    }
}

impl Drop for PassManager {
    fn drop(&mut self) {
        unsafe { mlirPassManagerDestroy(self.0) }
    }
}

//! Pass instrumentation, for kiln's and upstream's passes alike.
use crate::ir::{Ctx, Op, text};
use mlir_sys::*;
use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Whether a pass runs or is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It runs.
    Run,
    /// It is skipped.
    Skip,
}

/// A point in the execution of a pass on an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It returned; the verifier has not run yet.
    Left,
    /// It succeeded and the IR verified.
    Succeeded,
    /// It failed, or the IR did not verify.
    Failed,
}

/// Instrumentation callbacks. Adaptors of the pass manager are not reported, so `flag` is never
/// empty.
pub trait Events {
    /// Before a pass.
    fn enter(&self, flag: &str, op: Op) -> Verdict;
    /// After a pass. Skipped passes report `Succeeded` too.
    fn event(&self, flag: &str, op: Op, event: Event);
}

/// No instrumentation.
impl Events for () {
    fn enter(&self, _: &str, _: Op) -> Verdict {
        Verdict::Run
    }
    fn event(&self, _: &str, _: Op, _: Event) {}
}

#[repr(C)]
#[derive(Clone, Copy)]
struct KilnEvents {
    data: *mut c_void,
    enter: Option<extern "C" fn(*mut c_void, MlirStringRef, MlirOperation) -> bool>,
    leave: Option<extern "C" fn(*mut c_void, MlirStringRef, MlirOperation)>,
    done: Option<extern "C" fn(*mut c_void, MlirStringRef, MlirOperation, bool)>,
}
unsafe extern "C" {
    fn kilnSetActionHandler(context: MlirContext, events: KilnEvents);
    fn kilnWatchPasses(manager: MlirPassManager, events: KilnEvents);
}

struct Watch<'a>(&'a dyn Events);

/// Calls `f` on the instrumentation in `data`, except for adaptors. A panic is swallowed: it must
/// not unwind through C++.
fn tell<T>(
    data: *mut c_void,
    flag: MlirStringRef,
    default: T,
    f: impl FnOnce(&dyn Events, &str) -> T,
) -> T {
    // SAFETY: `data` is the Watch that with_events keeps alive, the text lives as long as the pass.
    let (watch, flag) = unsafe { (&*data.cast::<Watch<'_>>(), text(flag)) };
    if flag.is_empty() {
        return default;
    }
    catch_unwind(AssertUnwindSafe(|| f(watch.0, &flag))).unwrap_or(default)
}
extern "C" fn enter(data: *mut c_void, flag: MlirStringRef, op: MlirOperation) -> bool {
    tell(data, flag, true, |w, flag| w.enter(flag, Op::of(op)) == Verdict::Run)
}
extern "C" fn leave(data: *mut c_void, flag: MlirStringRef, op: MlirOperation) {
    tell(data, flag, (), |w, flag| w.event(flag, Op::of(op), Event::Left))
}
extern "C" fn done(data: *mut c_void, flag: MlirStringRef, op: MlirOperation, ok: bool) {
    tell(data, flag, (), |w, flag| {
        w.event(flag, Op::of(op), if ok { Event::Succeeded } else { Event::Failed })
    })
}

/// Runs `f` with `events` attached to the context and the pass manager, which takes one
/// instrumentation at most.
pub(crate) fn with_events<T>(
    c: Ctx,
    pm: MlirPassManager,
    events: &dyn Events,
    f: impl FnOnce() -> T,
) -> T {
    struct Detach(Ctx);
    impl Drop for Detach {
        fn drop(&mut self) {
            unsafe {
                kilnSetActionHandler(
                    self.0.raw(),
                    KilnEvents { data: std::ptr::null_mut(), enter: None, leave: None, done: None },
                )
            }
        }
    }
    let watch = Watch(events);
    let table = KilnEvents {
        data: (&raw const watch) as *mut c_void,
        enter: Some(enter),
        leave: Some(leave),
        done: Some(done),
    };
    unsafe {
        kilnSetActionHandler(c.raw(), table);
        kilnWatchPasses(pm, table);
    }
    let detach = Detach(c);
    let result = f();
    drop(detach);
    result
}

//! Rust passes in MLIR's pass registry.
use super::{guard, panic_text};
use crate::{
    error::Result,
    ir::{Context, Ctx, Op, emit, list, sref, text},
};
use mlir_sys::*;
use std::{
    any::TypeId,
    collections::BTreeMap,
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
};

/// A pass for MLIR's pass manager: one instance per use, cloned per thread.
pub trait PassObject: Clone + Default + Send + 'static {
    /// Parses the options, in the order of [`PassDescription::options`].
    fn configure(&mut self, values: &[&str]) -> Result<()>;
    /// Runs on one op. The error becomes a diagnostic at its own location, else at `op`.
    fn run(&mut self, op: Op) -> Result<()>;
}

/// What MLIR's registry stores of a pass.
pub struct PassDescription {
    /// The flag.
    pub flag: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The op the pass is anchored on; empty for any.
    pub anchor: &'static str,
    /// Dependent dialects.
    pub dialects: &'static [&'static str],
    /// Name, help, default of each option.
    pub options: Vec<(&'static str, &'static str, String)>,
}

#[repr(C)]
struct KilnOption {
    name: MlirStringRef,
    help: MlirStringRef,
    init: MlirStringRef,
}
#[repr(C)]
struct KilnPassTable {
    name: MlirStringRef,
    argument: MlirStringRef,
    description: MlirStringRef,
    anchor: MlirStringRef,
    n_dialects: isize,
    dialects: *const MlirStringRef,
    n_options: isize,
    options: *const KilnOption,
    create: extern "C" fn(*const KilnPassTable) -> *mut c_void,
    clone: extern "C" fn(*mut c_void) -> *mut c_void,
    destroy: extern "C" fn(*mut c_void),
    configure:
        extern "C" fn(*mut c_void, *const MlirStringRef, MlirStringCallback, *mut c_void) -> bool,
    run: extern "C" fn(*mut c_void, MlirOperation) -> bool,
}
unsafe extern "C" {
    fn kilnRegisterPass(table: *const KilnPassTable);
    fn kilnPassIsRegistered(argument: MlirStringRef) -> bool;
    fn kilnPassNest(context: MlirContext, argument: MlirStringRef) -> MlirStringRef;
    fn kilnPipelineIsRegistered(argument: MlirStringRef) -> bool;
}

/// Whether MLIR's registry has a pass or pass pipeline of that flag.
pub fn is_registered(flag: &str) -> bool {
    Context::register_upstream();
    unsafe { kilnPassIsRegistered(sref(flag)) || kilnPipelineIsRegistered(sref(flag)) }
}

/// The op that a registered pass must be nested on in a module pipeline; none if it runs on
/// modules.
pub fn nest_of(c: Ctx, flag: &str) -> Option<String> {
    let name = unsafe { text(kilnPassNest(c.raw(), sref(flag))) };
    (!name.is_empty()).then_some(name)
}

struct Object<P> {
    pass: P,
    flag: &'static str,
    options: usize,
}

/// Registers a pass with MLIR. The registry is global and unlocked, so register before other
/// threads parse pipelines. Registering a pass twice is allowed; another pass of the same flag is
/// an error.
pub fn register_pass<P: PassObject>(d: PassDescription) -> Result<()> {
    static OURS: Mutex<BTreeMap<&str, TypeId>> = Mutex::new(BTreeMap::new());
    Context::register_upstream();
    let mut ours = OURS.lock().unwrap_or_else(|e| e.into_inner());
    if ours.get(d.flag) == Some(&TypeId::of::<P>()) {
        return Ok(());
    }
    if unsafe { kilnPassIsRegistered(sref(d.flag)) } {
        return Err(format!("another pass is registered as '{}'", d.flag).into());
    }
    ours.insert(d.flag, TypeId::of::<P>());

    extern "C" fn create<P: PassObject>(t: *const KilnPassTable) -> *mut c_void {
        // SAFETY: the table is leaked below.
        let t = unsafe { &*t };
        let flag = unsafe {
            std::str::from_utf8(list(t.argument.length as isize, t.argument.data.cast()))
                .unwrap_or("")
        };
        Box::into_raw(Box::new(Object { pass: P::default(), flag, options: t.n_options as usize }))
            .cast()
    }
    extern "C" fn clone<P: PassObject>(p: *mut c_void) -> *mut c_void {
        let o = unsafe { &*p.cast::<Object<P>>() };
        Box::into_raw(Box::new(Object { pass: o.pass.clone(), ..*o })).cast()
    }
    extern "C" fn destroy<P: PassObject>(p: *mut c_void) {
        drop(unsafe { Box::from_raw(p.cast::<Object<P>>()) })
    }
    extern "C" fn configure<P: PassObject>(
        p: *mut c_void,
        values: *const MlirStringRef,
        error: MlirStringCallback,
        out: *mut c_void,
    ) -> bool {
        let o = unsafe { &mut *p.cast::<Object<P>>() };
        let values: Vec<String> = unsafe { list(o.options as isize, values) }
            .iter()
            .map(|s| unsafe { text(*s) })
            .collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let result = catch_unwind(AssertUnwindSafe(|| o.pass.configure(&values)))
            .unwrap_or_else(|p| Err(panic_text(p).into()));
        if let (Err(e), Some(error)) = (&result, error) {
            unsafe { error(sref(&e.message), out) }
        }
        result.is_ok()
    }
    extern "C" fn run<P: PassObject>(p: *mut c_void, op: MlirOperation) -> bool {
        let o = unsafe { &mut *p.cast::<Object<P>>() };
        let op = Op::of(op);
        let what = format!(
            "pass {} on '{}'{}",
            o.flag,
            op.name(),
            op.symbol().map_or(String::new(), |s| format!(" @{s}"))
        );
        guard(op.loc(), &what, false, || {
            let outcome = o.pass.run(op);
            if let Err(e) = &outcome {
                let (loc, what) = match (e.loc, &e.op) {
                    (Some(loc), Some(name)) => (loc, format!("'{name}' op {}", e.message)),
                    _ => (op.loc(), format!("{}: {}", o.flag, e.message)),
                };
                emit(loc, e.kind, &what);
            }
            outcome.is_ok()
        })
    }
    let dialects: &'static [MlirStringRef] =
        d.dialects.iter().map(|d| sref(d)).collect::<Vec<_>>().leak();
    let options: &'static [KilnOption] = d
        .options
        .into_iter()
        .map(|(name, help, init)| KilnOption {
            name: sref(name),
            help: sref(help),
            init: sref(init.leak()),
        })
        .collect::<Vec<_>>()
        .leak();
    let table = Box::leak(Box::new(KilnPassTable {
        name: sref(d.flag),
        argument: sref(d.flag),
        description: sref(d.summary),
        anchor: sref(d.anchor),
        n_dialects: dialects.len() as isize,
        dialects: dialects.as_ptr(),
        n_options: options.len() as isize,
        options: options.as_ptr(),
        create: create::<P>,
        clone: clone::<P>,
        destroy: destroy::<P>,
        configure: configure::<P>,
        run: run::<P>,
    }));
    unsafe { kilnRegisterPass(table) }
    Ok(())
}

//! The Rust side of `cpp/`: callbacks from C++, which never unwind, and bindings to it.
mod events;
mod pass;

pub(crate) use events::with_events;
pub use events::{Event, Events, Verdict};
pub use pass::{PassDescription, PassObject, is_registered, nest_of, register_pass};

use crate::{ir::*, rules};
use mlir_sys::*;
use std::{
    any::Any,
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
};

unsafe extern "C" {
    pub(crate) fn mlirGetDialectHandle__kiln__() -> MlirDialectHandle;
    pub(crate) fn kilnLayoutGet(
        c: MlirContext,
        n: isize,
        strides: *const i64,
        offset: i64,
        alignment: i64,
    ) -> MlirAttribute;
    pub(crate) fn kilnScheduleGet(
        strategy: MlirStringRef,
        parameters: MlirAttribute,
    ) -> MlirAttribute;
    pub(crate) fn kilnStageGet(c: MlirContext) -> MlirType;
    pub(crate) fn kilnFragmentGet(c: MlirContext, layout: i64) -> MlirAttribute;
    pub(crate) fn kilnFragmentRead(a: MlirAttribute, layout: *mut i64) -> bool;
    pub(crate) fn kilnScheduleRead(
        a: MlirAttribute,
        strategy: *mut MlirStringRef,
        parameters: *mut MlirAttribute,
    ) -> bool;
    pub(crate) fn kilnLayoutRead(
        a: MlirAttribute,
        take: extern "C" fn(isize, *const i64, *mut c_void),
        out: *mut c_void,
        offset: *mut i64,
        alignment: *mut i64,
    ) -> bool;
    pub(crate) fn kilnParseModule(
        c: MlirContext,
        source: MlirStringRef,
        file: MlirStringRef,
    ) -> MlirModule;
    pub(crate) fn kilnEmitRemark(at: MlirLocation, message: MlirStringRef);
    pub(crate) fn kilnPrintOpOnDiagnostic(c: MlirContext, on: bool);
    pub(crate) fn kilnDialectNames(c: MlirContext, take: MlirStringCallback, out: *mut c_void);
}

/// The message of a panic.
pub fn panic_text(p: Box<dyn Any + Send>) -> String {
    let text = p
        .downcast_ref::<&str>()
        .map(|s| s.to_string())
        .or_else(|| p.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".into())
}

/// Runs `f`; a panic becomes an error diagnostic at `loc` and the result `default`.
pub(crate) fn guard<T>(loc: Loc, what: &str, default: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|p| {
        loc.emit_error(&format!("{what} panicked: {}", panic_text(p)));
        default
    })
}

fn verdict(op: Op, what: &str, f: impl FnOnce() -> Result<()>) -> bool {
    guard(op.loc(), what, false, || f().map_err(|e| op.error(&e.message)).is_ok())
}

#[unsafe(no_mangle)]
extern "C" fn kilnVerify(op: MlirOperation) -> bool {
    let op = Op::of(op);
    verdict(op, "verifier", || rules::verify(op))
}

#[unsafe(no_mangle)]
extern "C" fn kilnVerifyRegions(op: MlirOperation) -> bool {
    let op = Op::of(op);
    verdict(op, "region verifier", || rules::verify_regions(op))
}

#[unsafe(no_mangle)]
extern "C" fn kilnVerifySymbolUses(op: MlirOperation, found: MlirOperation) -> bool {
    let op = Op::of(op);
    verdict(op, "symbol verifier", || rules::verify_symbol(op, Op::some(found)))
}

#[unsafe(no_mangle)]
extern "C" fn kilnVerifyOpAttr(
    op: MlirOperation,
    name: MlirStringRef,
    value: MlirAttribute,
) -> bool {
    let op = Op::of(op);
    verdict(op, "attribute verifier", || {
        rules::verify_op_attr(op, &unsafe { crate::ir::text(name) }, Attr(value))
    })
}

#[unsafe(no_mangle)]
extern "C" fn kilnVerifyArgAttr(
    op: MlirOperation,
    ty: MlirType,
    name: MlirStringRef,
    value: MlirAttribute,
) -> bool {
    let op = Op::of(op);
    let ty = (!ty.ptr.is_null()).then_some(Type(ty));
    verdict(op, "attribute verifier", || {
        rules::verify_arg_attr(ty, &unsafe { crate::ir::text(name) }, Attr(value))
    })
}

#[unsafe(no_mangle)]
extern "C" fn kilnFold(
    op: MlirOperation,
    n: isize,
    constants: *const MlirAttribute,
    attr: *mut MlirAttribute,
    value: *mut MlirValue,
) -> bool {
    let op = Op::of(op);
    let constants: Vec<_> = unsafe { list(n, constants) }.iter().map(|a| Attr::some(*a)).collect();
    match guard(op.loc(), "folder", None, || rules::fold(op, &constants)) {
        None => false,
        Some(rules::Fold::Constant(a)) => {
            unsafe { *attr = a.0 };
            true
        }
        Some(rules::Fold::Value(v)) => {
            unsafe { *value = v.raw() };
            true
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn kilnInfer(
    name: MlirStringRef,
    context: MlirContext,
    location: MlirLocation,
    n: isize,
    operands: *const MlirValue,
    attributes: MlirAttribute,
    n_regions: isize,
    regions: *const MlirRegion,
    append: MlirTypesCallback,
    out: *mut c_void,
) -> bool {
    let loc = Loc(location);
    let name = unsafe { crate::ir::text(name) };
    let run = || {
        let kind = crate::ops::OpKind::from_name(&name).ok_or("is unknown to the op table")?;
        let values = unsafe { list(n, operands) }.iter().map(|v| Value::of(*v)).collect();
        let regions = unsafe { list(n_regions, regions) }.iter().map(|r| Region::of(*r)).collect();
        rules::infer_types(&View::of_parts(
            Ctx(context.ptr),
            kind,
            values,
            regions,
            Attr(attributes),
        ))
    };
    match guard(loc, "type inference", Err("type inference panicked".into()), run) {
        Ok(types) => {
            let mut raw: Vec<_> = types.iter().map(|t| t.0).collect();
            if let Some(append) = append {
                unsafe { append(raw.len() as isize, raw.as_mut_ptr(), out) }
            }
            true
        }
        Err(e) => {
            loc.emit_error(&format!("'{name}' op {}", e.message));
            false
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn kilnMaterialize(
    context: MlirContext,
    value: MlirAttribute,
    ty: MlirType,
    location: MlirLocation,
) -> MlirOperation {
    let name = if Type(ty).is_index() { arith::Constant::NAME } else { "kiln.constant" };
    unsafe {
        let mut state = mlirOperationStateGet(sref(name), location);
        let key = mlirIdentifierGet(context, sref("value"));
        mlirOperationStateAddAttributes(&mut state, 1, &mlirNamedAttributeGet(key, value));
        mlirOperationStateAddResults(&mut state, 1, &ty);
        mlirOperationCreate(&mut state)
    }
}

#[unsafe(no_mangle)]
extern "C" fn kilnPatterns(context: MlirContext, set: MlirRewritePatternSet) {
    for pattern in rules::CANONICAL {
        extern "C" fn run(
            _: MlirRewritePattern,
            op: MlirOperation,
            rewriter: MlirPatternRewriter,
            data: *mut c_void,
        ) -> MlirLogicalResult {
            // SAFETY: the data is an element of a static table.
            let pattern = unsafe { &*data.cast::<Pattern>() };
            let op = Op::of(op);
            let rewriter = Rewriter::of(rewriter);
            let hit = guard(op.loc(), pattern.name, Ok(false), || (pattern.apply)(op, &rewriter));
            MlirLogicalResult { value: hit.unwrap_or(false) as i8 }
        }
        let callbacks = MlirRewritePatternCallbacks {
            construct: None,
            destruct: None,
            matchAndRewrite: Some(run),
        };
        unsafe {
            let data = (&raw const *pattern) as *mut c_void;
            let p = mlirOpRewritePatternCreate(
                sref(pattern.root.name()),
                1,
                context,
                callbacks,
                data,
                0,
                std::ptr::null_mut(),
            );
            mlirRewritePatternSetAdd(set, p);
        }
    }
}

//! Kernels of a single op that is not lowered to loops: a declaration, and the symbol of its
//! implementation in `kiln_runtime::library`, or external PTX.
use crate::{
    kernels::op_facts::is_library,
    linalg::scalar::storage,
    program::{external_ptx::PtxEntry, library_call::Library},
};
use kiln_dialects::{ir::*, ops::*, rules::tensor_type};
use kiln_passes::{expand_scans::LOOPS, refine_shapes::Facts};

/// The library op of a kernel, if it has one.
pub fn library_op(block: Block) -> Option<Op> {
    block.ops().into_iter().find(|o| o.kind().is_some_and(is_library) && o.attr(LOOPS).is_none())
}

/// The op's attributes, encoded as 64-bit words.
fn config(op: Op) -> Option<Vec<i64>> {
    Some(match op.kind()? {
        OpKind::Cumulative => Cumulative::of(op).map(|o| vec![o.kind.value(), o.axis])?,
        OpKind::Sort => Sort::of(op).map(|o| vec![o.axis, i64::from(o.descending)])?,
        OpKind::TopK => TopK::of(op).map(|o| vec![o.axis, i64::from(o.smallest)])?,
        OpKind::Fft => {
            let o = Fft::of(op)?;
            let flags = [o.inverse, o.interleaved_input, o.interleaved_result].map(i64::from);
            [&[o.kind.value(), o.length], &flags[..]].concat()
        }
        OpKind::Scatter => Scatter::of(op).map(|o| [&[o.kind.value()], &o.dims[..]].concat())?,
        _ => vec![],
    })
}

/// Replaces a kernel's function by a declaration: input tensors, output tensors, sizes.
pub fn declare(func: Op, op: Op, end: Op, args: &[Value], facts: &Facts) -> Result<()> {
    let c = func.ctx();
    let kind = op.kind().ok_or_at(op, "is no prim")?;
    let tensors: Vec<Value> = args.iter().copied().filter(|v| v.ty().is_tensor()).collect();
    let place = |v: Value| {
        tensors.iter().position(|a| *a == v).ok_or_at(op, "reads a value that is not stored")
    };
    let operands: Vec<usize> = op
        .operands()
        .into_iter()
        .filter(|v| v.ty().is_tensor())
        .map(place)
        .collect::<Result<_, _>>()?;
    let returned = end.operands();
    if returned.iter().any(|v| v.def() != Some(op)) {
        return Err(Error::unsupported(
            op,
            "shares its kernel with other ops, which has no compiled form yet",
        ));
    }
    let results: Vec<Option<usize>> =
        op.results().into_iter().map(|r| returned.iter().position(|v| *v == r)).collect();
    let config = config(op).ok_or_at(op, "is malformed")?;
    let callee = format!("kiln_{}", kind.mnemonic());
    let indices: Vec<Value> = args.iter().copied().filter(|v| v.ty().is_index()).collect();
    let all: Vec<Value> = tensors.iter().chain(&returned).chain(&indices).copied().collect();
    let own = |v: &Value| -> Result<Type> {
        match tensor_type(v.ty()) {
            Ok(t) => Ok(Type::tensor(c, storage(t.dtype), &t.dims)),
            Err(_) => Ok(v.ty()),
        }
    };
    let types = all.iter().map(own).collect::<Result<Vec<_>, _>>().at(op)?;
    let b = Builder::before(func).ok_or_at(func, "is in no block")?.at(op.loc());
    let (name, ty) = (func.symbol().unwrap_or_default(), Type::function(c, &types, &[]));
    let declared = func::Func::new(b, &name, ty).sym_visibility("private");
    match op.kind() {
        // It takes pointers, and states its own sizes.
        Some(OpKind::PtxCall) => declared.build().at(op)?,
        _ => declared.arg_attrs(crate::linalg::sizes_attr(c, facts, &all)).build().at(op)?,
    };
    let module = func.parent().ok_or_at(func, "is in no module")?;
    match PtxCall::of(op) {
        Some(call) => {
            let results: Option<Vec<usize>> = results.into_iter().collect();
            let results = results.ok_or_at(op, "has a result without memory")?;
            PtxEntry::describe(module, &call, &operands, &results, &indices).at(op)?;
        }
        None => Library { callee, operands, results, config }.describe(module),
    }
    func.erase();
    Ok(())
}

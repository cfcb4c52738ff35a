//! The lowered function: arguments, a flat memref per buffer, scratch memory.
use crate::{
    analysis::{Kernel, NestPlan, Poly, Role},
    emit::{
        affine_loops,
        body::Scope,
        code::{Code, constant_value},
        index::{Constants, PART},
    },
    target::kernel_attrs::{DERIVED, IN_PLACE},
};
use kiln_dialects::{ir::*, ops::OpKind, sym::Dim};
use std::collections::HashMap;

/// Scratch memory for a row's intermediates.
pub struct Scratch<'a> {
    /// Allocates flat memory of this many elements.
    pub allocate: &'a dyn Fn(Code, Type, i64) -> Result<Value>,
    /// Most bytes of scratch.
    pub max_bytes: i64,
}

/// Emits the body of the new function, given its scope and its further arguments.
pub type BodyBuilder<'a> = dyn FnMut(Code, &Scope<'_>, &[Value]) -> Result<()> + 'a;

/// Emits the lowered kernel after its old function, with further arguments of these types at the
/// end.
pub fn emit(
    k: &mut Kernel,
    plan: &NestPlan,
    further: &[Type],
    scratch: &Scratch<'_>,
    build_body: &mut BodyBuilder<'_>,
) -> Result<()> {
    let func = k.func;
    let old = k.block.args();
    let (tensors, scalars): (Vec<Value>, Vec<Value>) = old.iter().partition(|a| a.ty().is_tensor());
    let results = func
        .attr("function_type")
        .and_then(|a| a.as_type())
        .and_then(|t| t.signature())
        .ok_or("has no type")?
        .1;
    let memref = |t: &Type| {
        t.element()
            .map(|e| Type::memref(e, &t.dims()))
            .ok_or("has an argument that is no ranked tensor")
    };
    let c = func.ctx();
    let mut types: Vec<Type> = tensors.iter().map(|v| memref(&v.ty())).collect::<Result<_, _>>()?;
    for t in &results {
        types.push(memref(t)?);
    }
    types.extend(scalars.iter().map(|v| v.ty()));
    types.extend(further);

    rows_as_scratch(k, plan);
    let builder = Builder::after(func).ok_or("is in no module")?;
    let name = func.symbol().ok_or("has no name")?;
    let new = builder.function(&name, &types, &[], &mut |b, args| {
        let code = Code(b);
        let (memories, rest) = args.split_at(tensors.len() + results.len());
        let (given, more) = rest.split_at(scalars.len());
        let mut scope = Scope {
            kernel: k,
            scalars: scalars.iter().copied().zip(given.iter().copied()).collect(),
            memory: vec![None; k.buffers.len()],
            nontemporal: false,
            store_predicate: None,
            prefetch: 0,
        };
        // Sizes of memory come first; what is computed of a position is loaded from memory.
        let loaded = k.scalars.iter().position(|op| k.positions.contains_key(op));
        let (sizes, positions) = k.scalars.split_at(loaded.unwrap_or(k.scalars.len()));
        for op in sizes {
            clone(code, *op, &mut scope.scalars)?;
        }
        let mut taken = 0;
        for (i, buffer) in k.buffers.iter().enumerate() {
            scope.memory[i] = match buffer.role {
                Role::Input(arg) | Role::Padded(arg) => {
                    let n = tensors
                        .iter()
                        .position(|t| old.get(arg) == Some(t))
                        .ok_or("has an input that is no argument")?;
                    let sizes = k.pads.get(&i).map_or_else(
                        || buffer.sizes.clone(),
                        |all| all.iter().map(|(_, n)| n.clone()).collect(),
                    );
                    Some(flat(code, &scope, memories[n], &sizes)?)
                }
                Role::Output(n) => {
                    Some(flat(code, &scope, memories[tensors.len() + n], &buffer.sizes)?)
                }
                Role::Temporary if plan.forwarded[i] => None,
                Role::Temporary => Some(local(code, k, i, scratch, &mut taken)?),
            };
        }
        for op in positions {
            match k.positions.get(op) {
                Some(buffer) => {
                    let first = memref::load(code, scope.buffer(*buffer)?, &[code.index(0)?])?;
                    scope.scalars.insert(op.result(0), first);
                }
                None => clone(code, *op, &mut scope.scalars)?,
            }
        }
        build_body(code, &scope, more)?;
        b.ret(&[]).map(drop)
    })?;
    finish(new)?;

    let said = func.attr("arg_attrs").and_then(|a| a.as_array()).unwrap_or_default();
    let nothing = Attr::dictionary(c, &[]);
    let of = |v: &Value| v.block_arg().and_then(|(_, i)| said.get(i).copied()).unwrap_or(nothing);
    let mut attrs: Vec<Attr> = tensors.iter().map(of).collect();
    let in_place = func.attr(IN_PLACE).and_then(|a| a.as_i64s()).unwrap_or_default();
    for n in 0..results.len() {
        let sizes = k
            .buffers
            .iter()
            .find(|b| b.role == Role::Output(n))
            .ok_or("has a result that nothing writes")?;
        let sizes: Vec<i64> = sizes.sizes.iter().map(|p| size_encoding(p, &scalars)).collect();
        let mut about = vec![("kiln.sizes", Attr::i64s(c, &sizes))];
        // A result that may alias an input (in-place) is not `noalias`.
        if !in_place.contains(&(n as i64)) {
            about.push(("kiln.noalias", Attr::unit(c)));
        }
        attrs.push(Attr::dictionary(c, &about));
    }
    attrs.extend(scalars.iter().map(of));
    attrs.extend(further.iter().map(|_| nothing));
    new.set_attr("arg_attrs", Attr::array(c, &attrs));
    for (name, attr) in func.attrs() {
        if !["sym_name", "function_type", "arg_attrs", "res_attrs", IN_PLACE]
            .contains(&name.as_str())
        {
            new.set_attr(&name, attr);
        }
    }
    Ok(())
}

/// What every function of a kernel gets when its code is complete.
pub fn finish(func: Op) -> Result<()> {
    affine_loops::raise(func)?;
    hoist_index_constants(func)?;
    match walk(func).into_iter().any(|op| op.kind().is_some_and(OpKind::is_tile)) {
        true => hoist_constants(func),
        false => Ok(()),
    }
}

/// Moves each constant of a tile program to the top, once, so that its regions are short.
fn hoist_constants(func: Op) -> Result<()> {
    let entry = blocks(func).first().map(|b| b.ops()).unwrap_or_default();
    let top = entry.into_iter().find(|op| !op.isa::<arith::Constant>());
    let top = top.and_then(Builder::before).ok_or_at(func, "has an empty body")?.at(func.loc());
    let mut placed: Vec<(Attr, Value)> = vec![];
    for op in walk(func).into_iter().filter(|op| op.isa::<arith::Constant>()) {
        let value = op.attr("value").ok_or_malformed(op)?;
        let found = placed.iter().find(|(a, _)| *a == value).map(|(_, v)| *v);
        let v = match found {
            Some(v) => v,
            None => arith::constant(top, value)?,
        };
        if found.is_none() {
            placed.push((value, v));
        }
        op.result(0).replace_uses(v);
        op.erase();
    }
    Ok(())
}

/// Moves each index constant to the top, once, and drops what nothing uses, such as views of memory
/// that only tensor maps reach. Affine ops that are part of others stay: `kiln-lower-affine` computes
/// what they share in their place.
fn hoist_index_constants(func: Op) -> Result<()> {
    let mut constants = vec![];
    // Users come behind what they use.
    for op in walk(func).into_iter().rev() {
        let affine = op.isa::<affine::AffineApply>() || op.isa::<affine::AffineMin>();
        let constant = is_index_constant(op);
        if !affine && !constant {
            if is_pure(op) && op.results().iter().all(|v| v.uses().is_empty()) {
                op.erase();
            }
            continue;
        }
        let part = affine && op.attr(PART).is_some();
        if part {
            op.remove_attr(PART);
        }
        if op.result(0).uses().is_empty() && !part {
            op.erase();
        } else if constant {
            constants.push((constant_value(op.result(0)).ok_or_malformed(op)?, op));
        }
    }
    let entry = blocks(func).first().map(|b| b.ops()).unwrap_or_default();
    let top = entry.into_iter().find(|op| !is_index_constant(*op));
    let start = top.and_then(Builder::before).ok_or_at(func, "has an empty body")?.at(func.loc());
    let mut placed = Constants::at(start);
    for (k, op) in constants.into_iter().rev() {
        op.result(0).replace_uses(placed.get(k)?);
        op.erase();
    }
    Ok(())
}

/// Whether an op only computes sizes, views and conditions.
fn is_pure(op: Op) -> bool {
    op.isa::<memref::ReinterpretCast>()
        || op.isa::<arith::MulI>()
        || op.isa::<arith::CmpI>()
        || op.isa::<arith::AndI>()
}

fn is_index_constant(op: Op) -> bool {
    op.isa::<arith::Constant>() && op.result(0).ty().is_index()
}

/// A size in the encoding of `kiln.sizes`.
fn size_encoding(p: &Poly, scalars: &[Value]) -> i64 {
    let indices: Vec<&Value> = scalars.iter().filter(|v| v.ty().is_index()).collect();
    let argument = p.as_symbol().and_then(|v| indices.iter().position(|i| **i == v));
    p.known().or(argument.map(|i| -1 - i as i64)).unwrap_or(DERIVED)
}

/// Reduces temporaries of rows to one row, which is reused for the next.
fn rows_as_scratch(k: &mut Kernel, plan: &NestPlan) {
    let temporary: Vec<bool> = k.buffers.iter().map(|b| b.role == Role::Temporary).collect();
    for s in &mut k.stages {
        for a in s.all_accesses().filter(|a| temporary[a.buffer]) {
            a.at.dims.retain(|d, _| *d >= plan.rows);
        }
    }
}

fn clone(c: Code, op: Op, map: &mut HashMap<Value, Value>) -> Result<()> {
    let operands: Vec<Value> = op
        .operands()
        .iter()
        .map(|v| map.get(v).copied().ok_or("takes what is no scalar"))
        .collect::<Result<_, _>>()?;
    let types: Vec<Type> = op.results().iter().map(|r| r.ty()).collect();
    let attrs = op.attrs();
    let attrs: Vec<(&str, Attr)> = attrs.iter().map(|(n, a)| (n.as_str(), *a)).collect();
    let new = c.0.at(op.loc()).generic(&op.name(), &operands, &types, &attrs, &mut [])?;
    map.extend(op.results().into_iter().zip(new.results()));
    Ok(())
}

/// An argument as a flat, one-dimensional memref.
fn flat(c: Code, scope: &Scope<'_>, memory: Value, sizes: &[Poly]) -> Result<Value> {
    let count = Poly::product(sizes);
    let element = memory.ty().element().ok_or("is no memref")?;
    let (size, dim) = match count.known() {
        Some(n) => (Size::Static(n), Dim::Known(n)),
        None => (Size::Dynamic(scope.poly(c, &count)?), Dim::Unknown),
    };
    let (start, stride) = ([Size::Static(0)], [Size::Static(1)]);
    memref::reinterpret_cast(c, memory, &start, &[size], &stride, Type::memref(element, &[dim]))
}

/// Scratch for a temporary, of the span of one of its rows.
fn local(
    c: Code,
    k: &Kernel,
    buffer: usize,
    scratch: &Scratch<'_>,
    total: &mut i64,
) -> Result<Value> {
    let element = k.buffers[buffer].element;
    let most = k
        .span(buffer, 0)
        .ok_or("has an intermediate of dynamic size that no result has room for")?;
    *total += most * element.dtype()?.byte_size() as i64;
    if *total > scratch.max_bytes {
        return Err(format!("has intermediates of more than {} bytes", scratch.max_bytes).into());
    }
    (scratch.allocate)(c, element, most)
}

//! Test-case reduction: shrinks a failing graph to a small one that fails in the same way, with
//! fewer results, fewer ops and smaller sizes.
use super::{first_wrong, interpreted};
use crate::{
    Error, Model, Options,
    dialects::{
        interp::Mode,
        ir::*,
        ops::{BindShape, Global},
    },
    lowering::{RunOptions, driver::compile::CompileError, run_pipeline},
    model::{CachePolicy, random_inputs},
};
use regex::Regex;
use std::{collections::BTreeSet, path::Path};

/// Reduces IR at level `graph` or `prims` while `fails` holds for its text. Each round drops
/// results, replaces returned values by operands of their ops, turns op results into arguments, and
/// shrinks sizes, until a round makes no progress. Globals become arguments first. Err: the text is
/// not valid IR, or does not fail to begin with.
pub fn reduce(
    text: &str,
    function: &str,
    fails: &mut dyn FnMut(&str) -> bool,
) -> Result<String, Error> {
    let mut best = clean(text, function, &|_, _| Ok(()))?;
    if !fails(&best) {
        best = text.to_string();
        if !fails(&best) {
            return Err(Error::Reduce("it does not fail as it is".into()));
        }
    }
    if let Ok(next) = clean(&best, function, &|_, func| globals(func))
        && fails(&next)
    {
        best = next;
    }
    loop {
        let before = best.clone();
        results(&mut best, function, fails);
        ops(&mut best, function, fails);
        sizes(&mut best, function, fails);
        if best == before {
            return Ok(best);
        }
    }
}

/// An edit of a function.
type Edit<'a> = dyn Fn(&Module, Op) -> Result<()> + 'a;

/// The text after an edit and dead-code elimination. Err: there is no such function, or the result
/// is invalid IR.
fn clean(text: &str, function: &str, edit: &Edit) -> Result<String, Error> {
    let context = Context::new();
    let (module, _) = Module::parse(context.ctx(), text.as_bytes(), "reduced.mlir")?;
    let missing = || Error::Reduce(format!("there is no function @{function}"));
    let func = module.find(function).ok_or_else(missing)?;
    // The locations of an edit's error die with the context.
    edit(&module, func).map_err(|e| Error::Reduce(e.to_string()))?;
    let (ok, _) = collect(context.ctx(), || module.op().verify());
    if !ok {
        return Err(Error::Reduce("the change makes it no IR".into()));
    }
    run_pipeline(
        &module,
        "builtin.module(canonicalize{max-iterations=1 region-simplify=disabled},symbol-dce)",
        &RunOptions::default(),
        &|_, _, _| (),
    )
    .map_err(CompileError::from)?;
    unused(func);
    Ok(module.print(PrintOptions { names_from_locations: true, ..Default::default() }))
}

fn body(func: Op) -> Result<(Block, Op)> {
    let block = func.regions().first().and_then(|r| r.first()).ok_or("it has no body")?;
    let end = block.terminator().ok_or("it has no end")?;
    Ok((block, end))
}

/// Updates the function type after an edit.
fn retype(func: Op) -> Result<()> {
    let (block, end) = body(func)?;
    let types = |values: Vec<Value>| values.iter().map(|v| v.ty()).collect::<Vec<Type>>();
    func.set_attr(
        "function_type",
        Attr::ty(Type::function(func.ctx(), &types(block.args()), &types(end.operands()))),
    );
    // Argument and result indices may have shifted, so their layouts are dropped.
    func.remove_attr("arg_attrs");
    func.remove_attr("res_attrs");
    Ok(())
}

fn returning(func: Op, values: &[Value]) -> Result<()> {
    let (_, end) = body(func)?;
    Builder::before(end).ok_or("it has no end")?.ret(values)?;
    end.erase();
    retype(func)
}

/// Erases dead ops, including shape facts about values that have no other use.
fn unused(func: Op) {
    let Ok((block, _)) = body(func) else { return };
    loop {
        let idle = |op: &Op| match BindShape::of(*op) {
            Some(fact) => fact.value.uses().len() == 1 && fact.value.def().is_some(),
            None => {
                op.kind().is_some()
                    && op.result_count() > 0
                    && op.results().iter().all(|v| v.uses().is_empty())
            }
        };
        let Some(op) = block.ops().into_iter().rev().find(idle) else { return };
        op.erase();
    }
}

/// Turns weights into arguments, so that the IR needs no weight file.
fn globals(func: Op) -> Result<()> {
    let (block, _) = body(func)?;
    for op in block.ops().into_iter().filter(|o| o.is("kiln.get_global")) {
        let arg =
            Builder::at_end(func.ctx(), block, op.loc()).argument(op.result(0).ty(), op.loc());
        op.result(0).replace_uses(arg);
        op.erase();
    }
    retype(func)
}

/// Applies an edit if the result still fails; returns whether it did.
fn try_edit(
    best: &mut String,
    function: &str,
    fails: &mut dyn FnMut(&str) -> bool,
    edit: &Edit,
) -> bool {
    match clean(best, function, edit) {
        Ok(next) if next != *best && fails(&next) => {
            *best = next;
            true
        }
        _ => false,
    }
}

/// Keeps one result, else drops one result at a time.
fn results(best: &mut String, function: &str, fails: &mut dyn FnMut(&str) -> bool) {
    let count =
        counted(best, function, |func| body(func).map_or(0, |(_, end)| end.operand_count()));
    for i in 0..count {
        if count > 1
            && try_edit(best, function, fails, &|_, func| {
                returning(func, &[body(func)?.1.operand(i)])
            })
        {
            return;
        }
    }
    let mut i = 0;
    while i < counted(best, function, |func| body(func).map_or(0, |(_, end)| end.operand_count())) {
        let less = |_: &Module, func: Op| {
            let all = body(func)?.1.operands();
            let kept: Vec<Value> =
                all.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, v)| *v).collect();
            if kept.is_empty() {
                Err("a function gives something".into())
            } else {
                returning(func, &kept)
            }
        };
        if !try_edit(best, function, fails, &less) {
            i += 1;
        }
    }
}

fn counted(text: &str, function: &str, count: impl Fn(Op) -> usize) -> usize {
    let context = Context::new();
    let Ok((module, _)) = Module::parse(context.ctx(), text.as_bytes(), "reduced.mlir") else {
        return 0;
    };
    module.find(function).map_or(0, count)
}

fn op_count(best: &str, function: &str) -> usize {
    counted(best, function, |func| body(func).map_or(0, |(block, _)| block.ops().len()))
}

/// Backwards from the end: returns an op's operand in place of its result. Outwards from the
/// middle: replaces an op's result by an argument, or by an operand of the same type.
fn ops(best: &mut String, function: &str, fails: &mut dyn FnMut(&str) -> bool) {
    loop {
        let shorter = |i: usize| {
            move |_: &Module, func: Op| {
                let (_, end) = body(func)?;
                let last = end
                    .operands()
                    .iter()
                    .rev()
                    .find_map(|v| v.def())
                    .ok_or("results are arguments")?;
                let read: Vec<Value> = last
                    .operands()
                    .into_iter()
                    .filter(|v| v.ty().is_tensor() && v.def().is_some())
                    .collect();
                let value = *read.get(i).ok_or("it reads no more")?;
                let mut kept: Vec<Value> =
                    end.operands().into_iter().filter(|v| v.def() != Some(last)).collect();
                kept.push(value);
                returning(func, &kept)
            }
        };
        if !(0..3).any(|i| try_edit(best, function, fails, &shorter(i))) {
            break;
        }
    }
    // Large pieces first: the later the op, the more ops above it die.
    let mut at = op_count(best, function);
    while at > 0 {
        at = at.min(op_count(best, function));
        let Some(i) = at.checked_sub(1) else { return };
        let cut = |_: &Module, func: Op| {
            let (block, _) = body(func)?;
            let op = *block.ops().get(i).ok_or("there is no such op")?;
            if op.result_count() != 1 || !op.result(0).ty().is_tensor() {
                return Err("it gives no tensor".into());
            }
            let v = op.result(0);
            // A shape fact about the value must follow the sizes that it uses.
            let arg = Builder::at_end(func.ctx(), block, op.loc()).argument(v.ty(), op.loc());
            if v.ty().dims().iter().any(|d| d.known().is_none())
                && !v.uses().iter().any(|(o, _)| BindShape::of(*o).is_some())
            {
                return Err("its sizes are stated nowhere".into());
            }
            v.replace_uses(arg);
            op.erase();
            retype(func)
        };
        let through = |_: &Module, func: Op| {
            let (block, _) = body(func)?;
            let op = *block.ops().get(i).ok_or("there is no such op")?;
            let v = (op.result_count() == 1)
                .then(|| op.result(0))
                .filter(|v| v.ty().is_tensor())
                .ok_or("it gives no tensor")?;
            let same = op
                .operands()
                .into_iter()
                .find(|o| o.ty() == v.ty())
                .ok_or("it reads nothing of its type")?;
            v.replace_uses(same);
            op.erase();
            retype(func)
        };
        if !try_edit(best, function, fails, &cut) {
            try_edit(best, function, fails, &through);
        }
        at -= 1;
    }
    // Drops unused arguments.
    let args =
        |text: &str| counted(text, function, |func| body(func).map_or(0, |(b, _)| b.args().len()));
    for i in (0..args(best)).rev() {
        let without = |_: &Module, func: Op| {
            let (block, _) = body(func)?;
            let arg = *block.args().get(i).ok_or("there is no such argument")?;
            let facts: Vec<Op> = arg.uses().iter().map(|(o, _)| *o).collect();
            if facts.iter().any(|o| BindShape::of(*o).is_none()) {
                return Err("it is read".into());
            }
            facts.into_iter().for_each(Op::erase);
            block.erase_arg(i);
            retype(func)
        };
        try_edit(best, function, fails, &without);
    }
}

/// Shrinks each size, everywhere it occurs.
fn sizes(best: &mut String, function: &str, fails: &mut dyn FnMut(&str) -> bool) {
    let Ok(size) = Regex::new(r"[<x](\d+)x") else { return };
    let all: BTreeSet<i64> =
        size.captures_iter(best).filter_map(|c| c[1].parse().ok()).filter(|n| *n > 2).collect();
    for n in all.into_iter().rev() {
        let mut now = n;
        while let Some(next) = [2, now / 8, now / 2, now - 1].into_iter().find(|next| {
            *next >= 1 && *next < now && {
                let Ok(word) = Regex::new(&format!(r"(^|[^\w.%#@]|x|<){now}($|[^\w.]|x)")) else {
                    return false;
                };
                // Twice, since adjacent matches share their separator.
                let mut text = best.clone();
                for _ in 0..2 {
                    text = word.replace_all(&text, format!("${{1}}{next}${{2}}")).into_owned();
                }
                try_text(best, function, fails, &text)
            }
        }) {
            now = next;
        }
    }
}

fn try_text(
    best: &mut String,
    function: &str,
    fails: &mut dyn FnMut(&str) -> bool,
    text: &str,
) -> bool {
    match clean(text, function, &|_, _| Ok(())) {
        Ok(next) if next != *best && fails(&next) => {
            *best = next;
            true
        }
        _ => false,
    }
}

/// Whether a graph without globals is miscompiled, on random inputs. Input that the compiler or the
/// interpreter rejects counts as correct.
pub fn mismatch(text: &str, options: &Options) -> bool {
    let context = Context::new();
    let Ok((module, _)) = Module::parse(context.ctx(), text.as_bytes(), "reduced.mlir") else {
        return false;
    };
    if walk(module.op()).iter().any(|o| Global::of(*o).is_some()) {
        return false;
    }
    let options = Options { cache: CachePolicy::Off, dump: None, ..options.clone() };
    let Ok(exe) = Model::from_module(&module, Path::new("")).compile(&options) else {
        return false;
    };
    let Some(inputs) = random_inputs(exe.program())
        .ok()
        .and_then(|all| all.iter().map(|d| d.tensor().ok()).collect::<Option<Vec<_>>>())
    else {
        return false;
    };
    let Ok(found) = exe.call_values(&inputs.iter().collect::<Vec<_>>()) else { return false };
    let run = |mode| {
        interpreted(&module, &options.function, &inputs, mode, &|name, _| {
            Err(format!("has no weight @{name}").into())
        })
        .ok()
    };
    matches!((run(Mode::Rounded), run(Mode::Exact)), (Some(rounded), Some(exact)) if first_wrong(&found, &rounded, &exact).is_some())
}

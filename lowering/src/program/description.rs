//! The description of a program as an attribute of its module.
//!
//! Why: `kiln-host-abi` turns host functions into calls, which no longer say what a program takes
//! and gives. It keeps that as the module's `kiln.programs`: one dictionary per program, with the
//! fields of [`Program`], so that a module on level `target` or `llvm` still runs.
use crate::program::interface::{describe, described};
use kiln_dialects::{ir::*, value::DType};
use kiln_runtime::program::Program;
use serde_json::{Map, Number, Value as Json};

/// The module's attribute: descriptions by function name.
const PROGRAMS: &str = "kiln.programs";

/// Describes the programs of a module on level `program` in its attribute. A program that another
/// one calls is described within that one. A function that cannot be described has no entry.
pub fn write(module: Op) -> Result<()> {
    let c = module.ctx();
    let all: Vec<Program> =
        described(module).into_iter().filter_map(|f| describe(module, &f).ok()).collect();
    let called: Vec<&str> = all.iter().flat_map(callees).map(|p| p.name.as_str()).collect();
    let mut entries = vec![];
    for program in all.iter().filter(|p| !called.contains(&p.name.as_str())) {
        let json = serde_json::to_value(program).map_err(|e| Error::internal(e.to_string()))?;
        entries.push((program.name.as_str(), attribute(c, &json)?));
    }
    if !entries.is_empty() {
        module.set_attr(PROGRAMS, Attr::dictionary(c, &entries));
    }
    Ok(())
}

/// The program of a function: as the module's attribute describes it, or of the host function,
/// which a module above level `target` has, and a GPU's on every level.
pub fn read(module: Op, function: &str) -> Result<Program> {
    let Some(all) = module.attr(PROGRAMS) else { return describe(module, function) };
    let malformed = |e: &dyn std::fmt::Display| {
        Error::at(module, format!("has a malformed description in {PROGRAMS}: {e}"))
    };
    let entries = all.entries().ok_or_else(|| malformed(&"it is no dictionary"))?;
    let mut names = vec![];
    for (name, about) in &entries {
        let program: Program = serde_json::from_value(json(*about).at(module)?)
            .map_err(|e| malformed(&format!("program '{name}': {e}")))?;
        if let Some(found) = find(&program, function) {
            return Ok(found.clone());
        }
        names.push(name.as_str());
    }
    let names = names.join(", ");
    Err(Error::at(module, format!("describes no program @{function} (programs: {names})")))
}

/// The programs that a program calls: the one that prepares its weights, and those of its control
/// flow.
fn callees(p: &Program) -> Vec<&Program> {
    let own = p.prepare.as_deref().into_iter().chain(p.control.iter().flat_map(|c| &c.parts));
    own.flat_map(|p| std::iter::once(p).chain(callees(p))).collect()
}

fn find<'a>(p: &'a Program, function: &str) -> Option<&'a Program> {
    std::iter::once(p).chain(callees(p)).find(|p| p.name == function)
}

/// Plain data as an attribute. Fields without a value are left out.
fn attribute(c: Ctx, json: &Json) -> Result<Attr> {
    Ok(match json {
        Json::Null => Attr::unit(c),
        Json::Bool(b) => Attr::scalar_int(c, DType::I1, i64::from(*b)),
        Json::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(n), _) => Attr::i64(c, n),
            (None, Some(x)) if n.is_f64() => Attr::f64(c, x),
            _ => return Err(Error::internal(format!("{n} does not fit in 64 bits"))),
        },
        Json::String(s) => Attr::string(c, s),
        Json::Array(all) => {
            let numbers: Option<Vec<i64>> = all.iter().map(Json::as_i64).collect();
            match numbers.filter(|n| !n.is_empty()) {
                Some(numbers) => Attr::i64s(c, &numbers),
                None => {
                    let all = all.iter().map(|j| attribute(c, j)).collect::<Result<Vec<_>>>()?;
                    Attr::array(c, &all)
                }
            }
        }
        Json::Object(fields) => {
            let stated = fields.iter().filter(|(_, j)| !j.is_null());
            let all = stated
                .map(|(name, j)| Ok((name.as_str(), attribute(c, j)?)))
                .collect::<Result<Vec<_>>>()?;
            Attr::dictionary(c, &all)
        }
    })
}

/// The inverse of [`attribute`].
fn json(a: Attr) -> Result<Json> {
    if a.is_unit() {
        return Ok(Json::Null);
    }
    if let Some(b) = a.as_bool() {
        return Ok(Json::Bool(b));
    }
    if let Some(n) = a.as_i64() {
        return Ok(n.into());
    }
    if let Some(x) = a.as_f64() {
        return Ok(Number::from_f64(x).map_or(Json::Null, Json::Number));
    }
    if let Some(s) = a.as_string() {
        return Ok(s.into());
    }
    if let Some(fields) = a.entries() {
        let all = fields.into_iter().map(|(name, a)| Ok((name, json(a)?)));
        return all.collect::<Result<Map<_, _>>>().map(Json::Object);
    }
    if let Some(all) = a.as_array() {
        return all.into_iter().map(json).collect::<Result<_>>().map(Json::Array);
    }
    let numbers = a.as_i64s().ok_or_else(|| format!("has {a} in a description"))?;
    Ok(numbers.into())
}

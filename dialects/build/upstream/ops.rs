//! Ops: what ODS says of operands, attributes, regions and results.
use super::{
    attrs::{AttrKind, attr},
    *,
};

pub enum Kind {
    Operand,
    Optional,
    Variadic,
    /// Operands and the static list of this name, merged into one list of sizes.
    Sizes(String),
    Attr {
        kind: AttrKind,
        required: bool,
    },
}

pub struct Arg {
    pub name: String,
    pub ident: String,
    pub kind: Kind,
}

/// The type of a result.
pub enum ResultType {
    /// Follows from operands or attributes, by this expression.
    Inferred(String),
    /// Given by the caller.
    Given(String),
    /// Any number of results, whose types the caller gives.
    Many,
}

pub struct Op {
    pub name: String,
    pub full: String,
    pub function: String,
    pub summary: String,
    pub args: Vec<Arg>,
    pub regions: Vec<String>,
    pub results: Vec<(String, ResultType)>,
    pub segments: bool,
    /// Whether it can be built: ops with successors and nested operand lists are read only.
    pub built: bool,
}

impl Op {
    pub fn read(records: &Records, row: &Json, module: &str, taken: &mut Vec<String>) -> Op {
        let traits = flat(records, &row["traits"]);
        let has = |name: &str| traits.iter().any(|t| text(&t["!name"]) == name);
        let op_name = text(&row["opName"]);
        let def = text(&row["!name"]);
        // C++ drops what stands before the first `_`, and so does this.
        let base = def.split_once('_').map_or(def, |(_, rest)| rest);
        let short = camel(base.strip_suffix("Op").unwrap_or(base));
        let name = [short.clone(), format!("{short}Op"), camel(op_name)]
            .into_iter()
            .find(|n| !taken.contains(n))
            .unwrap_or_else(|| format!("{short}Upstream"));
        taken.push(name.clone());

        let mut built = row["successors"]["args"].as_array().is_none_or(Vec::is_empty)
            && !["AttrSizedResultSegments", "SameVariadicOperandSize"].iter().any(|t| has(t));
        let mut args: Vec<Arg> = vec![];
        for (i, argument) in row["arguments"]["args"].as_array().into_iter().flatten().enumerate() {
            let mut constraint = records.def(&argument[0]);
            if is(constraint, "OpVariable") {
                constraint = records.def(&constraint["constraint"]);
            }
            let name = argument[1].as_str().map_or_else(|| format!("operand{i}"), str::to_string);
            // `static_sizes` and `sizes`, or `static_position` and `dynamic_position`.
            let base = name.strip_prefix("static_").and_then(|base| {
                let pair = |n: &str| n.strip_prefix("dynamic_").unwrap_or(n) == base;
                args.iter().position(|a| pair(&a.name) && matches!(a.kind, Kind::Variadic))
            });
            let ident = snake(&name);
            let kind = if let (Some(at), "DenseI64ArrayAttr") = (base, text(&constraint["!name"])) {
                args[at].ident = snake(name.trim_start_matches("static_"));
                args[at].kind = Kind::Sizes(name);
                continue;
            } else if is(constraint, "Attr") || is(constraint, "AttrConstraint") {
                let (kind, required) = attr(records, constraint);
                Kind::Attr { kind, required }
            } else if is(constraint, "Property") {
                let any =
                    AttrKind::Plain { ty: "Attr", read: "Attr", make: "{}", reader: "Some({})" };
                Kind::Attr { kind: any, required: false }
            } else if is(constraint, "Optional") {
                Kind::Optional
            } else if is(constraint, "Variadic") {
                built &= !is(constraint, "VariadicOfVariadic");
                Kind::Variadic
            } else {
                Kind::Operand
            };
            args.push(Arg { name, ident, kind });
        }
        let groups = args.iter().filter(|a| !matches!(a.kind, Kind::Attr { .. } | Kind::Operand));
        built &= groups.count() <= 1 || has("AttrSizedOperandSegments");

        let results = row["results"]["args"].as_array().cloned().unwrap_or_default();
        let results = results
            .iter()
            .map(|r| {
                let name = text(&r[1]);
                let mut constraint = records.def(&r[0]);
                if is(constraint, "OpVariable") {
                    constraint = records.def(&constraint["constraint"]);
                }
                let many = is(constraint, "Variadic") || is(constraint, "Optional");
                let ty = if many {
                    ResultType::Many
                } else if let Some(ty) = inferred(&traits, constraint, name, &args) {
                    ResultType::Inferred(ty)
                } else {
                    ResultType::Given(if results.len() == 1 {
                        "result_type".into()
                    } else {
                        format!("{}_type", snake(name).trim_end_matches('_'))
                    })
                };
                (snake(name), ty)
            })
            .collect::<Vec<_>>();
        built &= results.iter().filter(|r| matches!(r.1, ResultType::Many)).count() <= 1;
        let regions = row["regions"]["args"].as_array().into_iter().flatten();
        let regions: Vec<String> = regions
            .map(|r| {
                built &= !is(records.def(&r[0]), "VariadicRegion");
                snake(text(&r[1]))
            })
            .collect();
        Op {
            name,
            full: format!("{module}.{op_name}"),
            function: snake(op_name),
            summary: line(text(&row["summary"])),
            args,
            regions,
            results,
            segments: has("AttrSizedOperandSegments"),
            built,
        }
    }
}

/// Traits, with those of trait lists.
fn flat<'a>(records: &'a Records, list: &Json) -> Vec<&'a Json> {
    let mut all = vec![];
    for t in list.as_array().into_iter().flatten() {
        let t = records.def(t);
        all.push(t);
        all.extend(flat(records, &t["traits"]));
    }
    all
}

/// The type of a result as an expression, where ODS says it.
fn inferred(traits: &[&Json], constraint: &Json, name: &str, args: &[Arg]) -> Option<String> {
    match text(&constraint["builderCall"]) {
        "$_builder.getIndexType()" => return Some("Type::index(cx)".into()),
        "$_builder.getF32Type()" => {
            return Some("Type::scalar(cx, crate::value::DType::F32)".into());
        }
        call => {
            let width = call.strip_prefix("$_builder.getIntegerType(");
            if let Some(width) = width.and_then(|w| w.strip_suffix(')')) {
                return Some(format!("Type::integer(cx, {width})"));
            }
        }
    }
    let operand = |name: &str| {
        args.iter().find(|a| a.name == name && matches!(a.kind, Kind::Operand)).map(|a| &a.ident)
    };
    let value = |name: &str| {
        let attr = args.iter().find(|a| a.name == name)?;
        let Kind::Attr { kind: AttrKind::Plain { ty: "Attr", .. }, required: true } = attr.kind
        else {
            return None;
        };
        Some(format!("{}.type_of()", attr.ident))
    };
    for t in traits {
        if text(&t["!name"]) == "SameOperandsAndResultType" {
            let first = args.iter().find(|a| !matches!(a.kind, Kind::Attr { .. }))?;
            return operand(&first.name).map(|v| format!("{v}.ty()"));
        }
        if is(t, "AllTypesMatch") {
            let all: Vec<&str> =
                t["values"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
            if all.contains(&name) {
                let of = |n: &&str| operand(n).map(|v| format!("{v}.ty()")).or_else(|| value(n));
                return all.iter().find_map(of);
            }
        }
        if is(t, "TypesMatchWith") && t["rhs"] == name {
            let from = operand(text(&t["lhs"]))?;
            return match text(&t["transformer"]) {
                "$_self" => Some(format!("{from}.ty()")),
                "::getI1SameShape($_self)" => Some(format!("{from}.ty().with_i1()")),
                call if call.ends_with("Type>($_self).getElementType()")
                    && !call.contains("gpu::") =>
                {
                    Some(format!("{from}.ty().element().ok_or(\"has no element type\")?"))
                }
                _ => None,
            };
        }
    }
    None
}

//! Attributes: their Rust types, constructors and readers.
use super::*;

/// How an attribute appears in Rust.
pub enum AttrKind {
    Unit,
    /// Passed as a value of a Rust type; by which constructor and reader of `Attr`.
    Plain {
        ty: &'static str,
        read: &'static str,
        make: &'static str,
        reader: &'static str,
    },
    /// An integer attribute of this width that holds an enum's number.
    Number {
        path: String,
        bits: i64,
    },
    /// An attribute of the dialect that prints as prefix, keyword, suffix.
    Keyword {
        path: String,
        prefix: String,
        suffix: &'static str,
    },
    /// A list of such attributes.
    Keywords {
        path: String,
        prefix: String,
        suffix: &'static str,
    },
}

/// What a constraint on an attribute says, and whether the attribute is required.
pub fn attr(records: &Records, row: &Json) -> (AttrKind, bool) {
    if is(row, "OptionalAttr")
        || is(row, "DefaultValuedAttr")
        || is(row, "DefaultValuedOptionalAttr")
    {
        return (attr(records, records.def(&row["baseAttr"])).0, false);
    }
    if is(row, "ConfinedAttr") {
        return attr(records, records.def(&row["baseAttr"]));
    }
    let plain = |ty, read, make, reader| AttrKind::Plain { ty, read, make, reader };
    let any = plain("Attr", "Attr", "{}", "Some({})");
    let width = row["bitwidth"].as_i64();
    let keyword = |e: &Json, dialect: &str, mnemonic: &str, format: &str| {
        let (prefix, suffix) = match format {
            "$value" => (format!("#{dialect}<{mnemonic} "), ">"),
            "`<` $value `>`" => (format!("#{dialect}.{mnemonic}<"), ">"),
            "`(` $value `)`" => (format!("#{dialect}<{mnemonic}("), ")>"),
            _ => return None,
        };
        Some((enums::path(e)?, prefix, suffix))
    };
    let kind = match text(&row["!name"]) {
        "UnitAttr" => return (AttrKind::Unit, false),
        "DenseI64ArrayAttr" => plain("&[i64]", "Vec<i64>", "Attr::i64s(cx, {})", "{}.as_i64s()"),
        "DenseI32ArrayAttr" => plain("&[i32]", "Vec<i32>", "Attr::i32s(cx, {})", "{}.as_i32s()"),
        "BoolAttr" | "I1Attr" => plain("bool", "bool", "Attr::bool(cx, {})", "{}.as_bool()"),
        "I64Attr" => plain("i64", "i64", "Attr::i64(cx, {})", "{}.as_i64()"),
        "I32Attr" => plain("i64", "i64", "Attr::int(cx, 32, {})", "{}.as_i64()"),
        "I16Attr" => plain("i64", "i64", "Attr::int(cx, 16, {})", "{}.as_i64()"),
        "I8Attr" => plain("i64", "i64", "Attr::int(cx, 8, {})", "{}.as_i64()"),
        "IndexAttr" => plain("i64", "i64", "Attr::index(cx, {})", "{}.as_i64()"),
        "StrAttr" | "SymbolNameAttr" => {
            plain("&str", "String", "Attr::string(cx, {})", "{}.as_string()")
        }
        "FlatSymbolRefAttr" => plain("&str", "String", "Attr::symbol(cx, {})", "{}.as_symbol()"),
        // These wrap an enum in C++ only.
        name @ ("Linkage" | "CConv" | "TailCallKind") if is(row, "DialectAttr") => {
            let lower = name.to_lowercase();
            let path = format!("super::llvm::{name}");
            AttrKind::Keyword { path, prefix: format!("#llvm.{lower}<"), suffix: ">" }
        }
        _ if is(row, "TypeAttrBase") => plain("Type", "Type", "Attr::ty({})", "{}.as_type()"),
        _ if is(row, "EnumAttr") => {
            let dialect = records.def(&row["dialect"]);
            let found = keyword(
                records.def(&row["enum"]),
                text(&dialect["name"]),
                text(&row["mnemonic"]),
                text(&row["assemblyFormat"]),
            );
            found.map_or(any, |(path, prefix, suffix)| AttrKind::Keyword { path, prefix, suffix })
        }
        _ if is(row, "EnumAttrInfo") && enums::path(row).is_some() => AttrKind::Number {
            path: enums::path(row).unwrap_or_default(),
            bits: width.unwrap_or(64),
        },
        _ if is(row, "TypedArrayAttrBase") => {
            match attr(records, records.def(&row["elementAttr"])).0 {
                AttrKind::Keyword { path, prefix, suffix } => {
                    AttrKind::Keywords { path, prefix, suffix }
                }
                _ => any,
            }
        }
        _ => any,
    };
    (kind, true)
}

impl AttrKind {
    /// The type of a parameter.
    pub fn ty(&self) -> String {
        match self {
            AttrKind::Unit => "bool".into(),
            AttrKind::Plain { ty, .. } => ty.to_string(),
            AttrKind::Number { path, .. } | AttrKind::Keyword { path, .. } => path.clone(),
            AttrKind::Keywords { path, .. } => format!("&[{path}]"),
        }
    }
    /// The attribute of a parameter, as an expression of type `Attr`.
    pub fn make(&self, x: &str) -> String {
        match self {
            AttrKind::Unit => "Attr::unit(cx)".into(),
            AttrKind::Plain { make, .. } => make.replace("{}", x),
            AttrKind::Number { bits, .. } => format!("Attr::int(cx, {bits}, {x}.value())"),
            AttrKind::Keyword { prefix, suffix, .. } => {
                format!("keyword(cx, {prefix:?}, {x}, {suffix:?})?")
            }
            AttrKind::Keywords { prefix, suffix, .. } => {
                format!("keywords(cx, {prefix:?}, {x}, {suffix:?})?")
            }
        }
    }
    /// Type and expression of the reader.
    pub fn read(&self, name: &str) -> (String, String) {
        let attr = format!("self.attr({name:?})");
        let some =
            |ty: &str, by: String| (format!("Option<{ty}>"), format!("{attr}.and_then({by})"));
        match self {
            AttrKind::Unit => ("bool".into(), format!("{attr}.is_some()")),
            AttrKind::Plain { ty: "Attr", .. } => ("Option<Attr>".into(), attr),
            AttrKind::Plain { read, reader, .. } => {
                some(read, reader.replace("{}.", "Attr::").replace("()", ""))
            }
            AttrKind::Number { path, .. } => some(path, format!("read_number::<{path}>")),
            AttrKind::Keyword { path, prefix, suffix } => {
                some(path, format!("|a| read_keyword(a, {prefix:?}, {suffix:?})"))
            }
            AttrKind::Keywords { path, prefix, suffix } => some(
                &format!("Vec<{path}>"),
                format!("|a| read_keywords(a, {prefix:?}, {suffix:?})"),
            ),
        }
    }
}

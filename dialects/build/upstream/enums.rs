//! Enums of upstream's attributes.
use super::*;
use std::fmt::Write;

/// An enum: its module, its name, and its cases as (variant, keyword, value).
pub struct Enum {
    pub module: String,
    pub name: String,
    bits: bool,
    cases: Vec<(String, String, i64)>,
}

/// The module of a C++ namespace such as `::mlir::arith`, and the enum's name in it.
fn place(e: &Json) -> Option<(String, String)> {
    let mut words = text(&e["cppNamespace"]).split("::").filter(|w| !w.is_empty());
    let (Some("mlir"), Some(module)) = (words.next(), words.next()) else { return None };
    Some((module.to_lowercase(), text(&e["className"]).to_string()))
}

/// The path of an enum seen from a dialect's module.
pub fn path(e: &Json) -> Option<String> {
    place(e).map(|(module, name)| format!("super::{module}::{name}"))
}

/// Adds the enums of a file; those of included files come several times.
pub fn collect(records: &Records, all: &mut BTreeMap<(String, String), Enum>) {
    for e in records.of("EnumInfo") {
        let Some((module, name)) = place(e) else { continue };
        let case = |c: &Json| {
            let c = records.def(c);
            let (symbol, keyword) = (text(&c["symbol"]), text(&c["str"]));
            Some((symbol.to_string(), keyword.to_string(), c["value"].as_i64()?))
        };
        let cases: Option<Vec<_>> =
            e["enumerants"].as_array().into_iter().flatten().map(case).collect();
        let bits = is(e, "BitEnumBase");
        let Some(mut cases) = cases.filter(|c| !c.is_empty()) else { continue };
        for c in &mut cases {
            let shouted = !bits && c.0.chars().all(|c| !c.is_ascii_lowercase());
            let variant = camel(&if shouted { c.0.to_lowercase() } else { c.0.clone() });
            c.0 = if variant.starts_with(|c: char| c.is_ascii_digit()) {
                format!("N{variant}")
            } else if bits {
                snake(&variant).trim_end_matches('_').to_uppercase()
            } else if variant == "Self" {
                "SelfCase".into()
            } else {
                variant
            };
        }
        // Cases with one value are synonyms: the first one stands.
        let mut seen = vec![];
        cases.retain(|c| {
            !seen.contains(&c.2) && {
                seen.push(c.2);
                true
            }
        });
        all.entry((module.clone(), name.clone())).or_insert(Enum { module, name, bits, cases });
    }
}

impl Enum {
    /// Its path seen from a dialect's module.
    pub fn path(&self) -> String {
        format!("super::{}::{}", self.module, self.name)
    }
    pub fn code(&self) -> String {
        let mut s = String::new();
        let (mac, what) = if self.bits { ("flags", "A set of") } else { ("cases", "The cases of") };
        let (kind, name) = (if self.bits { "flags" } else { "enum" }, &self.name);
        writeln!(s, "{mac}! {{\n/// {what} `{name}`, upstream's {kind}.\n{name} {{").unwrap();
        for (variant, keyword, value) in &self.cases {
            let doc = if keyword.is_empty() { "no keyword" } else { keyword };
            writeln!(s, "/// `{doc}`\n{variant} = {value}, {keyword:?};").unwrap();
        }
        writeln!(s, "}} }}").unwrap();
        s
    }
}

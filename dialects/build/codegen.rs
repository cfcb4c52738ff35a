//! Generates Rust from TableGen's JSON dump: `OpKind` with its columns, the enums, and one plain
//! struct per op ("node") that reads and writes it.
use serde_json::Value as Json;
use std::fmt::Write;

/// How an operand or attribute of the .td appears in Rust.
enum Field {
    Operand,
    OptionalOperand,
    Operands,
    /// `dynamic_X` operands and attribute `X` merged into one list of static and SSA sizes.
    Sizes,
    /// An attribute: its Rust type, and the suffix of its accessor (`v.i64("axis")`).
    Attr {
        ty: String,
        reader: &'static str,
        optional: bool,
        default: Option<String>,
    },
    Enum {
        ty: String,
    },
}

struct Op {
    variant: String,
    name: String,
    family: String,
    summary: String,
    formula: String,
    reference: String,
    segments: bool,
    inferred: bool,
    regions: Vec<String>,
    results: Vec<String>,
    fields: Vec<(String, Field)>,
    syntax: String,
}

/// Variant, keyword, value.
type Case = (String, String, i64);

/// All ops and enums, in .td order.
pub struct Table {
    ops: Vec<Op>,
    enums: Vec<(String, Vec<Case>)>,
}

fn text(j: &Json) -> String {
    j.as_str().unwrap_or("").to_string()
}

fn is(j: &Json, class: &str) -> bool {
    j["!superclasses"].as_array().is_some_and(|c| c.iter().any(|x| x == class))
}

fn camel(s: &str) -> String {
    s.split('_').map(|w| w[..1].to_uppercase() + &w[1..]).collect()
}

fn attr(all: &Json, def: &str) -> Field {
    let row = &all[def];
    if is(row, "OptionalAttr") || is(row, "DefaultValuedAttr") {
        let base = row["baseAttr"]["def"].as_str().expect("an optional attribute has a base");
        let Field::Attr { ty, reader, .. } = attr(all, base) else {
            panic!("{def}: an optional enum")
        };
        let default = is(row, "DefaultValuedAttr").then(|| text(&row["defaultValue"]));
        return Field::Attr { ty, reader, optional: default.is_none(), default };
    }
    if is(row, "I64EnumAttr") {
        return Field::Enum { ty: text(&row["className"]) };
    }
    let (ty, reader) = match def {
        "DenseI64ArrayAttr" => ("Vec<i64>", "i64s"),
        "I64Attr" => ("i64", "i64"),
        "F64Attr" => ("f64", "f64"),
        "UnitAttr" => ("bool", "unit"),
        "TypeAttr" => ("Type", "ty"),
        "StrAttr" | "SymbolNameAttr" => ("String", "string"),
        "FlatSymbolRefAttr" => ("String", "symbol"),
        "ElementsAttr" | "TypedAttrInterface" | "DictionaryAttr" | "AffineMapArrayAttr" => {
            ("Attr", "attr")
        }
        _ if is(row, "TypeAttrOf") => ("Type", "ty"),
        _ => panic!("build/codegen.rs has no Rust type for attribute {def}"),
    };
    Field::Attr { ty: ty.into(), reader, optional: false, default: None }
}

fn op(all: &Json, row: &Json) -> Op {
    let mut fields: Vec<(String, Field)> = vec![];
    for argument in row["arguments"]["args"].as_array().expect("arguments") {
        let (def, name) = (argument[0]["def"].as_str().expect("def"), text(&argument[1]));
        let constraint = &all[def];
        if is(constraint, "Attr") {
            if fields.iter().any(|(n, f)| *n == name && matches!(f, Field::Sizes)) {
                continue;
            }
            fields.push((name, attr(all, def)));
        } else if let Some(base) = name.strip_prefix("dynamic_") {
            fields.push((base.into(), Field::Sizes));
        } else if is(constraint, "Variadic") {
            fields.push((name, Field::Operands));
        } else if is(constraint, "Optional") {
            fields.push((name, Field::OptionalOperand));
        } else {
            fields.push((name, Field::Operand));
        }
    }
    let names = |key: &str| {
        row[key]["args"].as_array().into_iter().flatten().map(|a| text(&a[1])).collect::<Vec<_>>()
    };
    let has = |t: &str| row["traits"].as_array().is_some_and(|l| l.iter().any(|x| x["def"] == t));
    Op {
        variant: text(&row["!name"]).trim_start_matches("Kiln_").trim_end_matches("Op").to_string(),
        name: text(&row["opName"]),
        family: camel(&text(&row["family"])),
        summary: text(&row["summary"]),
        formula: text(&row["formula"]),
        reference: text(&row["reference"]),
        segments: has("AttrSizedOperandSegments"),
        inferred: has("Infer"),
        regions: names("regions"),
        results: names("results"),
        syntax: text(&row["assemblyFormat"]).split_whitespace().collect::<Vec<_>>().join(" "),
        fields,
    }
}

impl Table {
    pub fn read(all: &Json) -> Table {
        let of = |class: &str| all["!instanceof"][class].as_array().cloned().unwrap_or_default();
        let mut rows: Vec<&Json> = of("Op")
            .iter()
            .map(|n| &all[n.as_str().unwrap_or("")])
            .filter(|r| r["opDialect"]["def"] == "Kiln_Dialect")
            .collect();
        // The dump is sorted by name; docs and enums use definition order.
        let place = |r: &Json| {
            let loc = text(&r["!locs"][0]);
            let (file, line) = loc.rsplit_once(':').expect("file:line");
            let order = [
                "Structure.td",
                "Elementwise.td",
                "Shape.td",
                "Reduce.td",
                "Control.td",
                "Composite.td",
                "Structured.td",
                "Tile.td",
            ];
            (
                order.iter().position(|f| file.ends_with(f)).expect("a file of Kiln.td"),
                line.parse::<usize>().expect("a line"),
            )
        };
        rows.sort_by_key(|r| (place(r), text(&r["!name"])));
        let enums = of("I64EnumAttr")
            .iter()
            .map(|n| &all[n.as_str().unwrap_or("")])
            .map(|e| {
                let case = |c: &Json| {
                    let c = &all[c["def"].as_str().expect("case")];
                    (
                        camel(&text(&c["symbol"])),
                        text(&c["str"]),
                        c["value"].as_i64().expect("value"),
                    )
                };
                (
                    text(&e["className"]),
                    e["enumerants"].as_array().expect("cases").iter().map(case).collect(),
                )
            })
            .collect();
        Table { ops: rows.into_iter().map(|r| op(all, r)).collect(), enums }
    }

    /// `OpKind`, `Family`, `UnaryKind`, `BinaryKind`, and the attribute enums.
    pub fn kinds(&self) -> String {
        let mut s = String::new();
        let derive = "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\n";
        let column =
            |s: &mut String, doc: &str, name: &str, ty: &str, cell: &dyn Fn(&Op) -> String| {
                writeln!(
                    s,
                    "    /// {doc}\n    pub const fn {name}(self) -> {ty} {{\n        match self {{"
                )
                .unwrap();
                for o in &self.ops {
                    writeln!(s, "            OpKind::{} => {},", o.variant, cell(o)).unwrap();
                }
                writeln!(s, "        }}\n    }}").unwrap();
            };
        writeln!(
            s,
            "/// Every op of the dialect, in the order of the .td.\n{derive}pub enum OpKind {{"
        )
        .unwrap();
        for o in &self.ops {
            writeln!(
                s,
                "    /// `kiln.{}`: {}.\n    {},",
                o.name,
                o.summary.replace('[', "\\[").replace(']', "\\]"),
                o.variant
            )
            .unwrap();
        }
        writeln!(s, "}}\nimpl OpKind {{\n    /// All ops, in the order of the .td.\n    pub const ALL: &[OpKind] = &[").unwrap();
        for o in &self.ops {
            writeln!(s, "        OpKind::{},", o.variant).unwrap();
        }
        writeln!(s, "    ];").unwrap();
        column(&mut s, "The full name, such as `kiln.add`.", "name", "&'static str", &|o| {
            format!("\"kiln.{}\"", o.name)
        });
        column(&mut s, "One or more sentences on what it does.", "summary", "&'static str", &|o| {
            format!("{:?}", o.summary)
        });
        column(
            &mut s,
            "Its formula; empty where the summary says it all.",
            "formula",
            "&'static str",
            &|o| format!("{:?}", o.formula),
        );
        column(&mut s, "Where the semantics come from.", "reference", "&'static str", &|o| {
            format!("{:?}", o.reference)
        });
        column(&mut s, "The assembly format.", "syntax", "&'static str", &|o| {
            format!("{:?}", o.syntax)
        });
        column(&mut s, "The family it belongs to.", "family", "Family", &|o| {
            format!("Family::{}", o.family)
        });
        column(
            &mut s,
            "Whether result types follow from operands and attributes.",
            "is_inferred",
            "bool",
            &|o| o.inferred.to_string(),
        );
        column(&mut s, "The names of its regions.", "regions", "&'static [&'static str]", &|o| {
            format!("&{:?}", o.regions)
        });
        column(&mut s, "The names of its results.", "results", "&'static [&'static str]", &|o| {
            format!("&{:?}", o.results)
        });
        // Sorted for binary search: seven comparisons on a hot path.
        let mut names: Vec<_> =
            self.ops.iter().map(|o| (format!("kiln.{}", o.name), &o.variant)).collect();
        names.sort();
        let rows: String = names
            .iter()
            .map(|(name, variant)| format!("        ({name:?}, OpKind::{variant}),\n"))
            .collect();
        writeln!(
            s,
            "    /// The op of that full name.\n    pub fn from_name(name: &str) -> Option<OpKind> {{\n        const NAMES: &[(&str, OpKind)] = &[\n{rows}    ];\n        \
             NAMES.binary_search_by_key(&name, |row| row.0).ok().map(|i| NAMES[i].1)\n    }}\n}}"
        )
        .unwrap();

        let mut families: Vec<&str> = vec![];
        for o in &self.ops {
            if !families.contains(&o.family.as_str()) {
                families.push(&o.family)
            }
        }
        writeln!(
            s,
            "/// What kind of op it is: the sections of docs/ops.md.\n{derive}pub enum Family {{"
        )
        .unwrap();
        for f in families {
            writeln!(s, "    /// {f}\n    {f},").unwrap();
        }
        writeln!(s, "}}").unwrap();
        for (family, name) in [("Unary", "UnaryKind"), ("Binary", "BinaryKind")] {
            let ops: Vec<_> = self
                .ops
                .iter()
                .filter(|o| o.family == family)
                .map(|o| o.variant.as_str())
                .collect();
            let lower = family.to_lowercase();
            writeln!(s, "/// The {lower} elementwise ops.\n{derive}pub enum {name} {{").unwrap();
            ops.iter().for_each(|v| writeln!(s, "    /// {v}\n    {v},").unwrap());
            writeln!(
                s,
                "}}\nimpl {name} {{\n    /// All of them.\n    pub const ALL: &[{name}] = &["
            )
            .unwrap();
            ops.iter().for_each(|v| writeln!(s, "        {name}::{v},").unwrap());
            writeln!(s, "    ];\n    /// The op.\n    pub const fn op(self) -> OpKind {{\n        match self {{").unwrap();
            ops.iter()
                .for_each(|v| writeln!(s, "            {name}::{v} => OpKind::{v},").unwrap());
            writeln!(s, "        }}\n    }}\n    /// The {lower} kind of an op, if it is one.\n    pub const fn from_op(kind: OpKind) -> Option<Self> {{\n        Some(match kind {{").unwrap();
            ops.iter()
                .for_each(|v| writeln!(s, "            OpKind::{v} => {name}::{v},").unwrap());
            writeln!(s, "            _ => return None,\n        }})\n    }}\n}}").unwrap();
        }
        for (name, cases) in &self.enums {
            writeln!(s, "/// `{name}` of the .td.\n{derive}pub enum {name} {{").unwrap();
            cases.iter().for_each(|(v, t, _)| writeln!(s, "    /// `{t}`\n    {v},").unwrap());
            writeln!(
                s,
                "}}\nimpl {name} {{\n    /// All cases.\n    pub const ALL: &[{name}] = &["
            )
            .unwrap();
            cases.iter().for_each(|(v, _, _)| writeln!(s, "        {name}::{v},").unwrap());
            writeln!(s, "    ];\n    /// The number stored in the IR.\n    pub const fn value(self) -> i64 {{\n        match self {{")
                .unwrap();
            cases
                .iter()
                .for_each(|(v, _, n)| writeln!(s, "            {name}::{v} => {n},").unwrap());
            writeln!(s, "        }}\n    }}\n    /// The keyword of the assembly.\n    pub const fn keyword(self) -> &'static str {{\n        match self {{").unwrap();
            cases
                .iter()
                .for_each(|(v, t, _)| writeln!(s, "            {name}::{v} => {t:?},").unwrap());
            writeln!(s, "        }}\n    }}\n    /// From the number stored in the IR.\n    pub const fn from_value(value: i64) -> Option<Self> {{\n        Some(match value {{").unwrap();
            cases
                .iter()
                .for_each(|(v, _, n)| writeln!(s, "            {n} => {name}::{v},").unwrap());
            writeln!(s, "            _ => return None,\n        }})\n    }}\n}}").unwrap();
        }
        s
    }

    /// `unary!()` and `binary!()`: patterns that match any elementwise op of that arity; `tile!()`: one
    /// that matches any op of a tile program.
    pub fn macros(&self) -> String {
        let mut s = String::new();
        for family in ["Unary", "Binary", "Tile"] {
            let ops = self
                .ops
                .iter()
                .filter(|o| o.family == family)
                .map(|o| format!("$crate::ops::OpKind::{}", o.variant));
            let pattern = ops.collect::<Vec<_>>().join(" | ");
            writeln!(
                s,
                "macro_rules! {} {{\n    () => {{\n        {pattern}\n    }};\n}}",
                family.to_lowercase()
            )
            .unwrap();
        }
        s
    }

    /// One struct per op with typed fields, and its `Node` implementation.
    pub fn nodes(&self) -> String {
        let mut s = String::new();
        for o in &self.ops {
            let ident = |n: &str| if n == "type" { "r#type".to_string() } else { n.to_string() };
            writeln!(s, "/// `kiln.{}` as plain data.\n#[derive(Clone, Debug, PartialEq)]\npub struct {} {{", o.name, o.variant).unwrap();
            for (name, field) in &o.fields {
                let ty = match field {
                    Field::Operand => "Value".to_string(),
                    Field::OptionalOperand => "Option<Value>".into(),
                    Field::Operands => "Vec<Value>".into(),
                    Field::Sizes => "Vec<Size>".into(),
                    Field::Attr { ty, optional: true, .. } => format!("Option<{ty}>"),
                    Field::Attr { ty, .. } => ty.clone(),
                    Field::Enum { ty } => ty.clone(),
                };
                writeln!(s, "    /// `{name}`\n    pub {}: {ty},", ident(name)).unwrap();
            }
            writeln!(
                s,
                "}}\nimpl Node for {} {{\n    const KIND: OpKind = OpKind::{};",
                o.variant, o.variant
            )
            .unwrap();
            // Operands in order; without segment sizes at most one group is variadic and takes the
            // rest.
            let groups: Vec<_> = o
                .fields
                .iter()
                .filter(|(_, f)| !matches!(f, Field::Attr { .. } | Field::Enum { .. }))
                .collect();
            let fixed = groups.iter().filter(|(_, f)| matches!(f, Field::Operand)).count();
            writeln!(
                s,
                "    #[allow(unused_mut)]\n    fn read(v: &View) -> crate::error::Result<Self> {{\n        let mut operands = v.operands({}, {}, {})?;",
                groups.len(),
                fixed,
                o.segments
            )
            .unwrap();
            for (name, field) in &o.fields {
                let read = match field {
                    Field::Operand => "operands.one()?".to_string(),
                    Field::OptionalOperand => "operands.optional()?".into(),
                    Field::Operands => "operands.many()?".into(),
                    Field::Sizes => format!("v.sizes(operands.many()?, {name:?})?"),
                    Field::Attr { reader, default: Some(d), .. } => {
                        format!("v.{reader}({name:?})?.unwrap_or({d})")
                    }
                    Field::Attr { reader, optional: true, .. } => format!("v.{reader}({name:?})?"),
                    Field::Attr { reader: "unit", .. } => format!("v.unit({name:?})?.is_some()"),
                    Field::Attr { reader, .. } => {
                        format!("v.required({name:?}, v.{reader}({name:?})?)?")
                    }
                    Field::Enum { ty } => format!(
                        "v.required({name:?}, v.i64({name:?})?.and_then({ty}::from_value))?"
                    ),
                };
                writeln!(s, "        let {} = {read};", ident(name)).unwrap();
            }
            writeln!(s, "        operands.finish()?;").unwrap();
            let names: Vec<_> = o.fields.iter().map(|(n, _)| ident(n)).collect();
            writeln!(
                s,
                "        Ok({} {{ {} }})\n    }}\n    #[allow(unused_variables)]\n    fn write(&self, s: &mut State) {{",
                o.variant,
                names.join(", ")
            )
            .unwrap();
            for (name, field) in &o.fields {
                let id = ident(name);
                let write = match field {
                    Field::Operand => format!("s.operands(&[self.{id}]);"),
                    Field::OptionalOperand => format!("s.operands(self.{id}.as_slice());"),
                    Field::Operands => format!("s.operands(&self.{id});"),
                    Field::Sizes => format!("s.sizes({name:?}, &self.{id});"),
                    Field::Attr { reader: "unit", .. } => format!("s.unit({name:?}, self.{id});"),
                    Field::Attr { reader, optional: true, .. } => {
                        format!("if let Some(x) = &self.{id} {{ s.{reader}({name:?}, x) }}")
                    }
                    Field::Attr { reader, .. } => format!("s.{reader}({name:?}, &self.{id});"),
                    Field::Enum { .. } => format!("s.i64({name:?}, &self.{id}.value());"),
                };
                writeln!(s, "        {write}").unwrap();
            }
            if o.segments {
                writeln!(s, "        s.segments();").unwrap();
            }
            writeln!(s, "    }}\n}}").unwrap();
        }
        s
    }
}

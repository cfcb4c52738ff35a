//! Writes an op: its marker, its readers, its builder.
use super::{attrs::AttrKind, ops::*, snake};
use std::fmt::Write;

impl Op {
    pub fn code(&self) -> String {
        let mut s = String::new();
        let Op { name, full, summary, .. } = self;
        let doc = if summary.is_empty() { String::new() } else { format!(": {summary}") };
        writeln!(s, "/// `{full}`{doc}.\npub enum {name} {{}}").unwrap();
        writeln!(s, "impl OpType for {name} {{ const NAME: &'static str = {full:?};").unwrap();
        writeln!(s, "const SEGMENTS: bool = {}; }}", self.segments).unwrap();
        writeln!(s, "impl TypedOp<{name}> {{").unwrap();
        self.readers(&mut s);
        writeln!(s, "}}").unwrap();
        if self.built {
            self.builders(&mut s);
        }
        s
    }

    fn readers(&self, s: &mut String) {
        let mut used: Vec<String> = vec![];
        let mut put = |s: &mut String, doc: &str, ident: &str, ty: &str, body: &str| {
            if ident.is_empty() || ident.starts_with("operand") || used.iter().any(|u| u == ident) {
                return;
            }
            used.push(ident.into());
            writeln!(s, "/// {doc}\n#[inline] pub fn {ident}(self) -> {ty} {{ {body} }}").unwrap();
        };
        let operands = || self.args.iter().filter(|a| !matches!(a.kind, Kind::Attr { .. }));
        let total = operands().count();
        for (i, a) in operands().enumerate() {
            let doc = format!("Operand `{}`.", a.name);
            let fixed = operands().take(i).all(|o| matches!(o.kind, Kind::Operand));
            let (ty, body) = match a.kind {
                Kind::Operand if fixed => ("Value", format!("self.operand({i})")),
                Kind::Operand => {
                    ("Value", format!("self.operand(self.operand_range({i}, {total}).start)"))
                }
                Kind::Optional => (
                    "Option<Value>",
                    format!("self.operand_range({i}, {total}).next().map(|i| self.operand(i))"),
                ),
                _ => (
                    "Vec<Value>",
                    format!("self.operand_range({i}, {total}).map(|i| self.operand(i)).collect()"),
                ),
            };
            let later = operands().skip(i + 1).any(|o| !matches!(o.kind, Kind::Operand));
            // Behind two groups only segment sizes tell where a group begins.
            if fixed || self.segments || !later {
                put(s, &doc, &a.ident, ty, &body);
            }
            if let Kind::Sizes(attr) = &a.kind {
                let (ty, body) = ("Option<Vec<i64>>", format!("self.attr({attr:?})?.as_i64s()"));
                put(s, &format!("Attribute `{attr}`."), &snake(attr), ty, &body);
            }
        }
        for a in &self.args {
            if let Kind::Attr { kind, .. } = &a.kind {
                let (ty, body) = kind.read(&a.name);
                put(s, &format!("Attribute `{}`.", a.name), &a.ident, &ty, &body);
            }
        }
        for (i, r) in self.regions.iter().enumerate() {
            let body = format!("self.regions().get({i}).copied()");
            put(s, "A region.", r, "Option<Region>", &body);
        }
        for (i, (r, ty)) in self.results.iter().enumerate() {
            if !matches!(ty, ResultType::Many) && r != "result" {
                put(s, "A result.", r, "Value", &format!("self.result({i})"));
            }
        }
    }

    /// Parameters of a builder: required operands and attributes in ODS's order, then types.
    fn parameters(&self) -> String {
        let mut all = String::new();
        for a in &self.args {
            let ty = match &a.kind {
                Kind::Operand => "Value".to_string(),
                Kind::Variadic => "&[Value]".into(),
                Kind::Sizes(_) => "&[Size]".into(),
                Kind::Attr { kind, required: true } => kind.ty(),
                Kind::Optional | Kind::Attr { .. } => continue,
            };
            write!(all, ", {}: {ty}", a.ident).unwrap();
        }
        for (_, r) in &self.results {
            match r {
                ResultType::Given(name) => write!(all, ", {name}: Type").unwrap(),
                ResultType::Many => all += ", result_types: &[Type]",
                ResultType::Inferred(_) => {}
            }
        }
        all
    }

    /// Arguments that pass a builder's parameters on.
    fn arguments(&self) -> String {
        let required = self.args.iter().filter(|a| a.kind.is_required());
        let mut all: String = required.map(|a| format!(", {}", a.ident)).collect();
        for (_, r) in &self.results {
            match r {
                ResultType::Given(name) => write!(all, ", {name}").unwrap(),
                ResultType::Many => all += ", result_types",
                ResultType::Inferred(_) => {}
            }
        }
        all
    }

    /// The lifetime of the regions' closures, as declared and as used.
    fn life(&self) -> (&'static str, &'static str) {
        if self.regions.is_empty() { ("", "'static") } else { ("<'r>", "'r") }
    }

    fn builders(&self, s: &mut String) {
        let Op { name, full, function, .. } = self;
        let optional = self.args.iter().any(|a| !a.kind.is_required());
        let plain = self.args.iter().all(|a| match a.kind {
            Kind::Operand | Kind::Attr { .. } => true,
            Kind::Optional => !self.segments,
            _ => false,
        }) && self.regions.is_empty()
            && !self.results.iter().any(|r| matches!(r.1, ResultType::Many));
        let (parameters, (generic, life)) = (self.parameters(), self.life());
        let allow = "#[allow(unused_variables, clippy::too_many_arguments)]";
        if optional || !plain {
            writeln!(s, "impl {name} {{").unwrap();
            writeln!(s, "/// Starts one; what is optional is set on the builder, as are regions.")
                .unwrap();
            writeln!(s, "{allow}\npub fn new{generic}(builder: impl Into<Builder>{parameters})")
                .unwrap();
            writeln!(s, "-> OpBuilder<{life}, Self> {{").unwrap();
            writeln!(s, "OpBuilder::start(builder.into(), {}, |cx, parts| {{", self.regions.len())
                .unwrap();
            for Arg { name, ident, kind } in &self.args {
                match kind {
                    Kind::Operand => writeln!(s, "parts.operand({ident});"),
                    Kind::Variadic => writeln!(s, "parts.operands({ident});"),
                    Kind::Optional => writeln!(s, "parts.operands(&[]);"),
                    Kind::Sizes(attr) => writeln!(s, "parts.sizes({attr:?}, cx, {ident});"),
                    Kind::Attr { kind, required: true } => {
                        writeln!(s, "parts.attr({name:?}, {});", kind.make(ident))
                    }
                    Kind::Attr { .. } => Ok(()),
                }
                .unwrap()
            }
            for (_, r) in &self.results {
                match r {
                    ResultType::Inferred(x) | ResultType::Given(x) => {
                        writeln!(s, "parts.ty({x});").unwrap()
                    }
                    ResultType::Many => writeln!(s, "parts.types(result_types);").unwrap(),
                }
            }
            writeln!(s, "Ok(())\n}})\n}}\n}}").unwrap();
            self.setters(s);
        }
        let (output, end) = match self.results.as_slice() {
            [] => ("()".to_string(), ".map(|_| ())"),
            [(_, ResultType::Inferred(_) | ResultType::Given(_))] => {
                ("Value".into(), ".map(|op| op.result(0))")
            }
            _ if plain => (format!("TypedOp<{name}>"), ".map(typed)"),
            _ => (format!("TypedOp<{name}>"), ""),
        };
        let regions: String =
            self.regions.iter().map(|r| format!(", {r}: RegionBody<'r>")).collect();
        writeln!(s, "/// Builds `{full}`.\n{allow}\n#[inline]").unwrap();
        writeln!(s, "pub fn {function}{generic}(").unwrap();
        writeln!(s, "builder: impl Into<Builder>{parameters}{regions}) -> Result<{output}> {{")
            .unwrap();
        if plain {
            self.at_once(s);
        } else {
            let set: String = self.regions.iter().map(|r| format!(".{r}({r})")).collect();
            write!(s, "{name}::new(builder{}){set}.build()", self.arguments()).unwrap();
        }
        writeln!(s, "{end} }}").unwrap();
    }

    /// Builds an op of single operands and required attributes, without lists on the heap.
    fn at_once(&self, s: &mut String) {
        let operands = self.args.iter().filter(|a| matches!(a.kind, Kind::Operand));
        let operands: Vec<&str> = operands.map(|a| a.ident.as_str()).collect();
        let attrs = self.args.iter().filter_map(|a| match &a.kind {
            Kind::Attr { kind, required: true } => {
                Some(format!("({:?}, {})", a.name, kind.make(&a.ident)))
            }
            _ => None,
        });
        let types = self.results.iter().filter_map(|r| match &r.1 {
            ResultType::Inferred(x) | ResultType::Given(x) => Some(x.as_str()),
            ResultType::Many => None,
        });
        let (attrs, types) = (attrs.collect::<Vec<_>>(), types.collect::<Vec<_>>());
        writeln!(s, "let at = builder.into(); let cx = at.ctx;").unwrap();
        let lists = [operands.join(", "), types.join(", "), attrs.join(", ")];
        let [operands, types, attrs] = lists;
        write!(s, "at.plain({}::NAME, &[{operands}], &[{types}], &[{attrs}])", self.name).unwrap();
    }

    fn setters(&self, s: &mut String) {
        let (generic, life) = self.life();
        let mut out = String::new();
        let mut group = 0;
        for Arg { name, ident, kind } in &self.args {
            let (ty, body) = match kind {
                Kind::Optional => ("Value".into(), format!("self.set_operand({group}, {ident})")),
                Kind::Attr { kind: AttrKind::Unit, .. } => {
                    ("bool".into(), format!("self.set_unit({name:?}, {ident})"))
                }
                Kind::Attr { kind, required: false } => {
                    let make = kind.make(ident);
                    (kind.ty(), format!("self.set_attr({name:?}, |cx| Ok({make}))"))
                }
                _ => (String::new(), String::new()),
            };
            if !body.is_empty() {
                writeln!(out, "/// Sets `{name}`.\npub fn {ident}(self, {ident}: {ty}) -> Self {{")
                    .unwrap();
                writeln!(out, "{body} }}").unwrap();
            }
            group += usize::from(!matches!(kind, Kind::Attr { .. }));
        }
        for (i, r) in self.regions.iter().enumerate() {
            writeln!(out, "/// Fills region `{r}`, which else has no block.").unwrap();
            writeln!(out, "pub fn {r}(self, body: RegionBody<'r>) -> Self {{").unwrap();
            writeln!(out, "self.set_region({i}, body) }}").unwrap();
        }
        if !out.is_empty() {
            writeln!(s, "#[allow(unused_variables)]").unwrap();
            writeln!(s, "impl{generic} OpBuilder<{life}, {}> {{\n{out}}}", self.name).unwrap();
        }
    }
}

impl Kind {
    fn is_required(&self) -> bool {
        !matches!(self, Kind::Optional | Kind::Attr { required: false, .. })
    }
}

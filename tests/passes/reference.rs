//! A program around a kernel, and its kernels as serial loops by upstream's passes.
use kiln::{
    dialects::{ir::*, ops::*},
    lowering::{RunOptions, run_pipeline},
};
use regex::Regex;
use std::fmt::Write;

/// kiln's structured ops to linalg.
const GENERALIZE: &str = "builtin.module(kiln-generalize)";
/// Linalg on tensors to linalg on memory.
const BUFFERS: &str = "builtin.module(inline,symbol-dce,convert-elementwise-to-linalg,\
    one-shot-bufferize,canonicalize,cse)";
/// Linalg on memory to loops.
const LOOPS: &str = "builtin.module(convert-linalg-to-loops,expand-strided-metadata,\
    lower-affine,canonicalize,cse)";

/// The kernels of a module, with the function of each.
fn kernels(module: &Module) -> Vec<(Op, Op)> {
    let top = module.body().ops().into_iter().filter(|o| o.attr("kiln.kernel").is_some());
    let function =
        |m: &Op| blocks(*m).into_iter().flat_map(|b| b.ops()).find(|o| o.isa::<func::Func>());
    top.filter_map(|m| Some((m, function(&m)?))).collect()
}

/// A kernel's parameters: tensors, then sizes.
struct Signature {
    name: String,
    /// Type and sizes of each tensor; a dynamic size is `%sN`.
    inputs: Vec<(String, Vec<String>)>,
    outputs: Vec<(String, Vec<String>)>,
    /// The text of what is known of each size.
    sizes: Vec<String>,
}

impl Signature {
    fn of(func: Op) -> Result<Signature, String> {
        let block = func.regions().first().and_then(|r| r.first()).ok_or("a kernel has no body")?;
        let (mut inputs, mut sizes, mut symbols) = (vec![], vec![], vec![]);
        let attributes = func.attr("arg_attrs").and_then(|a| a.as_array()).unwrap_or_default();
        let stated = |i: usize, name: &str| attributes.get(i)?.entry(name)?.as_i64();
        for (i, v) in block.args().into_iter().enumerate() {
            if v.ty().to_string() == "index" {
                let least = stated(i, "kiln.least").unwrap_or(1);
                let divisor = stated(i, "kiln.divisor").unwrap_or(1);
                sizes.push(format!("{{min = {least} : i64, divisor = {divisor} : i64}}"));
                symbols.push(v);
            }
        }
        let symbol = |v: Value| symbols.iter().position(|s| *s == v).map(|n| format!("%s{n}"));
        let facts: Vec<BindShape> = block.ops().into_iter().filter_map(BindShape::of).collect();
        for (i, v) in block.args().into_iter().enumerate().filter(|(_, v)| !symbols.contains(v)) {
            let said = attributes.get(i).and_then(|a| a.entry("kiln.sizes")?.as_i64s());
            let bound = facts.iter().find(|f| f.value == v);
            let size = |d: usize| match (&said, bound) {
                (Some(all), _) if all[d] < 0 => Some(format!("%s{}", -all[d] - 1)),
                (None, Some(fact)) => match fact.sizes[d] {
                    Size::Dynamic(v) => symbol(v),
                    Size::Static(n) => Some(n.to_string()),
                },
                _ => None,
            };
            inputs.push(sized(v, &size)?);
        }
        let results = block.terminator().map(|t| t.operands()).unwrap_or_default();
        let output = |v: Value| {
            let sizes = written(v).map(|e| e.operands()).unwrap_or_default();
            let dynamic = |d: usize| {
                let ty = v.ty().to_string();
                let before = dims(&ty).iter().take(d).filter(|d| *d == "?").count();
                match sizes.get(before) {
                    Some(v) => symbol(*v),
                    None => (symbols.len() == 1).then(|| "%s0".into()),
                }
            };
            sized(v, &dynamic)
        };
        let outputs = results.into_iter().map(output).collect::<Result<_, _>>()?;
        Ok(Signature { name: func.symbol().unwrap_or_default(), inputs, outputs, sizes })
    }
}

/// The `tensor.empty` that a chain of ops on destinations writes to.
fn written(v: Value) -> Option<Op> {
    let mut v = v;
    loop {
        let op = v.def()?;
        if op.isa::<tensor::Empty>() {
            return Some(op);
        }
        let i = op.results().iter().position(|r| *r == v)?;
        v = *op.operands().get(op.operand_count().checked_sub(op.result_count())? + i)?;
    }
}

/// The sizes of `tensor<4x?xf32>`.
fn dims(ty: &str) -> Vec<String> {
    let inner = ty.trim_start_matches("tensor<").trim_end_matches('>');
    let mut all: Vec<String> = inner.split('x').map(str::to_string).collect();
    all.pop();
    all
}

/// Its type and sizes, a dynamic one as `size` says.
fn sized(
    v: Value,
    size: &dyn Fn(usize) -> Option<String>,
) -> Result<(String, Vec<String>), String> {
    let ty = v.ty().to_string();
    let known = |(i, d): (usize, String)| match d == "?" {
        true => size(i).ok_or_else(|| format!("size {i} of a {ty} is not a parameter")),
        false => Ok(d),
    };
    let sizes = dims(&ty).into_iter().enumerate().map(known).collect::<Result<_, _>>()?;
    Ok((ty, sizes))
}

/// The module with a function in front of each kernel, if it has none of its own.
pub fn program(module: &Module) -> Result<Module, String> {
    if module.body().ops().iter().any(|o| o.isa::<func::Func>()) {
        return Ok(module.duplicate());
    }
    let all: Vec<String> =
        kernels(module).into_iter().map(|(_, func)| caller(func)).collect::<Result<_, _>>()?;
    let whole = module.print(PrintOptions::default());
    let at = whole.find("\nmodule ").map_or(0, |i| i + 1);
    let end = at + whole[at..].find('\n').ok_or("is empty")? + 1;
    parse(module.op().ctx(), &format!("{}{}{}", &whole[..end], all.concat(), &whole[end..]))
}

/// A function that launches a kernel once.
fn caller(func: Op) -> Result<String, String> {
    let s = Signature::of(func)?;
    let types = |all: &[(String, Vec<String>)]| -> Vec<String> {
        all.iter().map(|(ty, _)| ty.clone()).collect()
    };
    let numbered = |prefix: &str, n: usize| -> Vec<String> {
        (0..n).map(|i| format!("%{prefix}{i}")).collect()
    };
    let (ins, outs) = (numbered("x", s.inputs.len()), numbered("e", s.outputs.len()));
    let (sizes, results) = (numbered("s", s.sizes.len()), types(&s.outputs).join(", "));
    let parameters: Vec<String> =
        ins.iter().zip(&s.inputs).map(|(x, (ty, _))| format!("{x}: {ty}")).collect();
    let mut text =
        format!("func.func @call_{}({}) -> ({results}) {{\n", s.name, parameters.join(", "));
    for (s, facts) in sizes.iter().zip(&s.sizes) {
        let _ = writeln!(text, "{s} = kiln.sym @{} {facts}", &s[1..]);
    }
    for (x, (ty, sizes)) in ins.iter().zip(&s.inputs).filter(|(_, (ty, _))| ty.contains('?')) {
        let _ = writeln!(text, "kiln.bind_shape {x}, [{}] : {ty}", sizes.join(", "));
    }
    for (e, (ty, sizes)) in outs.iter().zip(&s.outputs) {
        let dynamic: Vec<&str> =
            sizes.iter().map(String::as_str).filter(|d| d.starts_with('%')).collect();
        let _ = writeln!(text, "{e} = tensor.empty({}) : {ty}", dynamic.join(", "));
    }
    let list = |word: &str, values: &[String], types: &[String]| match values.is_empty() {
        true => String::new(),
        false if types.is_empty() => format!(" {word}({})", values.join(", ")),
        false => format!(" {word}({} : {})", values.join(", "), types.join(", ")),
    };
    let _ = writeln!(
        text,
        "%r:{} = kiln.launch @{}{}{}{} -> {results}",
        outs.len(),
        s.name,
        list("ins", &ins, &types(&s.inputs)),
        list("sizes", &sizes, &[]),
        list("outs", &outs, &types(&s.outputs)),
    );
    let returned: Vec<String> = (0..outs.len()).map(|i| format!("%r#{i}")).collect();
    let _ = writeln!(text, "return {} : {results}\n}}", returned.join(", "));
    Ok(text)
}

fn parse(c: Ctx, text: &str) -> Result<Module, String> {
    Module::parse(c, text.as_bytes(), "program.mlir")
        .map(|m| m.0)
        .map_err(|e| format!("{e}\n{text}"))
}

/// A program of linalg with its kernels as loops, on the level `tiled`.
pub fn loops(module: &Module) -> Result<String, String> {
    let copy = module.duplicate();
    run_pipeline(&copy, GENERALIZE, &RunOptions::default(), &|_, _, _| ())
        .map_err(|e| format!("structured ops as loop nests: {e}"))?;
    let mut text = "module attributes {kiln.level = \"tiled\"} {\n".to_string();
    for op in copy.body().ops().into_iter().filter(|o| o.attr("kiln.kernel").is_none()) {
        let whole = op.print(PrintOptions { local_scope: true, ..Default::default() });
        let _ = writeln!(text, "{whole}");
    }
    for (kernel, func) in kernels(&copy) {
        let code = kernel_loops(func)?;
        let entry = kernel.attr("kiln.kernel").map(|a| a.to_string()).unwrap_or_default();
        let name = kernel.symbol().unwrap_or_default();
        let _ = writeln!(text, "module @{name} attributes {{kiln.kernel = {entry}}} {{\n{code}}}");
    }
    Ok(text + "}\n")
}

/// Whether a kernel's floats may all be f64 instead: it sums f32, and neither converts floats nor
/// reads their bits. A serial sum of many f32 would be less accurate than what it is compared with.
fn widens(body: &str) -> bool {
    let others = ["f64", "f16", "bf16", "f8E", "bitcast", "arith.extf", "arith.truncf"];
    let bits = Regex::new("0x[0-9A-F]+").expect("a pattern");
    body.contains("\"reduction\"")
        && !others.iter().any(|t| body.contains(t))
        && !bits.is_match(body)
}

/// A kernel as `kiln-tile` would write it, for the first thread to run alone.
fn kernel_loops(func: Op) -> Result<String, String> {
    let s = Signature::of(func)?;
    let memory = |ty: &str| ty.replacen("tensor<", "memref<", 1);
    let stated = |sizes: &[String]| -> String {
        let one = |d: &String| match d.strip_prefix("%s").map(str::parse::<i64>) {
            Some(Ok(n)) => (-n - 1).to_string(),
            _ => d.clone(),
        };
        let all: Vec<String> = sizes.iter().map(one).collect();
        let all = if all.is_empty() { String::new() } else { format!(": {}", all.join(", ")) };
        format!("kiln.sizes = array<i64{all}>")
    };
    let mut parameters = vec![];
    for (i, (ty, sizes)) in s.inputs.iter().enumerate() {
        parameters.push(format!("%m{i}: {} {{{}}}", memory(ty), stated(sizes)));
    }
    for (i, (ty, sizes)) in s.outputs.iter().enumerate() {
        parameters.push(format!("%o{i}: {} {{kiln.noalias, {}}}", memory(ty), stated(sizes)));
    }
    parameters.extend((0..s.sizes.len()).map(|i| format!("%s{i}: index")));
    parameters.extend(["%thread: index".into(), "%threads: index".into()]);
    let mut text = format!(
        "module {{\nfunc.func @{}({}) {{\n%zero = arith.constant 0 : index\n\
         %first = arith.cmpi eq, %thread, %zero : index\nscf.if %first {{\n",
        s.name,
        parameters.join(", ")
    );
    func.set_attr("sym_name", Attr::string(func.ctx(), "linalg"));
    func.set_attr("sym_visibility", Attr::string(func.ctx(), "private"));
    // What they say about ops holds for linalg on tensors.
    for op in walk(func) {
        let own = op.attrs().into_iter().filter(|(name, _)| name.starts_with("kiln."));
        own.for_each(|(name, _)| op.remove_attr(&name));
    }
    let mut body = func.print(PrintOptions { local_scope: true, ..Default::default() });
    let wide = widens(&body);
    let widened = |ty: &str| if wide { ty.replace("f32", "f64") } else { ty.to_string() };
    body = widened(&body);
    for (i, (ty, _)) in s.inputs.iter().enumerate() {
        let narrow = if widened(ty) == *ty { "x" } else { "n" };
        let _ = writeln!(
            text,
            "%{narrow}{i} = bufferization.to_tensor %m{i} restrict : {} to {ty}",
            memory(ty)
        );
        if narrow == "n" {
            let _ = writeln!(text, "%x{i} = arith.extf %n{i} : {ty} to {}", widened(ty));
        }
    }
    let types = |all: &[(String, Vec<String>)]| -> Vec<String> {
        all.iter().map(|(ty, _)| widened(ty)).collect()
    };
    let mut values: Vec<String> = (0..s.inputs.len()).map(|i| format!("%x{i}")).collect();
    values.extend((0..s.sizes.len()).map(|i| format!("%s{i}")));
    let mut given = types(&s.inputs);
    given.extend(s.sizes.iter().map(|_| "index".to_string()));
    let _ = writeln!(
        text,
        "%r:{} = func.call @linalg({}) : ({}) -> ({})",
        s.outputs.len(),
        values.join(", "),
        given.join(", "),
        types(&s.outputs).join(", ")
    );
    for (i, (ty, _)) in s.outputs.iter().enumerate() {
        let result = if widened(ty) == *ty { format!("%r#{i}") } else { format!("%t{i}") };
        if widened(ty) != *ty {
            let _ = writeln!(text, "{result} = arith.truncf %r#{i} : {} to {ty}", widened(ty));
        }
        let _ = writeln!(
            text,
            "bufferization.materialize_in_destination {result} in restrict writable %o{i} : ({ty}, {}) -> ()",
            memory(ty)
        );
    }
    let _ = writeln!(text, "}}\nreturn\n}}\n{body}\n}}");
    let lower = |text: &str, pipeline| -> Result<Module, String> {
        let module = parse(func.ctx(), text)?;
        run_pipeline(&module, pipeline, &RunOptions::default(), &|_, _, _| ())
            .map_err(|e| format!("upstream's lowering: {e}\n{text}"))?;
        Ok(module)
    };
    let buffers = lower(&text, BUFFERS)?.print(PrintOptions::default());
    // A copy that is no memcpy calls a library of MLIR's.
    let copy = Regex::new(r"memref\.copy (%\S+), (%\S+) : (.*) to (.*)").expect("a pattern");
    let loops = copy.replace_all(&buffers, "linalg.copy ins($1 : $3) outs($2 : $4)");
    let lowered = lower(&loops, LOOPS)?;
    let code = lowered.body().ops().into_iter().find(|o| o.isa::<func::Func>()).ok_or("is gone")?;
    // What is allocated lives as long as the call.
    Ok(code
        .print(PrintOptions { local_scope: true, ..Default::default() })
        .replace("memref.alloc(", "memref.alloca(")
        + "\n")
}

//! Functions of upstream's ops on scalars, vectors or memory, as the passes of math and of index
//! arithmetic have them: run on samples after a pass as machine code, in a kernel that calls them.
//!
//! What they compute before the pass, the interpreter says, by the kiln op of each of their ops;
//! index arithmetic is lowered by upstream's pass.
use super::execution;
use crate::{support::*, tolerance};
use kiln::{
    Options,
    dialects::{
        interp::Mode,
        ir::*,
        value::{DType, Tensor},
    },
    lowering::{RunOptions, run_pipeline},
    passes::pass::level_of,
};
use std::{collections::HashMap, fmt::Write, path::Path};

/// How often a function of values is called, each time with other values.
const SAMPLES: usize = 64;

/// Where a kernel runs.
#[derive(Clone, Copy, PartialEq)]
pub enum On {
    Host,
    Gpu,
}

/// The kiln op of an op of upstream's.
const OPS: &[(&str, &str)] = &[
    ("arith.addf", "add"),
    ("arith.divf", "div"),
    ("arith.mulf", "mul"),
    ("arith.negf", "neg"),
    ("arith.remf", "rem"),
    ("math.erf", "erf"),
    ("math.exp", "exp"),
    ("math.exp2", "exp2"),
    ("math.floor", "floor"),
    ("math.log", "log"),
    ("math.sin", "sin"),
    ("math.sqrt", "sqrt"),
    ("math.tanh", "tanh"),
];

/// Whether a module has functions of upstream's ops alone.
pub fn are_of_upstream(module: &Module) -> bool {
    let own = |f: &Op| {
        let block = f.regions().first().and_then(|r| r.first());
        let values = block.iter().flat_map(|b| b.args()).any(|v| v.ty().is_tensor());
        !values && walk(*f).iter().all(|o| !o.name().starts_with("kiln."))
    };
    let all = functions(module);
    level_of(module.op()).is_none() && !all.is_empty() && all.iter().all(own)
}

/// Whether the functions compute the same after a pass, on the host or a GPU.
pub fn same_results(
    before: &Module,
    after: &Module,
    on: On,
    options: &Options,
) -> Result<(), String> {
    for func in functions(before) {
        let name = func.symbol().unwrap_or_default();
        let other = after.find(&name).ok_or_else(|| format!("@{name} is gone"))?;
        let function = Function::of(func)?;
        let inputs = function.samples();
        let call = |code: Op, on, options: &Options| {
            let text = function.program(code, on)?;
            execution::machine(&text, "call", &inputs, Path::new(""), options)
        };
        let found = call(other, on, options).map_err(|e| format!("after the pass: {e}"))?;
        let is_index = |o: &Op| o.name().starts_with("affine.");
        if walk(func).iter().any(is_index) {
            let lowered = before.duplicate();
            run_pipeline(
                &lowered,
                "builtin.module(lower-affine)",
                &RunOptions::default(),
                &|_, _, _| (),
            )
            .map_err(|e| e.to_string())?;
            let code = lowered.find(&name).ok_or("is gone")?;
            let wanted = call(code, On::Host, &execution::on_the_host())
                .map_err(|e| format!("before the pass: {e}"))?;
            if found != wanted || wanted.is_empty() {
                return Err(format!("@{name} gives {found:?}, before the pass {wanted:?}"));
            }
            continue;
        }
        let text = function.in_kiln()?;
        let (module, _) = Module::parse(before.op().ctx(), text.as_bytes(), "kiln.mlir")
            .map_err(|e| format!("{e}\n{text}"))?;
        let interpreted = |mode| {
            run(&module, functions(&module)[0], mode, &inputs)
                .map_err(|e| format!("before the pass: {e}"))
        };
        let (exact, rounded) = (interpreted(Mode::Exact)?, interpreted(Mode::Rounded)?);
        if found.len() != exact.len() {
            return Err(format!("{} results, before the pass {}", found.len(), exact.len()));
        }
        for (i, ((found, rounded), exact)) in found.iter().zip(&rounded).zip(&exact).enumerate() {
            if function.is_rounded_right() && !same_bits(found, rounded) {
                return Err(format!("result {i} has other bits: {found:?}, not {rounded:?}"));
            }
            tolerance::compare(found, rounded, exact).map_err(|e| format!("result {i} {e}"))?;
        }
    }
    Ok(())
}

/// A parameter or result.
struct Slot {
    /// Its type in the function, such as `vector<4xf32>`.
    ty: String,
    shape: Vec<usize>,
    /// The element type in memory.
    element: String,
}

impl Slot {
    fn of(ty: Type) -> Slot {
        let ty = ty.to_string();
        let inner = ty.split_once('<').map(|(_, rest)| rest.trim_end_matches('>'));
        let (shape, element) = match inner {
            Some(inner) => {
                let (sizes, element) = inner.rsplit_once('x').unwrap_or(("", inner));
                (sizes.split('x').filter_map(|d| d.parse().ok()).collect(), element.to_string())
            }
            None => (vec![], ty.clone()),
        };
        let element = if element == "index" { "i64".into() } else { element };
        Slot { ty, shape, element }
    }
    fn is_memory(&self) -> bool {
        self.ty.starts_with("memref<")
    }
    /// All of its samples as a tensor or in memory.
    fn sampled(&self, kind: &str) -> String {
        let sizes: String = self.sizes().iter().map(|n| format!("{n}x")).collect();
        format!("{kind}<{sizes}{}>", self.element)
    }
    fn sizes(&self) -> Vec<usize> {
        let samples = (!self.is_memory()).then_some(SAMPLES);
        samples.into_iter().chain(self.shape.iter().copied()).collect()
    }
}

/// A function and what a caller sees of it.
struct Function {
    func: Op,
    block: Block,
    /// The parameters, in order, with whether each is memory that the function writes.
    params: Vec<(Slot, bool)>,
    results: Vec<Slot>,
}

impl Function {
    fn of(func: Op) -> Result<Function, String> {
        let block = func.regions().first().and_then(|r| r.first()).ok_or("has no body")?;
        let stores = |v: &Value| {
            v.uses().iter().any(|(user, _)| user.is("memref.store") || user.is("vector.store"))
        };
        let params = block.args().iter().map(|v| (Slot::of(v.ty()), stores(v))).collect();
        let end = block.terminator().ok_or("has no return")?;
        let results = end.operands().iter().map(|v| Slot::of(v.ty())).collect();
        Ok(Function { func, block, params, results })
    }

    fn inputs(&self) -> Vec<&Slot> {
        self.params.iter().filter(|(_, written)| !written).map(|(s, _)| s).collect()
    }

    fn outputs(&self) -> Vec<&Slot> {
        let written = self.params.iter().filter(|(_, written)| *written).map(|(s, _)| s);
        written.chain(&self.results).collect()
    }

    /// Random arguments of all calls.
    fn samples(&self) -> Vec<Tensor> {
        let mut random = Random(self.params.len() as u64);
        let one = |slot: &&Slot| {
            let sizes = slot.sizes();
            if slot.ty == "index" {
                let all = (0..sizes.iter().product()).map(|_| random.below(1000) as i64).collect();
                return Tensor::ints(DType::I64, sizes, all).expect("a tensor");
            }
            let all = DType::ALL.iter().find(|d| d.to_string() == slot.element);
            random.tensor(*all.expect("an element type"), &sizes)
        };
        self.inputs().iter().map(one).collect()
    }

    /// Whether all of its ops are rounded correctly, so that its results have one value.
    fn is_rounded_right(&self) -> bool {
        let others = ["math.erf", "math.exp", "math.exp2", "math.log", "math.sin", "math.tanh"];
        walk(self.func).iter().all(|o| !others.contains(&o.name().as_str()))
    }

    /// A program on the level `tiled` that calls code with the function's signature for each sample.
    fn program(&self, code: Op, on: On) -> Result<String, String> {
        let (ins, outs) = (self.inputs(), self.outputs());
        let types = |all: &[&Slot]| -> String {
            all.iter().map(|s| s.sampled("tensor")).collect::<Vec<_>>().join(", ")
        };
        let named = |prefix: &str, n: usize| -> Vec<String> {
            (0..n).map(|i| format!("%{prefix}{i}")).collect()
        };
        let (x, e) = (named("x", ins.len()), named("e", outs.len()));
        let parameters: Vec<String> =
            x.iter().zip(&ins).map(|(x, s)| format!("{x}: {}", s.sampled("tensor"))).collect();
        let mut text = format!(
            "module attributes {{kiln.level = \"tiled\"}} {{\nfunc.func @call({}) -> ({}) {{\n",
            parameters.join(", "),
            types(&outs)
        );
        for (e, s) in e.iter().zip(&outs) {
            let _ = writeln!(text, "{e} = tensor.empty() : {}", s.sampled("tensor"));
        }
        let returned: Vec<String> = (0..outs.len()).map(|i| format!("%r#{i}")).collect();
        let _ = writeln!(
            text,
            "%r:{} = kiln.launch @kernel ins({} : {}) outs({} : {}) -> {}\nreturn {} : {}\n}}",
            outs.len(),
            x.join(", "),
            types(&ins),
            e.join(", "),
            types(&outs),
            types(&outs),
            returned.join(", "),
            types(&outs),
        );
        text += &kernel(&self.kernel(code, on)?, code.ctx())?;
        Ok(text + "}\n")
    }

    /// The kernel's module, which still calls the code.
    fn kernel(&self, code: Op, on: On) -> Result<String, String> {
        let (ins, outs) = (self.inputs(), self.outputs());
        let parameter = |name: String, s: &Slot, more: &str| {
            let sizes: Vec<String> = s.sizes().iter().map(usize::to_string).collect();
            let ty = s.sampled("memref");
            let list =
                if sizes.is_empty() { String::new() } else { format!(": {}", sizes.join(", ")) };
            format!("{name}: {ty} {{{more}kiln.sizes = array<i64{list}>}}")
        };
        let mut parameters: Vec<String> =
            ins.iter().enumerate().map(|(i, s)| parameter(format!("%m{i}"), s, "")).collect();
        let alone = "kiln.noalias, ";
        let written = outs.iter().enumerate();
        parameters.extend(written.map(|(i, s)| parameter(format!("%o{i}"), s, alone)));
        let (attributes, thread) = match on {
            On::Host => {
                parameters.extend(["%thread: index".into(), "%threads: index".into()]);
                ("", "")
            }
            On::Gpu => (
                " attributes {kiln.grid = affine_map<() -> (1)>, kiln.threads = 32 : i64}",
                "%thread = gpu.thread_id x\n",
            ),
        };
        let mut text = format!(
            "module {{\nfunc.func @kernel({}){attributes} {{\n{thread}%zero = arith.constant 0 : index\n\
             %one = arith.constant 1 : index\n%samples = arith.constant {SAMPLES} : index\n\
             %first = arith.cmpi eq, %thread, %zero : index\nscf.if %first {{\n",
            parameters.join(", ")
        );
        let is_memory = self.params.iter().any(|(s, _)| s.is_memory());
        if !is_memory {
            text += "scf.for %i = %zero to %samples step %one {\n";
        }
        let (mut args, mut next_in, mut next_out) = (vec![], 0, 0);
        for (slot, written) in &self.params {
            let next = if *written { &mut next_out } else { &mut next_in };
            let (n, memory) = (*next, slot.sampled("memref"));
            *next += 1;
            args.push(match (slot.is_memory(), slot.ty.as_str()) {
                (true, _) => format!("%{}{n}", if *written { "o" } else { "m" }),
                (_, "index") => {
                    let _ = writeln!(text, "%l{n} = memref.load %m{n}[%i] : {memory}");
                    let _ = writeln!(text, "%a{n} = arith.index_cast %l{n} : i64 to index");
                    format!("%a{n}")
                }
                (_, ty) if ty.starts_with("vector") => {
                    let _ = writeln!(text, "%a{n} = vector.load %m{n}[%i, %zero] : {memory}, {ty}");
                    format!("%a{n}")
                }
                _ => {
                    let _ = writeln!(text, "%a{n} = memref.load %m{n}[%i] : {memory}");
                    format!("%a{n}")
                }
            });
        }
        let list = |all: Vec<&str>| all.join(", ");
        let results = list(self.results.iter().map(|s| s.ty.as_str()).collect());
        let name = code.symbol().ok_or("has no name")?;
        let bound = match self.results.len() {
            0 => String::new(),
            n => format!("%r:{n} = "),
        };
        let _ = writeln!(
            text,
            "{bound}func.call @{name}({}) : ({}) -> ({results})",
            args.join(", "),
            list(self.params.iter().map(|(s, _)| s.ty.as_str()).collect()),
        );
        for (i, slot) in self.results.iter().enumerate() {
            let memory = slot.sampled("memref");
            let _ = match slot.ty.as_str() {
                "index" => writeln!(
                    text,
                    "%c{i} = arith.index_cast %r#{i} : index to i64\n\
                     memref.store %c{i}, %o{i}[%i] : {memory}"
                ),
                ty if ty.starts_with("vector") => {
                    writeln!(text, "vector.store %r#{i}, %o{i}[%i, %zero] : {memory}, {ty}")
                }
                _ => writeln!(text, "memref.store %r#{i}, %o{i}[%i] : {memory}"),
            };
        }
        if !is_memory {
            text += "}\n";
        }
        let print = |op: Op| op.print(PrintOptions { local_scope: true, ..Default::default() });
        let beside = code.block().map(|b| b.ops()).unwrap_or_default();
        let called = |op: &Op| op.attr("llvm.linkage").is_some();
        let called: String = beside.into_iter().filter(called).map(print).collect();
        let code = print(code).replacen("func.func @", "func.func private @", 1);
        Ok(format!("{text}}}\nreturn\n}}\n{code}\n{called}\n}}"))
    }

    /// The function in kiln ops on tensors of all samples.
    fn in_kiln(&self) -> Result<String, String> {
        let slots =
            |all: Vec<&Slot>| -> Vec<String> { all.iter().map(|s| s.sampled("tensor")).collect() };
        let memory = self.params.iter().map(|(s, _)| s).find(|s| s.is_memory());
        // In memory, a scalar is the only element.
        let sampled = |ty: Type| {
            let own = Slot::of(ty);
            let shape = memory.map_or_else(|| own.sizes(), |m| m.shape.clone());
            let sizes: String = shape.iter().map(|n| format!("{n}x")).collect();
            (format!("tensor<{sizes}{}>", own.element), shape, own.element)
        };
        let (mut values, mut parameters): (HashMap<Value, String>, Vec<String>) =
            Default::default();
        for (v, (slot, written)) in self.block.args().into_iter().zip(&self.params) {
            if !written {
                let name = format!("%a{}", parameters.len());
                parameters.push(format!("{name}: {}", slot.sampled("tensor")));
                values.insert(v, name);
            }
        }
        let (mut lines, mut stored) = (String::new(), HashMap::new());
        for (n, op) in self.block.ops().into_iter().enumerate() {
            let name = op.name();
            let value = |i: usize| {
                let v = op.operands().get(i).and_then(|v| values.get(v)).cloned();
                v.ok_or_else(|| format!("{name} reads what is no value"))
            };
            let made = match name.as_str() {
                "func.return" => break,
                "arith.constant" if op.result(0).ty().is_index() => continue,
                "memref.load" | "vector.load" => value(0)?,
                "memref.store" | "vector.store" => {
                    stored.insert(op.operand(1), value(0)?);
                    continue;
                }
                "arith.constant" => {
                    let said = op.attr("value").map(|a| a.to_string()).unwrap_or_default();
                    let number = said.trim_start_matches("dense<").split(['>', ' ']).next();
                    let (_, shape, element) = sampled(op.result(0).ty());
                    let number = number.unwrap_or_default();
                    let _ = writeln!(lines, "%v{n} = kiln.splat {shape:?}, {number} : {element}");
                    format!("%v{n}")
                }
                "arith.extf" | "arith.truncf" => {
                    let (from, to) = (sampled(op.operand(0).ty()).0, sampled(op.result(0).ty()).2);
                    let _ = writeln!(lines, "%v{n} = kiln.convert {} : {from} to {to}", value(0)?);
                    format!("%v{n}")
                }
                _ => {
                    let known = OPS.iter().find(|(own, _)| *own == name);
                    let (_, kiln) = known.ok_or_else(|| format!("no kiln op is {name}"))?;
                    let all: Result<Vec<String>, String> =
                        (0..op.operand_count()).map(value).collect();
                    let (ty, all) = (sampled(op.result(0).ty()).0, all?.join(", "));
                    let _ = writeln!(lines, "%v{n} = kiln.{kiln} {all} : {ty}");
                    format!("%v{n}")
                }
            };
            values.insert(op.result(0), made);
        }
        let written = self.block.args().into_iter().zip(&self.params).filter(|(_, (_, w))| *w);
        let mut returned: Vec<String> =
            written.filter_map(|(v, _)| stored.get(&v).cloned()).collect();
        let end = self.block.terminator().ok_or("has no return")?;
        returned.extend(end.operands().iter().filter_map(|v| values.get(v).cloned()));
        let types = slots(self.outputs()).join(", ");
        Ok(format!(
            "func.func @call({}) -> ({types}) {{\n{lines}return {} : {types}\n}}\n",
            parameters.join(", "),
            returned.join(", ")
        ))
    }
}

/// A kernel's module with the code inlined.
fn kernel(text: &str, c: Ctx) -> Result<String, String> {
    let (module, _) =
        Module::parse(c, text.as_bytes(), "kernel.mlir").map_err(|e| format!("{e}\n{text}"))?;
    let passes = "builtin.module(inline,symbol-dce)";
    run_pipeline(&module, passes, &RunOptions::default(), &|_, _, _| ())
        .map_err(|e| format!("{e}\n{text}"))?;
    let all: String = module
        .body()
        .ops()
        .into_iter()
        .map(|o| o.print(PrintOptions { local_scope: true, ..Default::default() }) + "\n")
        .collect();
    Ok(format!("module @kernel attributes {{kiln.kernel = {{}}}} {{\n{all}}}\n"))
}

//! Verifier, printed form and shape rule of every op: `*.mlir` in this folder, cases separated by
//! `// -----`.
//!
//! A case with `// expected-error` must fail with exactly these messages. Every other case
//! verifies, round-trips, and runs: results have the inferred sizes. `// NO-RUN: why` skips the
//! run.
use crate::support::*;
use kiln::dialects::{
    interp::Mode,
    ir::*,
    ops::*,
    rules::{self, Sizes, TensorType, tensor_type},
    sym::{Atom, Dim as Extent},
};
use std::collections::{BTreeSet, HashMap};

fn files() -> Vec<(String, String)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ops");
    let paths = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "mlir"));
    let mut all: Vec<_> = paths.collect();
    all.sort();
    all.into_iter()
        .map(|p| {
            (
                p.file_name().unwrap().to_string_lossy().into_owned(),
                std::fs::read_to_string(p).unwrap(),
            )
        })
        .collect()
}

/// Runs `check` on every valid case.
fn each_accepted(check: &mut dyn FnMut(&Case, &Module) -> Result<(), String>) {
    let mut failures = vec![];
    for (file, text) in files() {
        for case in cases(&text).into_iter().filter(|c| !c.text.contains("// expected-error")) {
            let context = Context::new();
            let outcome = match Module::parse(context.ctx(), case.text.as_bytes(), &file) {
                Ok((module, _)) => check(&case, &module),
                Err(e) => Err(e.to_string()),
            };
            failures.extend(outcome.err().map(|e| format!("{file}, {}: {e}", case.name)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_verifier_rejects_invalid_ops() {
    let mut failures = vec![];
    for (file, text) in files() {
        for case in cases(&text).into_iter().filter(|c| c.text.contains("// expected-error")) {
            let context = Context::new();
            let errors = match Module::parse(context.ctx(), case.text.as_bytes(), &file) {
                Ok(_) => vec![],
                Err(e) => parse_errors(e),
            };
            failures.extend(
                unmatched(&case.text, &errors)
                    .into_iter()
                    .map(|e| format!("{file}, {}: {e}", case.name)),
            );
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_op_has_a_valid_case_that_round_trips() {
    let mut seen = BTreeSet::new();
    each_accepted(&mut |_, module| {
        seen.extend(walk(module.op()).into_iter().filter_map(Op::kind));
        round_trips(module)
    });
    let missing: Vec<_> =
        OpKind::ALL.iter().filter(|k| !seen.contains(*k)).map(|k| k.name()).collect();
    assert!(missing.is_empty(), "no accepted case of {missing:?}");
}

/// Whether text, generic text and bytecode round-trip.
pub fn round_trips(module: &Module) -> Result<(), String> {
    let pretty = module.print(PrintOptions::default());
    let generic = module.print(PrintOptions { generic: true, ..Default::default() });
    for (what, source) in [
        ("text", pretty.clone().into_bytes()),
        ("generic text", generic.into_bytes()),
        ("bytecode", module.bytecode()),
    ] {
        let context = Context::new();
        let (again, _) = Module::parse(context.ctx(), &source, what)
            .map_err(|e| format!("its {what} does not parse: {e}"))?;
        let text = again.print(PrintOptions::default());
        if text != pretty {
            return Err(format!("its {what} reads back as\n{text}\nnot\n{pretty}"));
        }
    }
    Ok(())
}

/// Symbolic sizes of values.
#[derive(Default)]
pub struct Symbolic {
    tensors: HashMap<Value, TensorType>,
    sizes: HashMap<Value, Extent>,
}

impl Sizes for Symbolic {
    fn tensor(&self, v: Value) -> Result<TensorType, kiln_dialects::Error> {
        self.tensors.get(&v).cloned().map_or_else(|| tensor_type(v.ty()), Ok)
    }
    fn size(&self, s: &Size) -> Extent {
        match s {
            Size::Static(n) => Extent::Known(*n),
            Size::Dynamic(v) => self.sizes.get(v).cloned().unwrap_or(Extent::Unknown),
        }
    }
}

impl Symbolic {
    /// The shape rule of every op of a function's body.
    pub fn of(block: Block) -> Result<Symbolic, String> {
        let mut env = Symbolic::default();
        for op in block.ops() {
            env.step(op).map_err(|e| format!("{e}: {op}"))?;
        }
        Ok(env)
    }
    fn step(&mut self, op: Op) -> Result<(), String> {
        let extent = |env: &Symbolic, v: Value| env.size(&Size::Dynamic(v));
        if let Some(s) = Sym::of(op) {
            // No argument has the size of one that depends on data.
            let ops = op.block().map(Block::ops).unwrap_or_default();
            let read = ops.into_iter().filter_map(UnbackedSize::of).any(|u| u.name == s.name);
            let size = if read { Extent::Unknown } else { Extent::sym(&s.name) };
            self.sizes.insert(op.result(0), size);
        } else if let Some(e) = SymExpr::of(op) {
            let value = Extent::apply(e.kind, &extent(self, e.lhs), &extent(self, e.rhs));
            self.sizes.insert(op.result(0), value);
        } else if let Some(d) = Dim::of(op) {
            let t = self.tensor(d.input)?;
            self.sizes.insert(op.result(0), t.dims[d.axis as usize].clone());
        } else if op.isa::<arith::Constant>() {
            let n = op.attr("value").and_then(Attr::as_i64).ok_or("is no size")?;
            self.sizes.insert(op.result(0), Extent::Known(n));
        } else if let Some(b) = BindShape::of(op) {
            let dims = self.sizes(&b.sizes);
            self.tensors.insert(b.value, TensorType { dims, ..tensor_type(b.value.ty())? });
        } else if op.kind().is_some_and(OpKind::is_inferred) {
            let types = rules::infer(&View::of(op).ok_or("has no view")?, self)?;
            for (v, t) in op.results().into_iter().zip(types) {
                let stated = tensor_type(v.ty())?;
                let agree = stated.dims.len() == t.dims.len()
                    && stated.dims.iter().zip(&t.dims).all(|(a, b)| !a.differs(b));
                if stated.dtype != t.dtype || !agree {
                    return Err(format!("is {t:?} by its rule, {stated:?} by its type"));
                }
                self.tensors.insert(v, t);
            }
        }
        Ok(())
    }
}

#[test]
fn inferred_sizes_match_results() {
    let mut known = 0;
    each_accepted(&mut |case, module| {
        for func in functions(module) {
            if case.text.contains("// NO-RUN: ") {
                continue;
            }
            let block = func.regions()[0].first().unwrap();
            let (env, symbols) = (Symbolic::of(block)?, symbol_values(func));
            let results =
                run(module, func, Mode::Rounded, &inputs(func, 1)).map_err(|e| e.to_string())?;
            let value =
                |a: &Atom| if let Atom::Sym(s) = a { symbols.get(s).copied() } else { None };
            for (v, r) in block.terminator().unwrap().operands().into_iter().zip(&results) {
                for (axis, (d, n)) in env.tensor(v)?.dims.iter().zip(r.shape()).enumerate() {
                    match d.evaluate(&value) {
                        Some(found) if found != *n as i64 => {
                            return Err(format!(
                                "axis {axis} of {v:?} is {d} = {found} by its rule, but {n}"
                            ));
                        }
                        Some(_) => known += usize::from(d.known().is_none()),
                        None => {}
                    }
                }
            }
        }
        Ok(())
    });
    assert!(known > 50, "only {known} symbolic sizes were compared");
}

/// The messages of upstream's traits for ops from text.
#[test]
fn the_builder_rejects_mismatched_operands() {
    use kiln::dialects::value::DType;
    let context = Context::new();
    let c = context.ctx();
    let module = Module::new(Loc::unknown(c));
    let b = Builder::at_end(c, module.body(), Loc::unknown(c));
    let x = |dtype, sizes: &[i64]| b.splat(dtype, &Size::all(sizes), 0.0).unwrap();
    let (four, five) = (x(DType::F32, &[4]), x(DType::F32, &[5]));
    let refused = |r: Result<Value, kiln_dialects::Error>, message: &str| {
        assert_eq!(r.unwrap_err().message, message)
    };
    refused(
        b.add(&Add { lhs: four, rhs: five }),
        "'kiln.add' op has sizes 4 and 5 in dimension 0 of its operands; broadcast first",
    );
    let row = x(DType::F32, &[1, 4]);
    refused(
        b.add(&Add { lhs: four, rhs: row }),
        "'kiln.add' op has ranks 1 and 2 of its operands; broadcast first",
    );
    let half = x(DType::F16, &[4]);
    refused(b.add(&Mul { lhs: four, rhs: half }), "'kiln.mul' op mixes f32 and f16; convert first");
    let condition = x(DType::I1, &[4]);
    let select = Select { condition, on_true: four, on_false: half };
    refused(b.add(&select), "'kiln.select' op mixes f32 and f16; convert first");
    let select = Select { on_false: five, ..select };
    refused(
        b.add(&select),
        "'kiln.select' op has sizes 4 and 5 in dimension 0 of its operands; broadcast first",
    );
    refused(b.add(&Concat { inputs: vec![], axis: 0 }), "'kiln.concat' op has no inputs");
    let key = x(DType::I64, &[3]);
    refused(
        b.add(&Dropout { input: four, key, p: 0.5 }),
        "'kiln.dropout' op has sizes 3 and 2 of the key",
    );
    let key = x(DType::I64, &[]);
    refused(
        b.add(&Dropout { input: four, key, p: 0.5 }),
        "'kiln.dropout' op needs a key of two numbers",
    );
}

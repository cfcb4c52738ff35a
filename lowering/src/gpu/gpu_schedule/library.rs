//! Which kernels are a product that a library has: sums of products, with or without a bias for each column and a relu or a gelu by tanh, and nothing else.
use super::wgmma::{self, Operand, Product};
use crate::{
    gpu::LIBRARY,
    kernel::{Access, Body, Init, Kernel, Nest, Plan, Role, Stage},
};
use kiln_dialects::{ir::*, value::DType};
use kiln_runtime::gemm::{Activation, Gemm, Matrix, Vector};

/// The libraries that there are.
pub const LIBRARIES: &[&str] = &["cublaslt"];

/// What a value is made of.
#[derive(Clone, Default)]
struct Made {
    /// Whether it is the sum, with all below.
    sum: bool,
    /// What is added for each column.
    bias: Option<(usize, i64)>,
    activation: Activation,
}

/// Writes on a kernel's function what the library is to do that `kiln.library` names. Err: there is no such library, or it has no such product.
pub fn describe(k: &Kernel, plan: &Plan, tf32: bool) -> Result<(), String> {
    let Some(name) = k.func.attr(LIBRARY).and_then(Attr::as_string) else { return Ok(()) };
    if !LIBRARIES.contains(&name.as_str()) {
        return Err(format!("is for library '{name}', which is none of {}", LIBRARIES.join(" ")));
    }
    let told = gemm(k, plan, &name, tf32).ok_or_else(|| format!("is for library '{name}', but is no product that it has"))?;
    k.func.set_attr(LIBRARY, told);
    Ok(())
}

fn gemm(k: &Kernel, plan: &Plan, name: &str, tf32: bool) -> Option<Attr> {
    let [nest] = plan.nests.as_slice() else { return None };
    let c = k.func.ctx();
    let p = wgmma::product(k, plan)?;
    let r = &p.roles;
    let plain =
        p.rights.len() == 1 && p.window.is_none() && r.rows.len() == 1 && r.columns.len() == 1 && r.depth.len() == 1 && r.batch.len() < 2;
    let outputs: Vec<_> = k.stages.iter().flat_map(|s| &s.outputs).filter(|o| role(k, o.access.buffer) == Some(None)).collect();
    let ([out], true) = (outputs.as_slice(), plain && k.pads.is_empty()) else { return None };
    let made = of_buffer(k, nest, &p, out.access.buffer, 0)?;
    if !made.sum {
        return None;
    }
    // The place of the result: rows of elements that lie side by side.
    let dims: Vec<usize> = [r.columns[0], r.rows[0]].into_iter().chain(r.batch.iter().copied()).collect();
    let size = |d: usize| nest.extents.get(d)?.known();
    let to = &out.access.at;
    let known = |d: usize| to.coefficient(d).known();
    if known(dims[0]) != Some(1) || !to.rest.is_empty() || to.dims.keys().any(|d| !dims.contains(d)) {
        return None;
    }
    let apart = |d: Option<&usize>| d.map_or(Some(0), |d| known(*d));
    let tensors = k.func.regions().first()?.first()?.args().iter().filter(|v| v.ty().is_tensor()).count();
    let place = [tensors as i64, to.constant.known()?, size(dims[1])?, size(dims[0])?, known(dims[1])?, apart(dims.get(2))?, 0];
    let matrix = |place: &[i64], element: Type| Attr::dictionary(c, &[("element", Attr::ty(element)), ("place", Attr::i64s(c, place))]);
    let factor = Type::scalar(c, p.element);
    let result = k.buffers.get(out.access.buffer)?.element;
    let batch = r.batch.first().map_or(Some(1), |d| size(*d))?;
    // Nobody has a use for a library where there is nothing to do, and it refuses it.
    if place[2] < 1 || place[3] < 1 || batch < 1 || ![p.element, DType::F32].contains(&result.dtype().ok()?) {
        return None;
    }
    let mut entries = vec![
        ("batch", Attr::i64(c, batch)),
        ("left", matrix(&operand(&p.left, p.left.deep)?, factor)),
        ("name", Attr::string(c, name)),
        ("result", matrix(&place, result)),
        // Of the right one the depth is rows.
        ("right", matrix(&operand(&p.rights[0], !p.rights[0].deep)?, factor)),
    ];
    if let Some((buffer, offset)) = made.bias {
        let Some(Some(number)) = role(k, buffer) else { return None };
        let same = k.buffers.get(buffer)?.element == result;
        entries.push(("bias", Attr::i64s(c, &[same.then(|| wgmma::argument(k, number)).flatten()? as i64, offset])));
    }
    if let Some((name, _)) = Activation::ALL.iter().find(|(_, a)| *a == made.activation && *a != Activation::None) {
        entries.push(("activation", Attr::string(c, name)));
    }
    if tf32 && p.element == DType::F32 {
        entries.push(("tf32", Attr::i64(c, 1)));
    }
    entries.sort_by_key(|(name, _)| *name);
    Some(Attr::dictionary(c, &entries))
}

/// Of a result nothing, of an argument its number; none for what is in no memory of the caller's.
fn role(k: &Kernel, buffer: usize) -> Option<Option<usize>> {
    match k.buffers.get(buffer)?.role {
        Role::Output(0) => Some(None),
        Role::Input(n) => Some(Some(n)),
        _ => None,
    }
}

/// The place of an operand: argument, first element, lines, elements of a line, from line to line, from matrix to matrix, whether lines are columns.
fn operand(o: &Operand, lines_are_rows: bool) -> Option<[i64; 7]> {
    let (size, stride) = (|i: usize| o.sizes.get(i)?.known(), |i: usize| o.strides.get(i).map_or(Some(0), |s| s.known()));
    Some([o.argument as i64, o.offset.known()?, size(1)?, size(0)?, stride(0)?, stride(1)?, i64::from(!lines_are_rows)])
}

/// What a buffer's elements are, by the stage that writes them.
fn of_buffer(k: &Kernel, nest: &Nest, p: &Product, buffer: usize, depth: usize) -> Option<Made> {
    let mut writers = nest.all().filter(|s| k.stages.get(*s).is_some_and(|s| s.outputs.iter().any(|o| o.access.buffer == buffer)));
    let (writer, None) = (writers.next()?, writers.next()) else { return None };
    let stage = k.stages.get(writer)?;
    // A chain of stages is short.
    let ([out], true) = (stage.outputs.as_slice(), depth < 8) else { return None };
    if p.stages == [writer] {
        let zero = matches!(&out.init, Init::Fill(v) if number(*v) == Some(0.0));
        return zero.then(|| Made { sum: true, ..Default::default() });
    }
    let Body::Block(block) = stage.body else { return None };
    let plain = stage.captured.is_empty() && stage.indexed.is_empty() && !out.reduces;
    if !plain { None } else { value(k, nest, p, stage, block, block.terminator()?.operand(0), depth + 1) }
}

/// A sum with a function of it, which is the only one.
fn activated(made: Made, activation: Activation) -> Option<Made> {
    (made.sum && made.activation == Activation::None).then_some(Made { activation, ..made })
}

/// The other operand of an op of which one is a constant, up to f32's rounding.
fn with(v: Value, name: &str, constant: f64) -> Option<Value> {
    let op = v.def().filter(|o| o.is(name))?;
    let other = (0..2).find(|i| number(op.operand(*i)).is_some_and(|n| (n - constant).abs() <= 1e-6 * constant.abs()))?;
    Some(op.operand(1 - other))
}

/// The other operand of an op of which one is this value.
fn beside(v: Value, name: &str, x: Value) -> Option<Value> {
    let op = v.def().filter(|o| o.is(name))?;
    Some(op.operand(1 - (0..2).find(|i| op.operand(*i) == x)?))
}

/// x, of x / 2 times 1 + tanh(sqrt(2/π) (x + 0.044715 x³)).
fn gelu(product: Op) -> Option<Value> {
    (0..2).find_map(|i| {
        let x = with(product.operand(i), "arith.mulf", 0.5)?;
        let tanh = with(product.operand(1 - i), "arith.addf", 1.0)?.def().filter(|t| t.is("math.tanh"))?;
        let inner = with(tanh.operand(0), "arith.mulf", std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2)?;
        let cube = with(beside(inner, "arith.addf", x)?, "arith.mulf", 0.044715)?;
        let square = beside(cube, "arith.mulf", x)?;
        (beside(square, "arith.mulf", x)? == x).then_some(x)
    })
}

/// A constant, as it is or made wider.
fn number(v: Value) -> Option<f64> {
    let op = v.def()?;
    if op.is("arith.extf") { number(op.operand(0)) } else { op.attr("value").filter(|_| op.is("arith.constant"))?.as_f64() }
}

fn value(k: &Kernel, nest: &Nest, p: &Product, stage: &Stage, block: Block, v: Value, depth: usize) -> Option<Made> {
    let Some(op) = v.def() else {
        let a = stage.inputs.get(block.args().iter().position(|x| *x == v)?)?;
        return match role(k, a.buffer) {
            Some(Some(_)) => Some(Made { bias: Some((a.buffer, across(p, a)?)), ..Default::default() }),
            _ => of_buffer(k, nest, p, a.buffer, depth),
        };
    };
    let of = |i: usize| value(k, nest, p, stage, block, op.operand(i), depth);
    match op.name().as_str() {
        "arith.extf" | "arith.truncf" => of(0),
        "arith.addf" => {
            let (a, b) = (of(0)?, of(1)?);
            let (sum, bias) = if a.sum { (a, b) } else { (b, a) };
            let plain = |m: &Made| m.activation == Activation::None;
            let fits = sum.sum && !bias.sum && sum.bias.is_none() && plain(&sum) && plain(&bias);
            fits.then_some(Made { bias: bias.bias, ..sum })
        }
        "arith.maximumf" | "arith.maxnumf" => {
            let one = (0..2).find(|i| number(op.operand(*i)) == Some(0.0))?;
            activated(of(1 - one)?, Activation::Relu)
        }
        "arith.mulf" => activated(value(k, nest, p, stage, block, gelu(op)?, depth)?, Activation::GeluTanh),
        _ => None,
    }
}

/// The first element of a vector that has one for each column.
fn across(p: &Product, a: &Access) -> Option<i64> {
    let over = *p.roles.columns.first()?;
    let plain = a.at.rest.is_empty() && a.at.dims.keys().all(|d| *d == over) && a.at.coefficient(over).known() == Some(1);
    if plain { a.at.constant.known() } else { None }
}

/// What `kiln.library` says, as plain data.
pub fn read(a: Attr) -> Result<Gemm, String> {
    let bad = || format!("has a bad kiln.library {a}");
    let matrix = |name: &str| {
        let m = a.entry(name)?;
        let n: Vec<u64> = m.entry("place")?.as_i64s()?.into_iter().map(|n| u64::try_from(n).ok()).collect::<Option<_>>()?;
        let [arg, offset, lines, each, stride, apart, transposed] = n[..] else { return None };
        let dtype = m.entry("element")?.as_type()?.dtype().ok()?.name().to_string();
        Some(Matrix { arg: arg as usize, offset, dtype, lines: [lines, each], stride, apart, transposed: transposed != 0 })
    };
    let activation = match a.entry("activation").and_then(Attr::as_string) {
        None => Activation::None,
        Some(name) => Activation::ALL.iter().find(|(n, _)| *n == name).map(|(_, a)| *a).ok_or_else(bad)?,
    };
    let number = |name: &str| a.entry(name).and_then(Attr::as_i64);
    let bias = match a.entry("bias").map(|b| b.as_i64s()) {
        None => None,
        Some(Some(n)) if n.len() == 2 && n.iter().all(|n| *n >= 0) => Some(Vector { arg: n[0] as usize, offset: n[1] as u64 }),
        Some(_) => return Err(bad()),
    };
    Ok(Gemm {
        library: a.entry("name").and_then(Attr::as_string).ok_or_else(bad)?,
        batch: number("batch").and_then(|n| u32::try_from(n).ok()).ok_or_else(bad)?,
        left: matrix("left").ok_or_else(bad)?,
        right: matrix("right").ok_or_else(bad)?,
        result: matrix("result").ok_or_else(bad)?,
        bias,
        activation,
        tf32: number("tf32") == Some(1),
    })
}

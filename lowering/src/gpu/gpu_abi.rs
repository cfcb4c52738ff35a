//! `kiln-gpu-abi`: lowers index, shuffle and barrier ops to nvvm ops, approximations to PTX
//! instructions, and shared memory to globals of the module.
//!
//! Why: upstream's conversion of the gpu dialect does this too, but turns every math op into a call
//! of libdevice, which only the CUDA toolkit has. Runs after `kiln-kernel-abi`, before the
//! conversions to the llvm dialect. No other parameter of a kernel aliases memory that the kernel
//! writes.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  %t = gpu.thread_id x   %m = memref.alloca() : memref<64xf32, 3>   %r, %_ = gpu.shuffle xor %v, %k, %w : f32
//! after:   %t = nvvm.read.ptx.sreg.tid.x : i32   %m = memref.get_global @shared_0   %r = nvvm.shfl.sync bfly %all, %v, %k, %c : f32 -> f32
//! ```
use crate::{math::approximation::approximation, target::launch::TENSOR_MAPS};
use kiln_dialects::{
    ir::*,
    rules::{LEVELS, Level},
    value::DType,
};
use kiln_passes::{Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct GpuAbi {}
}

/// Ops that become a read of a special register: op, register.
const REGISTERS: &[(&str, &str)] = &[
    ("gpu.thread_id", "nvvm.read.ptx.sreg.tid.x"),
    ("gpu.block_id", "nvvm.read.ptx.sreg.ctaid.x"),
    ("gpu.grid_dim", "nvvm.read.ptx.sreg.nctaid.x"),
];

impl Pass for GpuAbi {
    const FLAG: &'static str = "kiln-gpu-abi";
    const SUMMARY: &'static str =
        "Turns the gpu dialect's ops into nvvm ops, and local shared memory into globals";
    const LEVELS: &'static [Level] = LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;
    const REQUIRED: bool = true;
    const DIALECTS: &'static [&'static str] = &["llvm", "memref", "nvvm", "vector"];

    fn run(&self, root: Op) -> Result<()> {
        for func in crate::analysis::kernels_of(root) {
            let mut shared = 0;
            for op in walk(func) {
                let made = self.op(func, op, &mut shared).at(op)?;
                if made {
                    op.erase();
                }
            }
            restrict(func);
        }
        Ok(())
    }
}

impl GpuAbi {
    /// Emits the lowering of an op before it; whether the op has one.
    fn op(&self, func: Op, op: Op, shared: &mut usize) -> Result<bool> {
        let Some(b) = Builder::before(op) else { return Ok(false) };
        let c = op.ctx();
        let make =
            |name: &str, operands: &[Value], ty: Type, attrs: &[(&str, Attr)]| -> Result<Value> {
                Ok(b.generic(name, operands, &[ty], attrs, &mut [])?.result(0))
            };
        let (i32, i64) = (Type::scalar(c, DType::I32), Type::scalar(c, DType::I64));
        if let Some((_, register)) = REGISTERS.iter().find(|(name, _)| op.is(name)) {
            let number = make("arith.extui", &[make(register, &[], i32, &[])?], i64, &[])?;
            op.result(0).replace_uses(make("arith.index_cast", &[number], Type::index(c), &[])?);
            return Ok(true);
        }
        if let Some(instruction) = approximation(op) {
            op.result(0).replace_uses(lanes(&b, op, instruction)?);
            return Ok(true);
        }
        match op.name().as_str() {
            "gpu.barrier" => b.generic("nvvm.barrier0", &[], &[], &[], &mut []).map(|_| true),
            "gpu.shuffle" => {
                let (value, there) = shuffled(&b, op)?;
                op.result(0).replace_uses(value);
                there.into_iter().for_each(|there| op.result(1).replace_uses(there));
                Ok(true)
            }
            "memref.alloca" if op.result(0).ty().to_string().ends_with(", 3>") => {
                let (name, ty) = (format!("shared_{shared}"), op.result(0).ty());
                *shared += 1;
                let top = Builder::before(func).ok_or("is in no module")?;
                let alignment = Attr::i64(c, 16);
                let attrs = [
                    ("sym_name", Attr::string(c, &name)),
                    ("sym_visibility", Attr::string(c, "private")),
                    ("type", Attr::ty(ty)),
                    ("initial_value", Attr::unit(c)),
                    ("alignment", alignment),
                ];
                top.generic("memref.global", &[], &[], &attrs, &mut [])?;
                op.result(0).replace_uses(make(
                    "memref.get_global",
                    &[],
                    ty,
                    &[("name", Attr::symbol(c, &name))],
                )?);
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// One instruction per lane of an op. A reciprocal takes only the divisor.
fn lanes(b: &Builder, op: Op, instruction: &str) -> Result<Value> {
    let c = b.ctx;
    let make =
        |name: &str, operands: &[Value], ty: Type, attrs: &[(&str, Attr)]| -> Result<Value> {
            Ok(b.generic(name, operands, &[ty], attrs, &mut [])?.result(0))
        };
    let mut operands = op.operands();
    if !instruction.contains("$2") {
        operands = operands.split_off(operands.len() - 1);
    }
    let constraints = ["=f", "f", "f"][..=operands.len()].join(",");
    let attrs = [
        ("asm_string", Attr::string(c, instruction)),
        ("constraints", Attr::string(c, &constraints)),
    ];
    let ty = op.result(0).ty();
    let Some(element) = ty.element() else { return make("llvm.inline_asm", &operands, ty, &attrs) };
    let count: Option<i64> = ty
        .to_string()
        .strip_prefix("vector<")
        .and_then(|t| t.strip_suffix("xf32>"))
        .and_then(|n| n.parse().ok());
    let count = count.ok_or("is no vector of one dimension")?;
    let mut made = vec![];
    for lane in 0..count {
        let place = [("static_position", Attr::i64s(c, &[lane]))];
        let one = operands
            .iter()
            .map(|v| make("vector.extract", &[*v], element, &place))
            .collect::<Result<Vec<_>, _>>()?;
        made.push(make("llvm.inline_asm", &one, element, &attrs)?);
    }
    make("vector.from_elements", &made, ty, &[])
}

/// Lowers `gpu.shuffle` of any scalar type to 32-bit shuffles. Returns the other lane's value and,
/// for `up` only, whether that lane exists.
fn shuffled(b: &Builder, op: Op) -> Result<(Value, Option<Value>)> {
    let (c, value, lane) = (b.ctx, op.operand(0), op.operand(1));
    let make =
        |name: &str, operands: &[Value], ty: Type, attrs: &[(&str, Attr)]| -> Result<Value> {
            Ok(b.generic(name, operands, &[ty], attrs, &mut [])?.result(0))
        };
    let (i32, i64) = (Type::scalar(c, DType::I32), Type::scalar(c, DType::I64));
    let number = |n: i64, ty: Type| {
        make("arith.constant", &[], ty, &[("value", Attr::scalar_int(c, ty.dtype()?, n))])
    };
    let mode = op.attr("mode").ok_or("has no mode")?.to_string();
    let width = op
        .operand(2)
        .def()
        .and_then(|d| d.attr("value")?.as_i64())
        .filter(|w| (1..=32).contains(w))
        .ok_or("has no known width")?;
    // Lanes of a sub-warp segment see only each other.
    let part = (32 - width) << 8;
    let modes = [
        ("shuffle_mode xor", "bfly", 31),
        ("shuffle_mode up", "up", part),
        ("shuffle_mode idx", "idx", part | 31),
    ];
    let (_, name, limit) = *modes
        .iter()
        .find(|m| mode.contains(m.0))
        .ok_or_else(|| format!("has {mode}, which is none of xor up idx"))?;
    let kind = Attr::parse(c, &format!("#nvvm<shfl_kind {name}>")).ok_or("has no nvvm dialect")?;
    let mut there = None;
    let mut step = |v: Value| -> Result<Value> {
        let operands = [number(-1, i32)?, v, lane, number(limit, i32)?];
        if name != "up" {
            return make("nvvm.shfl.sync", &operands, v.ty(), &[("kind", kind)]);
        }
        let pair = Type::parse(c, &format!("!llvm.struct<({}, i1)>", v.ty()))
            .ok_or("has no llvm dialect")?;
        let both = make(
            "nvvm.shfl.sync",
            &operands,
            pair,
            &[("kind", kind), ("return_value_and_is_valid", Attr::unit(c))],
        )?;
        let part = |i: i64, ty: Type| {
            make("llvm.extractvalue", &[both], ty, &[("position", Attr::i64s(c, &[i]))])
        };
        there = Some(part(1, Type::scalar(c, DType::I1))?);
        part(0, v.ty())
    };
    let ty = value.ty();
    let dtype = ty.dtype()?;
    let made = match dtype {
        DType::F32 | DType::I32 => step(value)?,
        _ => {
            let integer =
                Type::parse(c, &format!("i{}", dtype.bits())).ok_or("has no such integer")?;
            let bits =
                if ty == integer { value } else { make("arith.bitcast", &[value], integer, &[])? };
            let bits = if dtype.bits() == 64 {
                let high = make("arith.shrui", &[bits, number(32, i64)?], i64, &[])?;
                let mut half = |v: Value| -> Result<Value> {
                    let part = step(make("arith.trunci", &[v], i32, &[])?)?;
                    make("arith.extui", &[part], i64, &[])
                };
                let (low, high) = (half(bits)?, half(high)?);
                make(
                    "arith.ori",
                    &[low, make("arith.shli", &[high, number(32, i64)?], i64, &[])?],
                    i64,
                    &[],
                )?
            } else {
                make(
                    "arith.trunci",
                    &[step(make("arith.extui", &[bits], i32, &[])?)?],
                    integer,
                    &[],
                )?
            };
            if ty == integer { bits } else { make("arith.bitcast", &[bits], ty, &[])? }
        }
    };
    Ok((made, there))
}

/// Marks every pointer parameter noalias: nothing else reaches what the kernel writes through it,
/// so loads may use the read-only cache.
fn restrict(func: Op) {
    let c = func.ctx();
    let Some((inputs, _)) =
        func.attr("function_type").and_then(Attr::as_type).and_then(Type::signature)
    else {
        return;
    };
    // The last parameters are tensor maps, not pointers.
    let maps = func.attr(TENSOR_MAPS).and_then(Attr::as_array).map_or(0, |all| all.len());
    let pointers = inputs.len().saturating_sub(maps);
    let old = func.attr("arg_attrs").and_then(Attr::as_array).unwrap_or_default();
    let of = |(i, ty): (usize, &Type)| {
        let entries = old.get(i).and_then(|a| a.entries()).unwrap_or_default();
        let mut entries: Vec<(&str, Attr)> =
            entries.iter().map(|(n, a)| (n.as_str(), *a)).collect();
        if i < pointers
            && ty.to_string() == "!llvm.ptr"
            && !entries.iter().any(|(n, _)| *n == "llvm.noalias")
        {
            entries.push(("llvm.noalias", Attr::unit(c)));
        }
        Attr::dictionary(c, &entries)
    };
    let all: Vec<Attr> = inputs.iter().enumerate().map(of).collect();
    func.set_attr("arg_attrs", Attr::array(c, &all));
}

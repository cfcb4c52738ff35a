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
use crate::target::kernel_attrs::LLVM_NOALIAS;
use crate::{
    math::approximation::approximation,
    target::{
        kernel_attrs::IN_PLACE_ENTRY,
        launch::{DEPENDENT, SHARED_SPACE, TENSOR_MAPS},
    },
};
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

impl Pass for GpuAbi {
    const FLAG: &'static str = "kiln-gpu-abi";
    const SUMMARY: &'static str = "Lowers gpu ops to nvvm ops, and shared memory to globals";
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
        let (i32, i64) = (Type::scalar(c, DType::I32), Type::scalar(c, DType::I64));
        let register: Option<fn(Builder, Type) -> Result<Value>> = match op.name().as_str() {
            gpu::ThreadId::NAME => Some(nvvm::read_ptx_sreg_tid_x),
            gpu::BlockId::NAME => Some(nvvm::read_ptx_sreg_ctaid_x),
            gpu::GridDim::NAME => Some(nvvm::read_ptx_sreg_nctaid_x),
            _ => None,
        };
        if let Some(register) = register {
            let number = arith::extui(b, register(b, i32)?, i64)?;
            op.result(0).replace_uses(arith::index_cast(b, number, Type::index(c))?);
            return Ok(true);
        }
        if let Some(instruction) = approximation(op) {
            op.result(0).replace_uses(lanes(b, op, instruction)?);
            return Ok(true);
        }
        match op.name().as_str() {
            gpu::Barrier::NAME => nvvm::barrier0(b).map(|_| true),
            gpu::Shuffle::NAME => {
                let shuffle = op.dyn_cast::<gpu::Shuffle>().ok_or("is no shuffle")?;
                let (value, there) = shuffled(b, shuffle)?;
                op.result(0).replace_uses(value);
                there.into_iter().for_each(|there| op.result(1).replace_uses(there));
                Ok(true)
            }
            memref::Alloca::NAME if op.result(0).ty().memory_space() == Some(SHARED_SPACE) => {
                let (name, ty) = (format!("shared_{shared}"), op.result(0).ty());
                *shared += 1;
                let top = Builder::before(func).ok_or("is in no module")?;
                memref::Global::new(top, &name, ty)
                    .sym_visibility("private")
                    .initial_value(Attr::unit(c))
                    .alignment(16)
                    .build()?;
                op.result(0).replace_uses(memref::get_global(b, &name, ty)?);
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// One instruction per lane of an op. A reciprocal takes only the divisor.
fn lanes(b: Builder, op: Op, instruction: &str) -> Result<Value> {
    let mut operands = op.operands();
    if !instruction.contains("$2") {
        operands = operands.split_off(operands.len() - 1);
    }
    let constraints = ["=f", "f", "f"][..=operands.len()].join(",");
    let asm = |operands: &[Value], ty: Type| {
        llvm::InlineAsm::new(b, operands, instruction, &constraints, &[ty]).result()
    };
    let ty = op.result(0).ty();
    let Some(element) = ty.element() else { return asm(&operands, ty) };
    let sizes = ty.vector_sizes().unwrap_or_default();
    let [count] = sizes.as_slice() else { return Err("is no vector of one dimension".into()) };
    let mut made = vec![];
    for lane in 0..*count {
        let lane = |v: &Value| vector::extract(b, *v, &[Size::Static(lane)], element);
        made.push(asm(&operands.iter().map(lane).collect::<Result<Vec<_>>>()?, element)?);
    }
    vector::from_elements(b, &made, ty)
}

/// Lowers `gpu.shuffle` of any scalar type to 32-bit shuffles. Returns the other lane's value and,
/// for `up` only, whether that lane exists.
fn shuffled(b: Builder, op: TypedOp<gpu::Shuffle>) -> Result<(Value, Option<Value>)> {
    let (c, value) = (b.ctx, op.value());
    let (i32, i64) = (Type::scalar(c, DType::I32), Type::scalar(c, DType::I64));
    let number = |n: i64, ty: Type| arith::constant(b, Attr::integer(ty, n)?);
    let width = op
        .width()
        .def_as::<arith::Constant>()
        .and_then(|d| d.value()?.as_i64())
        .filter(|w| (1..=32).contains(w))
        .ok_or("has no known width")?;
    // Lanes of a sub-warp segment see only each other.
    let part = (32 - width) << 8;
    let (kind, limit) = match op.mode() {
        Some(gpu::ShuffleMode::Xor) => (nvvm::ShflKind::Bfly, 31),
        Some(gpu::ShuffleMode::Up) => (nvvm::ShflKind::Up, part),
        Some(gpu::ShuffleMode::Idx) => (nvvm::ShflKind::Idx, part | 31),
        _ => {
            let mode = op.attr("mode").ok_or("has no mode")?;
            return Err(format!("has {mode}, which is none of xor up idx").into());
        }
    };
    let mut there = None;
    let mut step = |v: Value| -> Result<Value> {
        let (all, limit) = (number(-1, i32)?, number(limit, i32)?);
        if kind != nvvm::ShflKind::Up {
            return nvvm::shfl_sync(b, all, v, op.offset(), limit, kind, v.ty());
        }
        let i1 = Type::scalar(c, DType::I1);
        let pair = Type::llvm_struct(c, &[v.ty(), i1]);
        let both = nvvm::Shfl::new(b, all, v, op.offset(), limit, kind, pair)
            .return_value_and_is_valid(true)
            .result()?;
        there = Some(llvm::extractvalue(b, both, &[1], i1)?);
        llvm::extractvalue(b, both, &[0], v.ty())
    };
    let ty = value.ty();
    let dtype = ty.dtype()?;
    let made = match dtype {
        DType::F32 | DType::I32 => step(value)?,
        _ => {
            let integer = Type::integer(c, dtype.bits());
            let bits = if ty == integer { value } else { arith::bitcast(b, value, integer)? };
            let bits = if dtype.bits() == 64 {
                let high = arith::shrui(b, bits, number(32, i64)?)?;
                let mut half = |v: Value| -> Result<Value> {
                    arith::extui(b, step(arith::trunci(b, v, i32)?)?, i64)
                };
                let (low, high) = (half(bits)?, half(high)?);
                arith::ori(b, low, arith::shli(b, high, number(32, i64)?)?)?
            } else {
                arith::trunci(b, step(arith::extui(b, bits, i32)?)?, integer)?
            };
            if ty == integer { bits } else { arith::bitcast(b, bits, ty)? }
        }
    };
    Ok((made, there))
}

/// Marks every pointer parameter noalias: nothing else reaches what the kernel writes through it,
/// so loads may use the read-only cache. Not of a kernel whose result may be one of its inputs.
///
/// Not of a kernel that may run beside the one before it, which writes what it reads: ptxas moves
/// loads from the read-only cache in front of `griddepcontrol.wait`.
fn restrict(func: Op) {
    if func.attr(DEPENDENT).is_some() {
        return;
    }
    let c = func.ctx();
    let about = func.parent().and_then(|module| module.attr("kiln.kernel"));
    if about.is_some_and(|about| about.entry(IN_PLACE_ENTRY).is_some()) {
        return;
    }
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
            && *ty == Type::llvm_ptr(c, 0)
            && !entries.iter().any(|(n, _)| *n == LLVM_NOALIAS)
        {
            entries.push((LLVM_NOALIAS, Attr::unit(c)));
        }
        Attr::dictionary(c, &entries)
    };
    let all: Vec<Attr> = inputs.iter().enumerate().map(of).collect();
    func.set_attr("arg_attrs", Attr::array(c, &all));
}

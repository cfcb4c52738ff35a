//! `kiln-kernel-abi`: gives kernels a plain signature of pointers and 64-bit integers.
//!
//! Why: a kernel is compiled, cached and called on its own, so its signature must not depend on
//! MLIR's memref calling convention. Upstream's bare-pointer convention supports static shapes
//! only. Runs last before the conversions to the llvm dialect.
//!
//! A memref parameter is contiguous and row-major. `kiln.sizes` gives its sizes: a static size,
//! `-1-k` for the k-th `index` parameter, or the least integer for a size that the body computes
//! itself and does not read from the memref. `kiln.noalias` promises that nothing else in the
//! kernel accesses its memory, `kiln.constant` that no launch of the program writes it.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  func.func @k(%a: memref<?x128xf32> {kiln.sizes = array<i64: -1, 128>, kiln.noalias}, %n: index)
//! after:   func.func @k(%a: !llvm.ptr {llvm.noalias}, %n: i64)
//!          with %a rebuilt as a memref, and %n as an index, at the top of the body
//! ```
use crate::{
    analysis::{CONSTANT, DIVISOR, LEAST},
    target::kernel_attrs::{DERIVED, LLVM_NOALIAS, NOALIAS, SIZES},
};
use kiln_dialects::{
    ir::*,
    rules::{LEVELS, Level},
    sym::Dim,
};
use kiln_passes::{Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct KernelAbi {}
}

impl Pass for KernelAbi {
    const FLAG: &'static str = "kiln-kernel-abi";
    const SUMMARY: &'static str =
        "Lowers a kernel's memref parameters to pointers and its index parameters to i64";
    const LEVELS: &'static [Level] = LEVELS;
    const NUMERICS: Numerics = Numerics::Exact;
    const REQUIRED: bool = true;
    const DIALECTS: &'static [&'static str] = &["llvm"];

    fn run(&self, root: Op) -> Result<()> {
        // Read and decide first: everything is known before the first change.
        let kernels: Vec<Kernel> =
            walk(root).into_iter().filter(is_kernel).map(Kernel::read).collect::<Result<_, _>>()?;
        kernels.iter().try_for_each(|k| k.apply().map_err(|e| Error::at(k.func, e)))
    }
}

/// Whether it is a kernel on memrefs; a host function still has tensors.
fn is_kernel(o: &Op) -> bool {
    let types = o.attr("function_type").and_then(Attr::as_type).and_then(Type::signature);
    o.isa::<func::Func>() && types.is_some_and(|(inputs, _)| !inputs.iter().any(|t| t.is_tensor()))
}

/// The lowered form of a parameter.
enum Param {
    /// A memref with these sizes.
    Memref(Vec<Extent>),
    Index,
    Scalar,
}

#[derive(Clone, Copy)]
enum Extent {
    Number(i64),
    /// Index of the parameter that holds the size.
    Param(usize),
}

struct Kernel {
    func: Op,
    body: Option<Block>,
    params: Vec<Param>,
    inputs: Vec<Type>,
    results: Vec<Type>,
    arg_attrs: Vec<Vec<(String, Attr)>>,
}

impl Kernel {
    fn read(func: Op) -> Result<Kernel> {
        let signature =
            func.attr("function_type").and_then(Attr::as_type).and_then(Type::signature);
        let (inputs, results) = signature.ok_or_at(func, "has no function type")?;
        let listed = func.attr("arg_attrs").and_then(Attr::as_array).unwrap_or_default();
        let arg_attrs: Vec<_> = (0..inputs.len())
            .map(|i| listed.get(i).and_then(|a| a.entries()).unwrap_or_default())
            .collect();
        let indices: Vec<usize> = (0..inputs.len()).filter(|i| inputs[*i].is_index()).collect();
        let param = |i: usize| match inputs[i] {
            ty if ty.is_index() => Ok(Param::Index),
            ty if ty.is_memref() => extents(ty, &arg_attrs[i], &indices)
                .map(Param::Memref)
                .map_err(|e| Error::at(func, format!("parameter {i} {}", e.message))),
            _ => Ok(Param::Scalar),
        };
        let params = (0..inputs.len()).map(param).collect::<Result<_, _>>()?;
        Ok(Kernel {
            func,
            body: func.regions().first().and_then(|r| r.first()),
            params,
            inputs,
            results,
            arg_attrs,
        })
    }

    fn apply(&self) -> Result<()> {
        let c = self.func.ctx();
        let (ptr, i64_ty) = (Type::llvm_ptr(c, 0), Type::integer(c, 64));
        let mut inputs = self.inputs.clone();
        for (param, input) in self.params.iter().zip(&mut inputs) {
            match param {
                Param::Memref(_) => *input = ptr,
                Param::Index => *input = i64_ty,
                Param::Scalar => {}
            }
        }
        if let Some(body) = self.body {
            self.rebuild(body, &inputs, i64_ty)?;
        }
        self.func.set_attr("function_type", Attr::ty(Type::function(c, &inputs, &self.results)));
        if self.func.attr("arg_attrs").is_some() {
            let dictionary = |attrs: &Vec<(String, Attr)>| {
                let mut kept: Vec<_> = attrs
                    .iter()
                    .filter(|(n, _)| {
                        ![SIZES, NOALIAS, CONSTANT, DIVISOR, LEAST].contains(&n.as_str())
                    })
                    .map(|(n, a)| (n.as_str(), *a))
                    .collect();
                // What nothing writes may be read through any pointer.
                if attrs.iter().any(|(n, _)| n == NOALIAS || n == CONSTANT) {
                    kept.push((LLVM_NOALIAS, Attr::unit(c)));
                }
                Attr::dictionary(c, &kept)
            };
            let all: Vec<Attr> = self.arg_attrs.iter().map(dictionary).collect();
            self.func.set_attr("arg_attrs", Attr::array(c, &all));
        }
        Ok(())
    }

    /// Changes the types of the body's arguments and rebuilds the original values at its top.
    fn rebuild(&self, body: Block, inputs: &[Type], i64_ty: Type) -> Result<()> {
        let first = *body.ops().first().ok_or("has an empty body")?;
        let b =
            Make { b: Builder::before(first).ok_or("is in no block")?.at(self.func.loc()), i64_ty };
        let args = body.args();
        // Replaces only these uses: the ops created below use the new parameters.
        let uses: Vec<Vec<(Op, usize)>> = args.iter().map(|a| a.uses()).collect();
        args.iter().zip(inputs).for_each(|(arg, ty)| arg.set_ty(*ty));
        let (zero, one) = (b.number(0)?, b.number(1)?);
        for (i, param) in self.params.iter().enumerate() {
            let (arg, old) = (args[i], self.inputs[i]);
            let new = match param {
                Param::Scalar => continue,
                Param::Index => arith::index_cast(b.b, arg, old)?,
                Param::Memref(sizes) => {
                    let sizes = sizes.iter().map(|s| match s {
                        Extent::Number(n) => b.number(*n),
                        Extent::Param(p) => Ok(args[*p]),
                    });
                    b.descriptor(arg, &sizes.collect::<Result<Vec<_>, _>>()?, (zero, one), old)?
                }
            };
            uses[i].iter().for_each(|(op, n)| op.set_operand(*n, new));
        }
        Ok(())
    }
}

/// The sizes of a memref parameter. Err: what is wrong with them.
fn extents(ty: Type, attrs: &[(String, Attr)], indices: &[usize]) -> Result<Vec<Extent>> {
    if !ty.is_contiguous_memref() {
        return Err(
            format!("of type {ty} is not contiguous; kernels take contiguous memrefs").into()
        );
    }
    let dims = ty.dims();
    let stated = match attrs.iter().find(|(n, _)| n == SIZES) {
        Some((_, a)) => a.as_i64s().ok_or_else(|| format!("needs array<i64: …> as {SIZES}"))?,
        None => dims
            .iter()
            .map(|d| d.known().ok_or_else(|| format!("of type {ty} needs {SIZES}")))
            .collect::<Result<_, _>>()?,
    };
    let extent = |(dim, stated): (Dim, i64)| match (dim.known(), stated) {
        (Some(n), s) if s >= 0 && s != n => {
            Err(format!("of type {ty} has size {n} where {SIZES} says {s}").into())
        }
        (Some(n), _) => Ok(Extent::Number(n)),
        (None, s) if s >= 0 => Ok(Extent::Number(s)),
        (None, DERIVED) => Ok(Extent::Number(0)),
        (None, s) => {
            let k = (-1 - s) as usize;
            let param = indices.get(k).ok_or_else(|| {
                format!("has {SIZES} entry {s}, but there are {} index parameters", indices.len())
            })?;
            Ok(Extent::Param(*param))
        }
    };
    dims.into_iter().zip(stated).map(extent).collect()
}

/// Creates ops at the top of a body.
struct Make {
    b: Builder,
    i64_ty: Type,
}

impl Make {
    fn number(&self, n: i64) -> Result<Value> {
        llvm::mlir_constant(self.b, Attr::i64(self.b.ctx, n), self.i64_ty)
    }
    /// The memref descriptor that `finalize-memref-to-llvm` folds: allocated and aligned pointer,
    /// offset, sizes, strides.
    fn descriptor(
        &self,
        ptr: Value,
        sizes: &[Value],
        (zero, one): (Value, Value),
        memref: Type,
    ) -> Result<Value> {
        let (c, rank) = (self.b.ctx, sizes.len());
        let mut fields = vec![ptr.ty(), ptr.ty(), self.i64_ty];
        if rank > 0 {
            fields.extend([Type::llvm_array(self.i64_ty, rank); 2]);
        }
        let ty = Type::llvm_struct(c, &fields);
        let mut all = llvm::mlir_poison(self.b, ty)?;
        let mut insert = |value: Value, at: &[i64]| -> Result<()> {
            all = llvm::insertvalue(self.b, all, value, at)?;
            Ok(())
        };
        insert(ptr, &[0])?;
        insert(ptr, &[1])?;
        insert(zero, &[2])?;
        let mut stride = one;
        for (i, size) in sizes.iter().enumerate().rev() {
            insert(*size, &[3, i as i64])?;
            insert(stride, &[4, i as i64])?;
            if i > 0 {
                stride = if stride == one { *size } else { llvm::mul(self.b, stride, *size)? };
            }
        }
        let cast = "builtin.unrealized_conversion_cast";
        Ok(self.b.generic(cast, &[all], &[memref], &[], &mut [])?.result(0))
    }
}

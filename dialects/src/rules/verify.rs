//! What an op must satisfy beyond its type rule. Messages do not name the op.
use super::types::{TensorType, ensure, tensor_type, unify_all};
use crate::{ir::*, ops::*, sym::Dim, value::DType};

/// Byte limit of constants in IR; larger ones belong in a `kiln.global` with a source.
pub const CONSTANT_LIMIT: usize = 4096;

fn data_limit(a: Attr) -> Result<TensorType> {
    let ty = tensor_type(a.type_of())?;
    let stored = a.stored_elements().ok_or("is not a dense<...> literal")?;
    let bytes = stored * ty.dtype.byte_size();
    ensure(bytes <= CONSTANT_LIMIT, || {
        format!(
            "holds {bytes} bytes, more than {CONSTANT_LIMIT}; put them into a kiln.global with a source"
        )
    })?;
    Ok(ty)
}

/// The verifier of every op.
pub fn verify(op: Op) -> Result<()> {
    let view = View::of(op).ok_or("is not a kiln op")?;
    match view.kind {
        OpKind::Sym => {
            let o = Sym::read(&view)?;
            ensure(o.min >= 0, || format!("needs min >= 0, has {}", o.min))?;
            ensure(o.divisor >= 1, || format!("needs divisor >= 1, has {}", o.divisor))?;
            match o.max {
                Some(max) if max < o.min => {
                    Err(format!("has an empty range [{}, {max}]", o.min).into())
                }
                _ => one_range(op, &o),
            }
        }
        OpKind::Dim => {
            let o = crate::ops::Dim::read(&view)?;
            super::types::axis_of(o.axis, tensor_type(o.input.ty())?.dims.len()).map(|_| ())
        }
        OpKind::BindShape => {
            let o = BindShape::read(&view)?;
            let t = tensor_type(o.value.ty())?;
            ensure(o.sizes.len() == t.dims.len(), || {
                format!("binds {} sizes to a value of rank {}", o.sizes.len(), t.dims.len())
            })?;
            for (i, (s, d)) in o.sizes.iter().zip(&t.dims).enumerate() {
                if let (Some(s), Some(d)) = (s.known(), d.known()) {
                    ensure(s == d, || {
                        format!("binds {s} to dimension {i}, whose static size is {d}")
                    })?;
                }
                ensure(s.known().is_none_or(|s| s >= 0), || {
                    format!("binds a negative size to dimension {i}")
                })?;
            }
            Ok(())
        }
        OpKind::Require => ensure(!crate::ops::Require::read(&view)?.message.is_empty(), || {
            "needs a message".into()
        }),
        OpKind::AdvanceRng => Ok(()),
        OpKind::RequireIndex => {
            let o = crate::ops::RequireIndex::read(&view)?;
            ensure(!o.message.is_empty(), || "needs a message".into())?;
            let dtype = tensor_type(o.index.ty())?.dtype;
            ensure(dtype.is_int(), || format!("takes integers, not {dtype}"))
        }
        OpKind::Global => {
            let o = Global::read(&view)?;
            let t = tensor_type(o.r#type)?;
            ensure(t.dims.iter().all(|d| d.known().is_some()), || {
                format!("has the dynamic type {}", o.r#type)
            })?;
            ensure(o.source.is_some() || o.value.is_some(), || {
                "has neither a source nor a value".into()
            })?;
            ensure(o.source.is_none() || o.value.is_none(), || {
                "has both a source and a value".into()
            })?;
            match o.value {
                Some(a) => {
                    data_limit(a)?;
                    ensure(a.type_of() == o.r#type, || {
                        format!("has a value of type {}", a.type_of())
                    })
                }
                None => Ok(()),
            }
        }
        OpKind::GetGlobal => tensor_type(op.result(0).ty()).map(|_| ()),
        OpKind::Launch => {
            let (outs, results) = (types(&Launch::read(&view)?.outs), types(&op.results()));
            ensure(outs == results, || {
                format!("writes to {} but has results {}", list(&outs), list(&results))
            })
        }
        OpKind::Constant => data_limit(Constant::read(&view)?.value).map(|_| ()),
        OpKind::If => {
            let c = tensor_type(op.operand(0).ty())?;
            ensure(c.dtype == DType::I1 && c.dims.is_empty(), || "needs a 0-d i1 condition".into())
        }
        OpKind::CustomCall => {
            ensure(!CustomCall::read(&view)?.callee.is_empty(), || "has no name".into())?;
            [op.operands(), op.results()]
                .concat()
                .iter()
                .try_for_each(|v| tensor_type(v.ty()).map(|_| ()))
        }
        OpKind::UnbackedSize => {
            let o = UnbackedSize::read(&view)?;
            let (value, result) = (tensor_type(o.value.ty())?, tensor_type(op.result(0).ty())?);
            ensure(value.dtype == DType::I64 && value.dims.is_empty(), || {
                "needs a 0-d i64".into()
            })?;
            let empty = [Dim::Unknown, Dim::Known(0)];
            ensure(result.dtype == DType::I8 && result.dims == empty, || {
                format!("has a result of {}, not of tensor<?x0xi8>", op.result(0).ty())
            })?;
            ensure(o.max.len() == 1, || format!("has {} greatest values, not one", o.max.len()))?;
            ensure(op.parent().is_some_and(|p| p.isa::<func::Func>()), || {
                "stands inside of control flow".into()
            })
        }
        OpKind::PtxCall => {
            let o = PtxCall::read(&view)?;
            ensure(!o.callee.is_empty(), || "has no name".into())?;
            ensure(!o.entry.is_empty() && o.ptx.contains(&o.entry), || {
                format!("has entry '{}', which its PTX does not define", o.entry)
            })?;
            ensure(o.blocks.len() == 1, || {
                format!("has {} block counts, not one", o.blocks.len())
            })?;
            ensure((1..=1024).contains(&o.threads), || {
                format!("has {} threads per block, not 1 to 1024", o.threads)
            })?;
            ensure((0..=i64::from(u32::MAX)).contains(&o.shared), || {
                format!("asks for {} bytes of shared memory", o.shared)
            })?;
            ensure(op.regions().len() <= 1, || "has several regions".into())?;
            ensure(!op.results().is_empty(), || "has no result".into())?;
            [o.inputs, op.results()]
                .concat()
                .iter()
                .try_for_each(|v| tensor_type(v.ty()).map(|_| ()))
        }
        OpKind::Arena | OpKind::Output | OpKind::Reuse => {
            tensor_type(op.result(0).ty()).map(|_| ())
        }
        OpKind::ArenaSize | OpKind::SymExpr | OpKind::Yield | OpKind::While | OpKind::Scan => {
            Ok(())
        }
        // Inference has verified them.
        unary!() | binary!() => Ok(()),
        OpKind::Compare | OpKind::Select | OpKind::Clamp | OpKind::Convert | OpKind::Bitcast => {
            Ok(())
        }
        OpKind::Splat
        | OpKind::Iota
        | OpKind::BroadcastInDim
        | OpKind::Reshape
        | OpKind::Transpose
        | OpKind::Slice => Ok(()),
        OpKind::InsertSlice => super::insert_slice::verify(op),
        OpKind::Pad | OpKind::Concat | OpKind::Reverse | OpKind::Gather | OpKind::Scatter => Ok(()),
        OpKind::DynamicSlice
        | OpKind::DynamicUpdateSlice
        | OpKind::Reduce
        | OpKind::ArgMax
        | OpKind::ArgMin => Ok(()),
        OpKind::Cumulative
        | OpKind::Sort
        | OpKind::TopK
        | OpKind::DotGeneral
        | OpKind::Convolution
        | OpKind::ReduceWindow
        | OpKind::ConvolutionWeightGradient
        | OpKind::WinogradInput
        | OpKind::WinogradOutput => Ok(()),
        OpKind::Fft => Ok(()),
        OpKind::Philox | OpKind::RandomBits | OpKind::RandomUniform | OpKind::RandomNormal => {
            Ok(())
        }
        OpKind::Sigmoid
        | OpKind::Silu
        | OpKind::Relu
        | OpKind::Hardtanh
        | OpKind::Hardsigmoid
        | OpKind::Hardswish
        | OpKind::Gelu
        | OpKind::Softplus => Ok(()),
        OpKind::Linear
        | OpKind::Matmul
        | OpKind::Embedding
        | OpKind::LayerNorm
        | OpKind::GroupNorm
        | OpKind::BatchNorm => Ok(()),
        OpKind::RmsNorm
        | OpKind::Softmax
        | OpKind::LogSoftmax
        | OpKind::CrossEntropy
        | OpKind::Dropout
        | OpKind::StopGradient
        | OpKind::Checkpoint
        | OpKind::OptimizationBarrier => Ok(()),
        OpKind::Interpolate | OpKind::MaxPool | OpKind::AvgPool | OpKind::AdaptiveAvgPool => Ok(()),
        OpKind::Mean | OpKind::Var | OpKind::Std => Ok(()),
        OpKind::Attention | OpKind::AttentionGradient => Ok(()),
        OpKind::StructuredIndex
        | OpKind::StructuredContract
        | OpKind::StructuredScan
        | OpKind::StructuredFft
        | OpKind::StructuredAttention
        | OpKind::StructuredAttentionGradient => super::structured::verify(op),
        tile!() => super::tile::verify(op),
    }
}

/// Equal names are one symbol, so all declarations must have the same range.
fn one_range(op: Op, o: &Sym) -> Result<()> {
    for other in op.block().map(Block::ops).unwrap_or_default() {
        if other == op {
            break;
        }
        if let Some(p) = Sym::of(other).filter(|p| p.name == o.name) {
            ensure(p == *o, || {
                format!("declares @{} with another range than at {}", o.name, other.loc())
            })?;
        }
    }
    Ok(())
}

fn types(values: &[Value]) -> Vec<Type> {
    values.iter().map(|v| v.ty()).collect()
}

fn list(types: &[Type]) -> String {
    format!("({})", types.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", "))
}

/// The block of region `i` and the operands of its yield.
fn body(op: Op, i: usize) -> Result<(Block, Vec<Value>)> {
    let name = op.kind().and_then(|k| k.regions().get(i).copied()).unwrap_or("body");
    let block = op
        .regions()
        .get(i)
        .and_then(|r| r.first())
        .ok_or_else(|| format!("has an empty region '{name}'"))?;
    let end = block.terminator().filter(|t| t.kind() == Some(OpKind::Yield));
    let end =
        end.ok_or_else(|| format!("has a region '{name}' that does not end in kiln.yield"))?;
    Ok((block, end.operands()))
}

fn same(have: &[Type], need: &[Type], what: &str) -> Result<()> {
    ensure(have == need, || format!("{what} {} where {} is needed", list(have), list(need)))
}

/// Verifies ops with regions, after the nested ops.
pub fn verify_regions(op: Op) -> Result<()> {
    let scalar = |d| Type::tensor(op.ctx(), d, &[]);
    match op.kind() {
        Some(OpKind::If) => (0..2).try_for_each(|i| {
            let (block, yields) = body(op, i)?;
            same(&types(&block.args()), &[], "has region arguments")?;
            same(&types(&yields), &types(&op.results()), "yields")
        }),
        Some(OpKind::Checkpoint | OpKind::PtxCall) => (0..op.regions().len()).try_for_each(|i| {
            let (block, yields) = body(op, i)?;
            same(&types(&block.args()), &[], "has region arguments")?;
            same(&types(&yields), &types(&op.results()), "yields")
        }),
        Some(OpKind::While) => {
            let carried = types(&op.operands());
            same(&types(&op.results()), &carried, "has results")?;
            let (condition, test) = body(op, 0)?;
            let (step, next) = body(op, 1)?;
            same(&types(&condition.args()), &carried, "has condition arguments")?;
            same(&types(&step.args()), &carried, "has body arguments")?;
            same(&types(&test), &[scalar(DType::I1)], "has a condition that yields")?;
            same(&types(&next), &carried, "yields")
        }
        Some(kind) if kind.has_loops() => super::structured::verify_region(op),
        Some(tile!()) => super::tile::verify_region(op),
        Some(OpKind::Scan) => verify_scan(op),
        Some(OpKind::Attention) => {
            let q = tensor_type(op.operand(0).ty())?.dtype;
            let score = scalar(if q == DType::F64 { DType::F64 } else { DType::F32 });
            let position = [scalar(DType::I64); 4];
            for (i, args, result) in [
                (0, [&[score][..], &position].concat(), score),
                (1, position.to_vec(), scalar(DType::I1)),
            ] {
                if op.regions().get(i).is_none_or(|r| r.is_empty()) {
                    continue;
                }
                let (block, yields) = body(op, i)?;
                let what = if i == 0 { "has score arguments" } else { "has mask arguments" };
                same(&types(&block.args()), &args, what)?;
                same(&types(&yields), &[result], "yields")?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn verify_scan(op: Op) -> Result<()> {
    let o = Scan::read(&View::of(op).ok_or("is not a kiln op")?)?;
    let carried = types(&o.inits);
    let mut length = Dim::Unknown;
    let mut slices = vec![];
    ensure(!o.inputs.is_empty(), || "has no inputs to scan".into())?;
    for x in &o.inputs {
        let t = tensor_type(x.ty())?;
        let (first, rest) = t.dims.split_first().ok_or("scans a 0-d tensor")?;
        length =
            unify_all(&[length], std::slice::from_ref(first), "of the inputs' leading dimension")?
                .remove(0);
        slices.push(Type::tensor(op.ctx(), t.dtype, rest));
    }
    let (block, yields) = body(op, 0)?;
    same(&types(&block.args()), &[carried.clone(), slices].concat(), "has body arguments")?;
    ensure(yields.len() >= carried.len(), || {
        format!("yields {} values where {} are carried", yields.len(), carried.len())
    })?;
    let (last, stacked) = yields.split_at(carried.len());
    same(&types(last), &carried, "yields carried values")?;
    let results = types(&op.results());
    let mut need = carried;
    for y in stacked {
        let t = tensor_type(y.ty())?;
        need.push(Type::tensor(
            op.ctx(),
            t.dtype,
            &[std::slice::from_ref(&length), &t.dims].concat(),
        ));
    }
    same(&results, &need, "has results")
}

/// Verifies `kiln.get_global` and `kiln.launch` against the symbol they reference.
pub fn verify_symbol(op: Op, found: Option<Op>) -> Result<()> {
    if let Some(o) = Launch::of(op) {
        return ensure(found.is_some_and(|f| f.is("builtin.module")), || {
            format!("refers to @{}, which is not a kernel module", o.kernel)
        });
    }
    let o = GetGlobal::of(op).ok_or("has no symbol reference")?;
    let g = found
        .and_then(Global::of)
        .ok_or_else(|| format!("refers to @{}, which is not a kiln.global", o.global))?;
    ensure(o.is_mutable == g.is_mutable, || {
        format!("and its kiln.global @{} disagree on 'mutable'", o.global)
    })?;
    let have = op.result(0).ty();
    ensure(have == g.r#type, || {
        format!("has type {have}, but kiln.global @{} has {}", o.global, g.r#type)
    })
}

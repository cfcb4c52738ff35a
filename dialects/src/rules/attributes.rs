//! What must hold of `kiln.*` attributes, on ops of any dialect and on arguments.
use super::{
    LEVELS, Level,
    types::{ensure, tensor_type},
};
use crate::{ir::*, ops::OpKind};

/// Verifies `kiln.*` attributes on ops of any dialect.
pub fn verify_op_attr(op: Op, name: &str, value: Attr) -> Result<()> {
    match name {
        "kiln.level" => {
            let known = || LEVELS.iter().map(|l| l.name()).collect::<Vec<_>>().join(", ");
            let level = value.as_string().and_then(|s| Level::from_name(&s));
            level
                .map(|_| ())
                .ok_or_else(|| format!("has kiln.level {value}, which is none of {}", known()))?;
        }
        "kiln.target" => {
            ensure(value.as_string().is_some(), || "needs a string as kiln.target".into())?
        }
        "kiln.programs" => {
            ensure(value.entries().is_some(), || "needs a dictionary as kiln.programs".into())?
        }
        "kiln.options" => {
            ensure(value.entries().is_some(), || "needs a dictionary as kiln.options".into())?
        }
        "kiln.schedule" => {
            let known = value.as_schedule().is_some();
            ensure(known, || {
                format!("needs #kiln.schedule<\"strategy\", {{...}}> as kiln.schedule, has {value}")
            })?;
            return on_kernel(op, name);
        }
        "kiln.grid" | "kiln.threads" => {
            let fits = if name == "kiln.grid" {
                value.as_affine_map().is_some_and(|(dims, results)| dims == 0 && results.len() == 1)
            } else {
                value.as_i64().is_some_and(|n| (1..=1024).contains(&n))
            };
            ensure(fits, || {
                format!(
                    "needs a map of symbols to one number as kiln.grid and 1 to 1024 as kiln.threads, has {name} = {value}"
                )
            })?;
            return on_kernel(op, name);
        }
        "kiln.dependent" => return on_kernel(op, name),
        "kiln.resident" | "kiln.persistent" | "kiln.cluster" => {
            ensure(value.as_i64().is_some_and(|n| (1..=32).contains(&n)), || {
                format!("needs 1 to 32 blocks as {name}, has {value}")
            })?;
            return on_kernel(op, name);
        }
        "kiln.shared" | "kiln.tensor_maps" => {
            let fits = if name == "kiln.shared" {
                value.as_i64().is_some_and(|n| n >= 0)
            } else {
                value.as_array().is_some_and(|all| {
                    all.iter().all(|m| {
                        m.entry("argument").is_some()
                            && m.entry("map").and_then(Attr::as_affine_map).is_some()
                    })
                })
            };
            ensure(fits, || {
                format!(
                    "needs bytes as kiln.shared and [{{argument, box, element, map}}] as kiln.tensor_maps, has {name} = {value}"
                )
            })?;
            return on_kernel(op, name);
        }
        "kiln.library" => {
            let all = |names: &[&str]| names.iter().all(|n| value.entry(n).is_some());
            let told = all(&["left", "name", "result", "right"])
                || all(&["image", "name", "result", "weight", "window"]);
            ensure(value.as_string().is_some() || told, || {
                format!(
                    "needs a library's name, {{left, name, result, right}} or {{image, name, result, weight, window}} as kiln.library, has {value}"
                )
            })?;
            return ensure(op.isa::<func::Func>() || op.isa::<llvm::LLVMFunc>(), || {
                "has kiln.library, which belongs on a kernel's function".into()
            });
        }
        "kiln.parts" => {
            let fits = value
                .entries()
                .is_some_and(|all| all.iter().all(|(_, n)| n.as_i64().is_some_and(|n| n > 0)));
            ensure(fits, || format!("needs {{product = parts}} as kiln.parts, has {value}"))?;
        }
        "kiln.size_results" => {
            let names = value.as_array().unwrap_or_default();
            let fits = names.iter().all(|n| n.as_string().is_some());
            ensure(!names.is_empty() && fits, || {
                format!("needs names of symbols as kiln.size_results, has {value}")
            })?;
            return ensure(op.isa::<func::Func>(), || {
                "has kiln.size_results, which belongs on a function".into()
            });
        }
        "kiln.each_op" => {
            ensure(value.is_unit(), || "has kiln.each_op, which is a unit attribute".into())?
        }
        "kiln.stored" | "kiln.staged" | "kiln.rounded" => {
            ensure(value.is_unit(), || format!("has {name}, which is a unit attribute"))?;
            return ensure(op.result_count() == 1, || {
                format!("has {name}, which belongs on an op with one result")
            });
        }
        "kiln.view" | "kiln.index" => {
            return ensure(value.is_unit() && op.kind() == Some(OpKind::Reshape), || {
                format!("has {name}, which is a unit attribute of reshapes")
            });
        }
        "kiln.image" => {
            return ensure(value.is_unit() && op.kind() == Some(OpKind::Transpose), || {
                "has kiln.image, which is a unit attribute of transposes".into()
            });
        }
        "kiln.pack" => {
            ensure(value.as_string().is_some(), || "needs a string as kiln.pack".into())?;
            return ensure(op.operand_count() == 2, || {
                "has kiln.pack, which belongs on a contraction".into()
            });
        }
        "kiln.groups" => {
            let fits = value.as_string().is_some() && op.kind() == Some(OpKind::Convolution);
            return ensure(fits, || "has kiln.groups, which is a string on a convolution".into());
        }
        "kiln.memory_format" => {
            ensure(value.as_string().is_some(), || "needs a string as kiln.memory_format".into())?;
            return ensure(op.isa::<func::Func>(), || {
                "has kiln.memory_format, which belongs on a function".into()
            });
        }
        "kiln.control" => {
            return ensure(value.is_unit() && op.isa::<func::Func>(), || {
                "has kiln.control, which is a unit attribute of functions".into()
            });
        }
        "kiln.in_place" => {
            ensure(value.as_i64s().is_some(), || {
                format!("needs array<i64: …> as kiln.in_place, has {value}")
            })?;
            return ensure(op.isa::<func::Func>(), || {
                "has kiln.in_place, which belongs on a kernel's function".into()
            });
        }
        "kiln.causal" => {
            return ensure(value.is_unit() && op.isa::<linalg::Generic>(), || {
                "has kiln.causal, which is a unit attribute of linalg.generic".into()
            });
        }
        "kiln.merges" => {
            let pairs = op.isa::<linalg::Generic>() && op.operand_count() == 2 * op.result_count();
            return ensure(value.is_unit() && pairs, || {
                "has kiln.merges, which belongs on a linalg.generic with as many inputs as results"
                    .into()
            });
        }
        "kiln.partition" => {
            let counts = value.entries().unwrap_or_default();
            let ok = counts.iter().all(|(_, n)| n.as_i64().is_some_and(|n| n >= 0));
            return ensure(ok && !counts.is_empty() && op.isa::<func::Func>(), || {
                "needs a dictionary of counts as kiln.partition, on a function".into()
            });
        }
        "kiln.not_fused" | "kiln.not_chunked" | "kiln.not_quantized" => {
            return ensure(value.as_string().is_some(), || format!("needs a string as {name}"));
        }
        "kiln.prologue" => {
            let product = value.as_string().is_some() && op.operand_count() == 2;
            return ensure(product || value.is_unit() && op.result_count() == 1, || {
                "has kiln.prologue, which is a unit attribute of ops with one result or a string on a contraction".into()
            });
        }
        "kiln.loops" => {
            let loops = matches!(op.kind(), Some(OpKind::Cumulative | OpKind::Fft));
            return ensure(value.is_unit() && loops, || {
                "has kiln.loops, which is a unit attribute of kiln.cumulative and kiln.fft".into()
            });
        }
        "kiln.refused" => {
            let reasons = value.entries().unwrap_or_default();
            let text = !reasons.is_empty() && reasons.iter().all(|(_, v)| v.as_string().is_some());
            ensure(text, || "needs a dictionary of strings as kiln.refused".into())?;
            return ensure(op.isa::<func::Func>() || op.isa::<llvm::LLVMFunc>(), || {
                "has kiln.refused, which belongs on a kernel's function".into()
            });
        }
        "kiln.kernel" => {
            ensure(value.entries().is_some(), || "needs a dictionary as kiln.kernel".into())?
        }
        _ => {
            return Err(
                format!("has attribute {name}, which the kiln dialect does not know").into()
            );
        }
    }
    ensure(op.is("builtin.module"), || format!("has {name}, which belongs on a module"))
}

/// Verifies that an attribute is on a kernel's function.
fn on_kernel(op: Op, name: &str) -> Result<()> {
    ensure(op.isa::<func::Func>() || op.isa::<llvm::LLVMFunc>(), || {
        format!("has {name}, which belongs on a kernel's function")
    })
}

/// Verifies `kiln.layout` on function arguments (with a type) and results (without), `kiln.order`,
/// `kiln.donated`, `kiln.state`, `kiln.aliases` and `kiln.not_aliased` on arguments of entries, and
/// `kiln.sizes`,
/// `kiln.noalias`, `kiln.constant`, `kiln.divisor`, `kiln.least` on arguments of kernels.
pub fn verify_arg_attr(ty: Option<Type>, name: &str, value: Attr) -> Result<()> {
    match name {
        "kiln.layout" => {}
        "kiln.sizes" => {
            let sizes = value
                .as_i64s()
                .ok_or_else(|| format!("needs array<i64: …> as kiln.sizes, has {value}"))?;
            let rank = ty.ok_or("has kiln.sizes on a result")?.dims().len();
            return ensure(sizes.len() == rank, || {
                format!("has {} entries in kiln.sizes for {rank} dimensions", sizes.len())
            });
        }
        "kiln.donated" => {
            let known = value.is_unit()
                || value.as_string().as_deref() == Some("results")
                || value.as_i64().is_some_and(|n| n >= 0);
            return ensure(known && ty.is_some_and(|t| t.is_tensor()), || {
                format!(
                    "needs kiln.donated without a value, = \"results\" or = the number of a \
                     result, on a tensor; has {value}"
                )
            });
        }
        super::level::STATE => {
            let result = value.entry("result").and_then(Attr::as_i64).filter(|n| *n >= 0);
            let source = value.entry("source").and_then(Attr::as_string);
            let known = result.is_some() && source.is_some();
            return ensure(known && ty.is_some_and(|t| t.is_tensor()), || {
                format!(
                    "needs the number of a result and a source as kiln.state, on a tensor; has {value}"
                )
            });
        }
        "kiln.aliases" => {
            let index = value.as_i64().filter(|n| *n >= 0 && ty.is_some_and(|t| t.is_tensor()));
            return ensure(index.is_some(), || {
                format!("needs the number of a result as kiln.aliases, on a tensor; has {value}")
            });
        }
        "kiln.not_aliased" => {
            return ensure(
                value.as_string().is_some() && ty.is_some_and(|t| t.is_tensor()),
                || format!("needs a string as kiln.not_aliased, on a tensor; has {value}"),
            );
        }
        "kiln.order" => {
            let order = value
                .as_i64s()
                .ok_or_else(|| format!("needs array<i64: …> as kiln.order, has {value}"))?;
            let rank = ty.ok_or("has kiln.order on a result")?.dims().len() as i64;
            let whole = order.len() as i64 == rank && (0..rank).all(|d| order.contains(&d));
            return ensure(whole, || {
                format!(
                    "has {value} as kiln.order, which is not a permutation of {rank} dimensions"
                )
            });
        }
        "kiln.divisor" | "kiln.least" => {
            let least = i64::from(name == "kiln.divisor");
            let number = value.as_i64().filter(|n| *n >= least && ty.is_some_and(|t| t.is_index()));
            return ensure(number.is_some(), || {
                format!("needs a number from {least} on as {name}, on a size; has {value}")
            });
        }
        "kiln.noalias" | "kiln.constant" => {
            return ensure(value.is_unit(), || {
                format!("needs {name} without a value, has {value}")
            });
        }
        _ => {
            return Err(format!(
                "has argument attribute {name}, which the kiln dialect does not know"
            )
            .into());
        }
    }
    let (strides, offset, alignment) = value
        .as_layout()
        .ok_or_else(|| format!("needs #kiln.layout<...> as kiln.layout, has {value}"))?;
    ensure(offset >= 0, || format!("has a layout with offset {offset}"))?;
    ensure(alignment >= 0 && (alignment == 0 || (alignment as u64).is_power_of_two()), || {
        format!("has a layout with alignment {alignment}")
    })?;
    match ty {
        Some(t) => {
            let rank = tensor_type(t)?.dims.len();
            ensure(strides.len() == rank, || {
                format!("has a layout of {} strides on a tensor of rank {rank}", strides.len())
            })
        }
        None => Ok(()),
    }
}

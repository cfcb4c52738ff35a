//! `kiln.vmap` and `kiln-vmap` against loops: every op that has a gradient, and functions.
use super::{CASES, arguments, parsed, said};
use crate::support::*;
use kiln::{
    Error, Tensor,
    dialects::{
        interp::Mode,
        ir::*,
        ops::{OpKind, Scan, Yield},
        value::{self, DType},
    },
    lowering::{RunOptions, run_pipeline},
    tensor::TraceError,
};
use kiln_passes::{
    differentiate::{Derivative, derivative},
    vmap::{Batching, batching},
};
use std::collections::{BTreeSet, HashMap};

const EXAMPLES: usize = 3;

/// A module whose function runs a case's function for each of some examples; of its arguments
/// those in `batched` differ between examples.
fn looped(context: &Context, module: &Module, batched: &[bool]) -> Module {
    let func = functions(module)[0];
    let old = func.regions()[0].first().unwrap();
    let stack = |v: &Value| {
        let t = kiln_dialects::rules::tensor_type(v.ty()).unwrap();
        let n = kiln_dialects::sym::Dim::Known(EXAMPLES as i64);
        Type::tensor(context.ctx(), t.dtype, &[vec![n], t.dims].concat())
    };
    let args = old.args();
    let given: Vec<Type> =
        args.iter().zip(batched).map(|(v, b)| if *b { stack(v) } else { v.ty() }).collect();
    let results: Vec<Type> = old.terminator().unwrap().operands().iter().map(stack).collect();
    let made = Module::new(Loc::unknown(context.ctx()));
    let b = Builder::at_end(context.ctx(), made.body(), Loc::unknown(context.ctx()));
    let fill = &mut |b: Builder, outer: Vec<Value>| {
        let rows: Vec<usize> = (0..args.len()).filter(|i| batched[*i]).collect();
        let types: Vec<Type> = rows.iter().map(|i| args[*i].ty()).collect();
        let inputs = rows.iter().map(|i| outer[*i]).collect();
        let mut body = |b: Builder, inner: Vec<Value>| {
            let mut map: HashMap<Value, Value> = args.iter().copied().zip(outer.clone()).collect();
            map.extend(rows.iter().map(|i| args[*i]).zip(inner));
            for op in old.ops() {
                let now = |v: Value| *map.get(&v).unwrap_or(&v);
                if op.isa::<func::Return>() {
                    let values = op.operands().into_iter().map(now).collect();
                    b.create_with(&Yield { values }, &[], &mut [])?;
                    break;
                }
                let copy = b.clone_op(op, &now)?;
                map.extend(op.results().into_iter().zip(copy.results()));
            }
            Ok(())
        };
        let node = Scan { inits: vec![], inputs, reverse: false };
        let scan = b.create_with(&node, &results, &mut [(&types, &mut body)])?;
        b.ret(&scan.results()).map(|_| ())
    };
    b.function("f", &given, &results, fill).unwrap();
    made
}

fn stacked(all: &[value::Tensor]) -> value::Tensor {
    let shape = [&[all.len()], all[0].shape()].concat();
    match all[0].as_f() {
        Ok(_) => {
            let data = all.iter().flat_map(|t| t.as_f().unwrap().to_vec()).collect();
            value::Tensor::floats(all[0].dtype(), shape, data).unwrap()
        }
        Err(_) => {
            let data = all.iter().flat_map(|t| t.as_i().unwrap().to_vec()).collect();
            value::Tensor::new(all[0].dtype(), shape, value::Data::I(data)).unwrap()
        }
    }
}

#[test]
fn batches_are_what_loops_compute() {
    let (mut kinds, mut failures) = (BTreeSet::new(), vec![]);
    for case in cases(CASES).iter().filter(|c| !c.text.contains('?')) {
        crate::watchdog::arm();
        let context = Context::new();
        let module = parsed(&context, case);
        let func = functions(&module)[0];
        let each: Vec<Vec<value::Tensor>> = (0..EXAMPLES as u64)
            .map(|seed| arguments(func, seed + 1, said(&case.text, "RANGE")))
            .collect();
        let n = each[0].len();
        // All arguments differ between examples, or one does.
        let choices = std::iter::once(vec![true; n])
            .chain((0..n).filter(|_| n > 1).map(|i| (0..n).map(|j| i == j).collect()));
        for batched in choices {
            let given: Vec<value::Tensor> = (0..n)
                .map(|i| match batched[i] {
                    true => stacked(&each.iter().map(|e| e[i].clone()).collect::<Vec<_>>()),
                    false => each[0][i].clone(),
                })
                .collect();
            let before = looped(&context, &module, &batched);
            let after = before.duplicate();
            let pipeline = "builtin.module(kiln-vmap)";
            if let Err(e) = run_pipeline(&after, pipeline, &RunOptions::default(), &|_, _, _| ()) {
                failures.push(format!("{} {batched:?}: {e}", case.name));
                continue;
            }
            let values = |m: &Module| run(m, functions(m)[0], Mode::Exact, &given);
            let wanted = values(&before).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            match values(&after) {
                Err(e) => failures.push(format!("{} {batched:?}: {e}\n{}", case.name, after.op())),
                Ok(found) => failures.extend(found.iter().zip(&wanted).filter_map(|(f, w)| {
                    let error = relative_error(f, w);
                    (f.shape() != w.shape() || error > 1e-12)
                        .then(|| format!("{} {batched:?}: {error}\n{}", case.name, after.op()))
                })),
            }
            kinds.extend(walk(before.op()).into_iter().filter_map(|o| o.kind()));
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n\n"));
    for kind in OpKind::ALL {
        let wanted = matches!(batching(*kind), Batching::Own(_) | Batching::Decomposed);
        // Cases have the ops with a gradient; `integers_are_batched` has others.
        let has_case = matches!(derivative(*kind), Derivative::Own(_) | Derivative::Decomposed);
        assert!(!wanted || !has_case || kinds.contains(kind), "{} has no case", kind.name());
    }
}

fn numbers(shape: &[usize], seed: f64) -> Tensor {
    let n: usize = shape.iter().product();
    let all: Vec<f64> = (0..n).map(|i| (i as f64 * 0.7 + seed).sin()).collect();
    Tensor::from_slice(shape, &all).unwrap()
}

fn close(a: &Tensor, b: &Tensor) {
    let (x, y) = (a.to_vec::<f64>().unwrap(), b.to_vec::<f64>().unwrap());
    let near = x.iter().zip(&y).all(|(x, y)| (x - y).abs() <= 1e-10 * (1.0 + y.abs()));
    assert!(
        a.dims().unwrap().len() == b.dims().unwrap().len() && x.len() == y.len() && near,
        "{x:?}, not {y:?}"
    );
}

/// Integer ops, and those whose results are indices.
#[test]
fn integers_are_batched() -> Result<(), Error> {
    let f = |x: Tensor| {
        let whole = x.to(DType::I64);
        let mixed = ((&whole & 6i64) ^ (&whole | 1i64)) + x.lt(0.5).to(DType::I64);
        (x.argmax(Some(0), false), x.argmin(None, false), mixed, whole % 3i64)
    };
    let x = numbers(&[4, 5], 1.0) * 9.0;
    let (found, wanted) = (kiln::vmap(f).call(&x)?, kiln::map(f, x)?);
    let list = |t: (Tensor, Tensor, Tensor, Tensor)| -> Result<Vec<Vec<i64>>, TraceError> {
        [t.0, t.1, t.2, t.3].iter().map(|t| t.to_vec::<i64>()).collect()
    };
    assert_eq!(list(found)?, list(wanted)?);
    Ok(())
}

fn loss(x: Tensor, w: &Tensor) -> Tensor {
    x.linear(w, None).gelu().softmax(-1).square().sum(.., false)
}

#[test]
fn gradients_go_into_batches_and_around_them() -> Result<(), Error> {
    let (x, w) = (numbers(&[6, 4], 1.0), numbers(&[3, 4], 2.0));
    let one = |x: Tensor| loss(x, &w);
    // The gradients of each example, eagerly and compiled.
    let wanted = kiln::map(kiln_grad(&w), x.clone())?;
    close(&kiln::vmap(kiln::grad(one)).call(&x)?, &wanted);
    let compiled = kiln::compile(kiln::vmap(kiln::grad(one))).fullgraph(true);
    close(&compiled.call(&x)?, &wanted);
    // The gradient of a sum over the batch.
    let sum = |x: Tensor| kiln::vmap(one).call(x).map(|y| y.sum(.., false));
    close(&kiln::grad(sum).call(&x)?, &wanted);
    // By what all examples share.
    let by_w = |w: Tensor, x: Tensor| {
        let one = |x: Tensor| loss(x, &w);
        kiln::vmap(one).call(x).map(|y| y.sum(.., false))
    };
    let together = |w: Tensor, x: Tensor| loss(x, &w);
    close(&kiln::grad(by_w).call((&w, &x))?, &kiln::grad(together).call((&w, &x))?);
    Ok(())
}

/// The gradient of the loss of one example.
fn kiln_grad(w: &Tensor) -> impl Fn(Tensor) -> Result<Tensor, TraceError> {
    move |x| kiln::grad(|x: Tensor| loss(x, w)).call(x)
}

#[test]
fn batches_nest_and_have_structure() -> Result<(), Error> {
    let (x, y) = (numbers(&[3, 2], 1.0), numbers(&[3, 4], 2.0));
    // All pairs: an outer product, by two batches of scalars.
    let outer = |x: Tensor, y: Tensor| {
        kiln::vmap(|a: Tensor| kiln::vmap(|b: Tensor| &a * b.exp()).call(&y)).call(x)
    };
    let wanted = x.unsqueeze(2) * y.exp().unsqueeze(1);
    close(&kiln::vmap(outer).call((&x, &y))?, &wanted);
    close(&kiln::compile(kiln::vmap(outer)).call((&x, &y))?, &wanted);
    // A result that no argument reaches is copied for each example.
    let constant = numbers(&[2], 3.0);
    let f =
        |(x, list): (Tensor, Vec<Tensor>)| (constant.clone(), vec![x + &list[0].sum(.., false)]);
    let (same, other) = kiln::vmap(f).call(((x.clone(), vec![y.clone()]),))?;
    close(&same, &constant.unsqueeze(0).expand([3, 2]));
    close(&other[0], &(x + y.sum([1], true)));
    Ok(())
}

#[test]
fn sizes_may_be_symbolic() -> Result<(), Error> {
    let f = |x: Tensor| (x.softmax(-1) * x.size(0)).cumsum(0);
    let compiled = kiln::compile(kiln::vmap(f)).dynamic(true);
    for n in [3, 5, 7] {
        let x = numbers(&[n, n + 1], 1.0);
        close(&compiled.call(&x)?, &kiln::map(f, x.clone())?);
    }
    // An op without a rule, in a loop: the scatter that is the derivative of a gather.
    let index = Tensor::from_slice(&[2], &[2i64, 0])?;
    let sum = |x: Tensor| x.index_select(0, &index).square().sum(.., false);
    let f = |x: Tensor| kiln::grad(sum).call(x);
    let compiled = kiln::compile(kiln::vmap(f)).dynamic(true).options([("keep_graphs", "true")]);
    for n in [3, 5] {
        let x = numbers(&[n, n + 1], 1.0);
        close(&compiled.call(&x)?, &kiln::map(f, x.clone())?);
    }
    let text = &compiled.explain().graphs[0].text;
    assert!(text.contains("kiln.scan") && text.contains("kiln.scatter"), "{text}");
    Ok(())
}

/// A checkpoint in a batch stays one, so that its gradient recomputes it.
#[test]
fn checkpoints_stay_in_batches() -> Result<(), Error> {
    let (x, w) = (numbers(&[6, 4], 1.0), numbers(&[3, 4], 2.0));
    let one = |x: Tensor| kiln::checkpoint(|x: Tensor| loss(x, &w)).call(x);
    let sum = |x: Tensor| kiln::vmap(one).call(x).map(|y| y.sum(.., false));
    let compiled = kiln::compile(kiln::grad(sum)).options([("keep_graphs", "true")]);
    close(&compiled.call(&x)?, &kiln::map(kiln_grad(&w), x.clone())?);
    let text = &compiled.explain().graphs[0].text;
    assert!(text.contains("kiln.optimization_barrier"), "{text}");
    Ok(())
}

#[test]
fn what_cannot_be_batched_is_an_error() {
    let (x, y) = (numbers(&[3, 2], 1.0), numbers(&[4, 2], 1.0));
    let e = kiln::vmap(|x: Tensor, y: Tensor| x + y).call((&x, &y)).unwrap_err().to_string();
    assert!(e.contains("takes tensors of one first dimension"), "{e}");
    let e = kiln::vmap(|x: Tensor| x.reshape([7])).call(&x).unwrap_err().to_string();
    assert!(e.contains("vmap.rs") && e.contains("reshape"), "{e}");
}

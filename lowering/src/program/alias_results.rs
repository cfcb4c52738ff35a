//! `kiln-alias-results`: lets results of a program take the memory of donated arguments.
//!
//! Why: a training step returns new weights and a new optimizer state. In the memory of the old
//! ones they need no second copy, and a call allocates nothing for them. A result may take an
//! argument of its dtype and sizes, marked `kiln.donated = "results"`, if every launch that reads
//! the argument comes before the first that writes the result, or is that launch and may overwrite
//! it (`kiln-in-place`). One marked with a number, as PyTorch's mutated arguments are, is taken by
//! the result of that number alone, its new value. A state's new value (`kiln.state`) takes the
//! memory of the old one, and has it already where a launch writes a slice into it
//! (`kiln-update-in-place`). A launch that writes such results moves behind the readers of their
//! arguments where its own readers allow it. JAX leaves this to XLA's buffer assignment; upstream's
//! one-shot bufferization does not reuse arguments of functions for their results.
//!
//! The caller may give a call the argument's memory as the result's, and need not: the program is
//! right either way.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  func.func @main(%w: tensor<8xf32> {kiln.donated = "results"}, %g: tensor<8xf32>) -> tensor<8xf32> …
//! after:   func.func @main(%w: tensor<8xf32> {kiln.aliases = 0 : i64, kiln.donated = "results"}, %g: tensor<8xf32>) -> …
//! ```
use crate::{
    program::{
        plan::{
            self, Kernels, host_functions, in_place, last_use, launches_in, only_read, positions,
        },
        sink_launches::{is_returned, sink, views},
    },
    target::kernel_attrs::{ALIASES, DONATED, NOT_ALIASED},
};
use kiln_dialects::{
    ir::*,
    ops::Launch,
    rules::{Level, is_driver, state_result, tensor_type},
    sym::Dim as SymDim,
    value::DType,
};
use kiln_passes::{Numerics, Pass, refine_shapes::Facts};

kiln_passes::pass_options! {
    /// The pass.
    pub struct AliasResults {}
}

impl Pass for AliasResults {
    const FLAG: &'static str = "kiln-alias-results";
    const SUMMARY: &'static str = "Lets results take the memory of donated arguments";
    const LEVELS: &'static [Level] = &[Level::Tiled];
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        let about = plan::kernels(root);
        let drivers: Vec<Op> =
            blocks(root).into_iter().flat_map(|b| b.ops()).filter(|o| is_driver(*o)).collect();
        for func in host_functions(root).into_iter().filter(|_| drivers.is_empty()) {
            function(&about, func)?;
        }
        for func in drivers {
            let why = "the program has control flow, which may pass it on as a loop's value";
            for i in donors(func) {
                mark(func, i, NOT_ALIASED, Attr::string(func.ctx(), why));
            }
        }
        Ok(())
    }
}

/// The arguments whose memory results may take.
fn donors(func: Op) -> Vec<usize> {
    plan::donors(func, |value| !value.is_unit())
}

/// Sets an attribute of an argument.
fn mark(func: Op, argument: usize, name: &str, value: Attr) {
    let mut listed = func.attr("arg_attrs").and_then(Attr::as_array).unwrap_or_default();
    if let Some(about) = listed.get_mut(argument) {
        *about = about.with_entry(func.ctx(), name, value);
        func.set_attr("arg_attrs", Attr::array(func.ctx(), &listed));
    }
}

/// An argument whose memory a result may take.
struct Donor {
    argument: usize,
    value: Value,
    ty: (DType, Vec<SymDim>),
    /// The last launch that reads it; `None` if none does.
    last: Option<usize>,
    /// Of a state and a mutated argument, the result that is its new value; no other result takes
    /// its memory.
    new: Option<usize>,
}

/// The result that is a donated argument's new value, if that is known.
fn new_value(about: Attr) -> Option<usize> {
    let mutated = || usize::try_from(about.entry(DONATED)?.as_i64()?).ok();
    state_result(about).or_else(mutated)
}

/// A result that a launch writes.
struct Written {
    /// The index of the function's result.
    index: usize,
    ty: (DType, Vec<SymDim>),
    /// The first launch that writes it.
    first: usize,
    /// Donors that its launch may overwrite while it reads them, then those that are dead before.
    donors: Vec<usize>,
}

fn function(about: &Kernels, func: Op) -> Result<()> {
    let Some(block) = func.regions().first().and_then(|r| r.first()) else { return Ok(()) };
    let given = donors(func);
    if given.is_empty() {
        return Ok(());
    }
    let end = block.terminator().ok_or_at(func, "has no return")?;
    let facts = Facts::of(func, 2)?;
    let listed = func.attr("arg_attrs").and_then(Attr::as_array).unwrap_or_default();
    let values: Vec<Value> = given.iter().map(|i| block.args()[*i]).collect();
    sink(about, block, &values, |op, r| is_returned(op.result(r), end))?;
    let launches = launches_in(block);
    let order = positions(&launches);
    let ty = |v: Value| Ok::<_, Error>((tensor_type(v.ty())?.dtype, facts.dims(v).to_vec()));
    let (mut usable, mut unusable) = (vec![], vec![]);
    for argument in given {
        let value = block.args()[argument];
        let new = new_value(listed[argument]);
        let returned = last_use(value, &order, end, 0).1;
        if let Some(result) = returned.filter(|n| new == Some(*n) && plan::is_written(value)) {
            mark(func, argument, ALIASES, Attr::i64(func.ctx(), result as i64));
        } else if returned.is_some() {
            unusable.push((argument, "it is itself a result".to_string()));
        } else if listed[argument].entry("kiln.order").is_some() {
            unusable.push((argument, "its memory has another dimension order".to_string()));
        } else {
            let last = views(value).1.iter().filter_map(|o| order.get(o)).max().copied();
            usable.push(Donor { argument, value, ty: ty(value)?, last, new });
        }
    }
    let mut written = vec![];
    for (first, op) in launches.iter().enumerate() {
        let launch = Launch::of(*op).ok_or_malformed(*op)?;
        let allowed = in_place(about, &launch.kernel);
        for (r, (out, result)) in launch.outs.iter().zip(op.results()).enumerate() {
            let fresh = out.def().is_some_and(|o| o.isa::<tensor::Empty>());
            let Some(index) = last_use(result, &order, end, first).1.filter(|_| fresh) else {
                continue;
            };
            let ty = ty(end.operand(index))?;
            if ty.1.contains(&SymDim::Unknown) {
                continue;
            }
            let overwritten = |d: &usize| {
                let donor = &usable[*d];
                let over = |i: usize| only_read(&launch, i) == Some(donor.value);
                donor.ty == ty
                    && donor.new.is_none_or(|n| n == index)
                    && donor.last == Some(first)
                    && allowed.iter().any(|(to, i)| *to == r && over(*i))
            };
            let dead = |d: &usize| {
                let donor = &usable[*d];
                donor.ty == ty
                    && donor.new.is_none_or(|n| n == index)
                    && donor.last.is_none_or(|n| n < first)
            };
            let all = || 0..usable.len();
            let donors = all().filter(overwritten).chain(all().filter(dead)).collect();
            written.push(Written { index, ty, first, donors });
        }
    }
    let taken = assign(&written, usable.len());
    for (donor, by) in usable.iter().zip(&taken) {
        let c = func.ctx();
        match by {
            Some(w) => {
                mark(func, donor.argument, ALIASES, Attr::i64(c, written[*w].index as i64));
            }
            None => {
                let why = reason(donor, &written, &launches, &taken)?;
                mark(func, donor.argument, NOT_ALIASED, Attr::string(c, &why));
            }
        }
    }
    for (argument, why) in unusable {
        mark(func, argument, NOT_ALIASED, Attr::string(func.ctx(), &why));
    }
    Ok(())
}

/// Why no result takes an argument's memory.
fn reason(
    donor: &Donor,
    written: &[Written],
    launches: &[Op],
    taken: &[Option<usize>],
) -> Result<String> {
    let alike: Vec<&Written> = written.iter().filter(|w| w.ty == donor.ty).collect();
    let free = |w: &&&Written| !taken.iter().flatten().any(|t| written[*t].index == w.index);
    // The result of its last reader is the one that was meant to take it.
    let own = |w: &&&Written| free(w) && Some(w.first) == donor.last;
    let Some(w) = alike.iter().find(own).or_else(|| alike.iter().find(free)) else {
        let why = if alike.is_empty() {
            "no result is of its dtype and sizes"
        } else {
            "the results of its type take the memory of other arguments"
        };
        return Ok(why.into());
    };
    let name = |n: usize| {
        let launch = launches.get(n).copied().and_then(Launch::of);
        launch.map(|l| l.kernel).ok_or("reads a launch that is not there")
    };
    let (index, writer, last) = (w.index, name(w.first)?, donor.last.unwrap_or(w.first));
    Ok(if last == w.first {
        format!("kernel {writer} may read it after it has written that element of result {index}")
    } else {
        format!("kernel {} reads it after kernel {writer} has written result {index}", name(last)?)
    })
}

/// For each donor the result that takes its memory: a matching of as many as possible. Results with
/// the fewest choices come first, so that a moment takes its own memory and leaves the weight its.
fn assign(written: &[Written], donors: usize) -> Vec<Option<usize>> {
    let mut taken = vec![None; donors];
    let mut order: Vec<usize> = (0..written.len()).collect();
    order.sort_by_key(|w| (written[*w].donors.len(), written[*w].index));
    for w in order {
        take(written, w, &mut taken, &mut vec![false; donors]);
    }
    taken
}

/// Finds a donor for a result; results that have one move to another if they can.
fn take(written: &[Written], w: usize, taken: &mut [Option<usize>], seen: &mut [bool]) -> bool {
    let free = written[w].donors.iter().find(|d| taken[**d].is_none());
    if let Some(d) = free {
        taken[*d] = Some(w);
        return true;
    }
    for d in &written[w].donors {
        if std::mem::replace(&mut seen[*d], true) {
            continue;
        }
        if taken[*d].is_none_or(|other| take(written, other, taken, seen)) {
            taken[*d] = Some(w);
            return true;
        }
    }
    false
}

//! Loop fusion: which stages share a loop nest, which leading dimensions all of a kernel's nests
//! share as rows, and which buffers need memory.
use crate::analysis::{
    buffers::{FirstChoice, fit_scratch, fits_scratch, is_forwarded, writers},
    merge::{follows, is_apart, source},
    *,
};

/// A loop nest: stages that run in the same iterations.
#[derive(Clone, Debug)]
pub struct Nest {
    /// Indices of the stages.
    pub stages: Vec<usize>,
    /// Extents of the loop dimensions.
    pub extents: Vec<Poly>,
    /// Which of them are reductions in some stage.
    pub reduction: Vec<bool>,
    /// Indices of parallel stages that run after the reductions.
    pub after: Vec<usize>,
    /// A split dimension: outer loop, inner loop, the extent of both together.
    pub split: Option<(usize, usize, Poly)>,
}

impl Nest {
    fn of(k: &Kernel, i: usize) -> Nest {
        let s = &k.stages[i];
        Nest {
            stages: vec![i],
            extents: s.extents.clone(),
            reduction: s.reduction.clone(),
            after: vec![],
            split: None,
        }
    }
    /// All stages in program order.
    pub fn all(&self) -> impl Iterator<Item = usize> {
        self.stages.iter().chain(&self.after).copied()
    }
}

/// The nests of a kernel.
#[derive(Clone, Debug)]
pub struct NestPlan {
    /// Its nests, in program order.
    pub nests: Vec<Nest>,
    /// Whether a nest reads what an earlier one of the same kernel writes.
    pub dependent: bool,
    /// The number of leading dimensions that dependent nests share as rows.
    pub rows: usize,
    /// Buffers whose elements are only used in the iteration that defines them.
    pub forwarded: Vec<bool>,
}

impl NestPlan {
    /// The first nest, if all others only write disjoint elements: borders of padding, other slices
    /// of a concatenation.
    pub fn main(&self) -> Option<&Nest> {
        let (first, others) = self.nests.split_first()?;
        (!self.dependent && others.iter().all(|n| !n.reduction.contains(&true))).then_some(first)
    }
}

/// Forms nests, fusing and collapsing what it can. A row's intermediates prefer `scratch` bytes.
pub fn nests(k: &mut Kernel, scratch: i64) -> NestPlan {
    form(k, scratch, Rows::Shared)
}

/// The same, where nests of rows of the same sizes keep the same dimensions, for strategies whose
/// threads have the same elements of a row in every nest.
pub fn matching_nests(k: &mut Kernel, scratch: i64) -> NestPlan {
    form(k, scratch, Rows::Matching)
}

/// The same without shared rows, for strategies whose CTAs compute intermediates as a whole.
pub fn nests_without_rows(k: &mut Kernel, scratch: i64) -> NestPlan {
    form(k, scratch, Rows::None)
}

/// Which rows dependent nests share.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// Those of all leading dimensions that fit.
    Shared,
    /// The same, and nests of rows of the same sizes keep the same dimensions.
    Matching,
    /// None.
    None,
}

fn form(k: &mut Kernel, scratch: i64, shared: Rows) -> NestPlan {
    for s in &mut k.stages {
        drop_units(s);
    }
    let mut all: Vec<Nest> = vec![];
    for i in 0..k.stages.len() {
        if let Some(n) = source(k, &all, i).filter(|n| follows(k, &all[*n], i)) {
            all[n].after.push(i);
            continue;
        }
        match all.last_mut() {
            // Products with epilogues of their own are separate tiles of a CTA.
            Some(last)
                if fits(k, last, i)
                    && !is_apart(k, last, i)
                    && fits_before_epilogue(k, last, i)
                    && (shared != Rows::None || last.after.is_empty() || meet(k, last, i)) =>
            {
                last.stages.push(i);
                last.reduction.iter_mut().zip(&k.stages[i].reduction).for_each(|(a, b)| *a |= b);
            }
            Some(last) if follows(k, last, i) => last.after.push(i),
            _ => all.push(Nest::of(k, i)),
        }
    }
    let passed = (0..k.buffers.len())
        .map(|b| k.buffers[b].role == Role::Temporary && is_forwarded(k, &all, b))
        .collect();
    let mut plan =
        NestPlan { dependent: dependent(k, &all), nests: all, rows: 0, forwarded: passed };
    if plan.dependent && shared != Rows::None {
        let least = plan
            .nests
            .iter()
            .map(|n| n.reduction.iter().take_while(|r| !**r).count())
            .min()
            .unwrap_or(0);
        let fitting = |most: usize| (0..=most).rev().find(|r| rows_fit(k, &plan, *r)).unwrap_or(0);
        // The blocks of packed weights are loops within a row, where there are other rows.
        let blocks = plan.nests.iter().filter(|n| contracts(k, n)).filter_map(|n| blocked(k, n, 0));
        let unblocked = blocks.map(|(d, ..)| d).fold(least, usize::min);
        plan.rows = match fitting(unblocked) {
            0 => fitting(least),
            rows => rows,
        };
        let mut d = 0;
        while d + 1 < plan.rows {
            let together = plan.nests.iter().all(|n| collapsible(k, n, d));
            if together {
                (0..plan.nests.len()).for_each(|n| collapse(k, &mut plan.nests[n], d));
                plan.rows -= 1;
            } else {
                d += 1;
            }
        }
    }
    let together = shared == Rows::Matching && plan.dependent && same_rows(&plan);
    let partners = if together { Partners::All } else { Partners::None };
    if fits_scratch(k, &plan, scratch) {
        collapse_rows(k, &mut plan, partners);
        fit_scratch(k, &mut plan, scratch, FirstChoice::Share);
        return plan;
    }
    let attempts = [
        (partners, FirstChoice::Share),
        // An intermediate that leaves scratch needs readers over the same dimensions.
        (Partners::Equal, FirstChoice::Share),
        (Partners::Equal, FirstChoice::Rematerialise),
    ];
    let mut best = None;
    for (partners, choice) in attempts {
        let (mut kernel, mut tried) = (k.clone(), plan.clone());
        collapse_rows(&mut kernel, &mut tried, partners);
        if fit_scratch(&mut kernel, &mut tried, scratch, choice) {
            best = Some((kernel, tried));
            break;
        }
        best.get_or_insert((kernel, tried));
    }
    if let Some((kernel, tried)) = best {
        (*k, plan) = (kernel, tried);
    }
    plan
}

/// The nests whose dimensions within a row collapse together with a nest's.
#[derive(Clone, Copy)]
enum Partners {
    /// None: each nest collapses as far as its own accesses allow.
    None,
    /// Those over the same dimensions.
    Equal,
    /// All that iterate within a row.
    All,
}

/// Collapses the dimensions within a row as far as possible, then splits those of blocked layouts.
fn collapse_rows(k: &mut Kernel, plan: &mut NestPlan, partners: Partners) {
    let rows = plan.rows;
    for n in 0..plan.nests.len() {
        let mut d = rows;
        while d + 1 < plan.nests[n].extents.len() {
            let own = &plan.nests[n].extents[rows..];
            let together = |m: &usize| match partners {
                Partners::None => *m == n,
                Partners::Equal => plan.nests[*m].extents[rows..] == *own,
                Partners::All => plan.nests[*m].extents.len() > rows,
            };
            let merged: Vec<usize> = (0..plan.nests.len()).filter(together).collect();
            if merged.iter().all(|m| collapsible(k, &plan.nests[*m], d)) {
                merged.iter().for_each(|m| collapse(k, &mut plan.nests[*m], d));
            } else {
                d += 1;
            }
        }
    }
    plan.nests.iter_mut().for_each(|n| split(k, n, rows));
}

/// Whether all nests that iterate within a row do so over the same sizes.
fn same_rows(plan: &NestPlan) -> bool {
    let mut all = plan.nests.iter().map(|n| &n.extents[plan.rows..]).filter(|row| !row.is_empty());
    all.next().is_some_and(|row| all.all(|r| r == row))
}

impl Stage {
    /// All its loads at affine addresses.
    pub fn reads(&self) -> impl Iterator<Item = &Access> {
        let loads = self
            .outputs
            .iter()
            .filter_map(|o| if let Init::Load(a) = &o.init { Some(a) } else { None });
        self.inputs.iter().chain(loads)
    }
    /// Whether it loads from a buffer, at affine addresses or others.
    pub fn reads_buffer(&self, b: usize) -> bool {
        self.reads().any(|r| r.buffer == b) || self.captured.contains(&b)
    }
    /// All its loads and stores at affine addresses, to modify them.
    pub fn all_accesses(&mut self) -> impl Iterator<Item = &mut Access> {
        let outs = self.outputs.iter_mut().flat_map(|o| {
            let init = if let Init::Load(a) = &mut o.init { Some(a) } else { None };
            [Some(&mut o.access), init].into_iter().flatten()
        });
        self.inputs.iter_mut().chain(outs)
    }
    /// Rewrites its iteration space to new loop dimensions.
    pub fn substitute(&mut self, extents: &[Poly], f: &dyn Fn(usize) -> LinearExpr) {
        self.all_accesses().for_each(|a| a.at = a.at.substitute(extents, f));
        self.dims.iter_mut().for_each(|l| *l = l.substitute(extents, f));
    }
}

/// Drops dimensions of extent 1. A reduction keeps one dimension that it reduces, since it
/// accumulates onto its initial value; contractions keep all, by which strategies recognise them.
pub fn drop_units(s: &mut Stage) {
    while let Some(d) =
        (0..s.extents.len()).find(|d| s.extents[*d].known() == Some(1) && can_drop(s, *d))
    {
        s.extents.remove(d);
        s.reduction.remove(d);
        let extents = s.extents.clone();
        s.substitute(&extents, &|x| {
            if x == d {
                LinearExpr::default()
            } else {
                LinearExpr::dim(if x > d { x - 1 } else { x })
            }
        });
    }
}

fn can_drop(s: &Stage, d: usize) -> bool {
    let reduces = || s.reduction.iter().filter(|r| **r).count();
    !s.reduction[d] || reduces() > 1 && s.structure.is_none()
}

/// Whether stage `i` can be fused into a nest, after its stages.
fn fits(k: &Kernel, nest: &Nest, i: usize) -> bool {
    let s = &k.stages[i];
    let reduces = |s: &Stage| s.reduction.contains(&true);
    if s.extents != nest.extents
        || (reduces(s) && nest.reduction.contains(&true) && s.reduction != nest.reduction)
    {
        return false;
    }
    nest.stages.iter().flat_map(|n| &k.stages[*n].outputs).all(|o| {
        let b = o.access.buffer;
        let passed = s.reads().filter(|r| r.buffer == b).all(|r| !o.reduces && r.at == o.access.at);
        passed && !s.captured.contains(&b) && s.outputs.iter().all(|p| p.access.buffer != b)
    })
}

/// Whether stage `i` can run before the nest's epilogue stages: there are none, or it contracts
/// with an operand that the nest contracts too, and does not depend on them.
fn fits_before_epilogue(k: &Kernel, nest: &Nest, i: usize) -> bool {
    let s = &k.stages[i];
    let products = |s: &Stage| s.contraction().is_some();
    let shared = || {
        nest.stages
            .iter()
            .map(|n| &k.stages[*n])
            .any(|n| products(n) && n.inputs.first() == s.inputs.first())
    };
    let apart = |o: &Output| {
        s.reads().all(|r| r.buffer != o.access.buffer)
            && s.outputs.iter().all(|p| p.access.buffer != o.access.buffer)
    };
    nest.after.is_empty()
        || products(s)
            && shared()
            && nest.after.iter().flat_map(|n| &k.stages[*n].outputs).all(apart)
}

/// Whether a later stage reads what is computed from stage `i` and what a nest computes.
fn meet(k: &Kernel, nest: &Nest, i: usize) -> bool {
    let written =
        |s: usize| k.stages[s].outputs.iter().map(|o| o.access.buffer).collect::<Vec<_>>();
    let mut from = written(i);
    let own: Vec<usize> = nest.all().flat_map(written).collect();
    (i + 1..k.stages.len()).any(|s| {
        let reads = |all: &[usize]| all.iter().any(|b| k.stages[s].reads_buffer(*b));
        let derived = reads(&from);
        if derived {
            from.extend(written(s));
        }
        derived && reads(&own)
    })
}

/// Whether a stage writes every element of the output's buffer, so that later writes to it
/// overwrite parts.
fn covers(k: &Kernel, stage: usize, o: &Output) -> bool {
    let s = &k.stages[stage];
    let parallel: Vec<Poly> =
        (0..s.extents.len()).filter(|d| !s.reduction[*d]).map(|d| s.extents[d].clone()).collect();
    matches!(s.body, Body::Fill(_))
        || Poly::product(&parallel) == Poly::product(&k.buffers[o.access.buffer].sizes)
}

fn dependent(k: &Kernel, nests: &[Nest]) -> bool {
    let mut written: Vec<(usize, bool)> = vec![];
    for n in nests {
        let reads = |b: usize| n.all().any(|s| k.stages[s].reads_buffer(b));
        let overlaps =
            |b: usize, filled: bool| writers(k, n).any(|o| o.access.buffer == b && filled);
        if written.iter().any(|(b, filled)| reads(*b) || overlaps(*b, *filled)) {
            return true;
        }
        for s in n.all() {
            written.extend(k.stages[s].outputs.iter().map(|o| (o.access.buffer, covers(k, s, o))));
        }
    }
    false
}

/// Whether a row of the first `rows` dimensions depends on the same row of other nests only.
fn rows_fit(k: &Kernel, plan: &NestPlan, rows: usize) -> bool {
    let Some(first) = plan.nests.first() else { return false };
    if plan.nests.iter().any(|n| n.extents[..rows] != first.extents[..rows]) {
        return false;
    }
    let key = |at: &LinearExpr| -> Option<(Vec<Poly>, bool)> {
        let coefficients: Vec<Poly> = (0..rows).map(|d| at.coefficient(d)).collect();
        (!(0..rows).any(|d| at.in_division(d))).then_some((coefficients, at.divisions.is_empty()))
    };
    for n in &plan.nests {
        for o in writers(k, n) {
            let b = o.access.buffer;
            let Some(mine) = key(&o.access.at) else { return false };
            // Several threads would write a row that does not appear in the address.
            if mine.0.iter().any(Poly::is_zero) {
                return false;
            }
            for s in &k.stages {
                if s.captured.contains(&b) && rows > 0 {
                    return false;
                }
                let others =
                    s.reads().chain(s.outputs.iter().map(|p| &p.access)).filter(|a| a.buffer == b);
                for a in others {
                    let overlapping = (0..k.stages.len()).any(|s| {
                        k.stages[s].outputs.iter().any(|p| p.access.buffer == b && covers(k, s, p))
                    });
                    let same_start = a.at.constant == o.access.at.constant
                        || (overlapping && k.buffers[b].role != Role::Temporary);
                    if rows > 0 && (key(&a.at).is_none_or(|x| x.0 != mine.0) || !same_start) {
                        return false;
                    }
                }
            }
        }
    }
    true
}

/// Whether dimensions `d` and `d + 1` can be collapsed in all accesses of the nest.
fn collapsible(k: &Kernel, nest: &Nest, d: usize) -> bool {
    let inner = &nest.extents[d + 1];
    nest.all().all(|i| {
        let mut s = k.stages[i].clone();
        let asked: Vec<LinearExpr> =
            s.indexed.iter().filter_map(|i| s.dims.get(*i).cloned()).collect();
        let kinds =
            s.reduction[d] == s.reduction[d + 1] && nest.reduction[d] == nest.reduction[d + 1];
        let fits = s.all_accesses().all(|Access { at, .. }| {
            !at.in_division(d)
                && !at.in_division(d + 1)
                && at.coefficient(d) == at.coefficient(d + 1).times(inner)
        });
        kinds && fits && !asked.iter().any(|l| l.uses(d) || l.uses(d + 1))
    })
}

fn collapse(k: &mut Kernel, nest: &mut Nest, d: usize) {
    nest.extents[d] = nest.extents[d].times(&nest.extents[d + 1]);
    nest.extents.remove(d + 1);
    nest.reduction.remove(d + 1);
    for i in nest.all().collect::<Vec<_>>() {
        let s = &mut k.stages[i];
        s.extents = nest.extents.clone();
        s.reduction.remove(d + 1);
        s.substitute(&nest.extents, &|x| match x {
            x if x < d => LinearExpr::dim(x),
            x if x == d => LinearExpr::default(),
            x => LinearExpr::dim(x - 1),
        });
    }
}

/// Whether a nest has a stage that contracts.
pub fn contracts(k: &Kernel, nest: &Nest) -> bool {
    nest.all().any(|s| k.stages[s].contraction().is_some())
}

/// The first parallel dimension from `from` on that an access divides, as blocked layouts are read.
/// Blocks of a few elements are groups of a convolution, by which both operands divide it.
fn blocked(k: &Kernel, nest: &Nest, from: usize) -> Option<Division> {
    let divides = |a: &Access, d: usize, by: i64| {
        a.at.divisions.iter().any(|(r, _)| r.divisor == by && r.dividend.as_dim() == Some(d))
    };
    let grouped = |d: usize, by: i64| {
        nest.all().any(|s| {
            let s = &k.stages[s];
            s.contraction().is_some() && s.inputs.iter().all(|a| divides(a, d, by))
        })
    };
    first(k, nest, &|nest, at| {
        at.divisions.iter().find_map(|(r, _)| {
            let parallel = |d: &usize| *d >= from && !nest.reduction[*d];
            let wide = |d: usize| r.divisor >= 8 || grouped(d, r.divisor);
            let d = r.dividend.as_dim().filter(|d| parallel(d) && wide(*d))?;
            Some((d, r.divisor, nest.extents[d].known()?))
        })
    })
}

/// Splits the dimensions of a blocked layout, such as weights as `[N/32, K, 32]` or `[N/32, K/2,
/// 32, 2]`, so that no division is left. Rows, the dimensions before `rows`, stay as other nests
/// have them.
fn split(k: &mut Kernel, nest: &mut Nest, rows: usize) {
    // Rows in pairs: quotient and remainder of a reduction's index by 2.
    let half = |at: &LinearExpr, modulo: bool| {
        at.divisions
            .iter()
            .find_map(|(r, _)| r.dividend.as_dim().filter(|_| r.divisor == 2 && r.modulo == modulo))
    };
    let paired = |nest: &Nest, at: &LinearExpr| {
        let d = half(at, false).filter(|d| Some(*d) == half(at, true) && nest.reduction[*d])?;
        Some((d, 2, nest.extents[d].known().filter(|n| n % 2 == 0)?))
    };
    if let Some((d, by, _)) = first(k, nest, &paired) {
        split_at(k, nest, d, by);
    }
    if let Some((d, by, size)) = blocked(k, nest, rows) {
        split_at(k, nest, d, by);
        nest.split = (size % by != 0).then(|| (d, d + 1, Poly::number(size)));
    }
}

/// A dimension, its divisor, and its extent.
type Division = (usize, i64, i64);

fn first(
    k: &Kernel,
    nest: &Nest,
    find: &dyn Fn(&Nest, &LinearExpr) -> Option<Division>,
) -> Option<Division> {
    nest.all().flat_map(|s| k.stages[s].reads()).find_map(|a| find(nest, &a.at))
}

/// Splits a dimension in two, the inner one of extent `by`.
fn split_at(k: &mut Kernel, nest: &mut Nest, d: usize, by: i64) {
    let (size, reduces) = (nest.extents[d].known().unwrap_or_default(), nest.reduction[d]);
    nest.extents[d] = Poly::number((size + by - 1) / by);
    nest.extents.insert(d + 1, Poly::number(by));
    nest.reduction.insert(d + 1, reduces);
    for i in nest.all().collect::<Vec<_>>() {
        let s = &mut k.stages[i];
        s.extents = nest.extents.clone();
        let reduces = s.reduction[d];
        s.reduction.insert(d + 1, reduces);
        s.substitute(&nest.extents, &|x| match x {
            x if x < d => LinearExpr::dim(x),
            x if x == d => {
                LinearExpr::dim(d).times(&Poly::number(by)).plus(&LinearExpr::dim(d + 1))
            }
            x => LinearExpr::dim(x + 1),
        });
    }
}

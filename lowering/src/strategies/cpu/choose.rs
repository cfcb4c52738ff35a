//! What a schedule says, and how it is chosen.
use crate::strategies::cpu::blocked_gemm::product;
use crate::{
    analysis::{Kernel, Nest, Plan, Poly},
    math::expand_math::ACCURACY,
    strategies::cpu::{
        blocked_gemm::{Bf16, Unit, blocked},
        common::cache_lines::{in_lines, whole_lines},
        contraction::{self, contract, transposition},
    },
};
use kiln_dialects::{ir::*, value::DType};

/// The parameters of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// `loops`, `rows`, `reduce`, `contract`, `blocked`, `dot`, `amx`, `attention`, `transpose` or
    /// `scalar`.
    pub strategy: String,
    /// Parameters in order of their names.
    pub parameters: Vec<(String, i64)>,
}

impl Schedule {
    /// From the attribute on a function.
    pub fn of(func: Op) -> Result<Schedule, String> {
        Schedule::read(func, &Self::names)
    }
    /// From the attribute on a function, given the parameters of each strategy.
    pub fn read(
        func: Op,
        names: &dyn Fn(&str) -> Result<&'static [&'static str], String>,
    ) -> Result<Schedule, String> {
        let attr = func.attr("kiln.schedule").and_then(|a| a.as_schedule());
        let (strategy, dictionary) = attr.ok_or("has no #kiln.schedule")?;
        let names = names(&strategy)?;
        let mut parameters = vec![];
        for (name, value) in dictionary.entries().unwrap_or_default() {
            if !names.contains(&name.as_str()) {
                return Err(format!(
                    "has a schedule with parameter '{name}', but {strategy} has {}",
                    names.join(" ")
                ));
            }
            let value = value
                .as_i64()
                .filter(|v| *v >= 0)
                .ok_or_else(|| format!("has a schedule whose {name} is no size"))?;
            parameters.push((name, value));
        }
        for name in names {
            if !parameters.iter().any(|(n, _)| n == name) {
                return Err(format!("has a schedule without '{name}'"));
            }
        }
        Ok(Schedule { strategy, parameters })
    }
    /// As an attribute.
    pub fn attr(&self, c: Ctx) -> Attr {
        let entries: Vec<(&str, Attr)> =
            self.parameters.iter().map(|(n, v)| (n.as_str(), Attr::i64(c, *v))).collect();
        Attr::schedule(c, &self.strategy, &entries)
    }
    /// A parameter.
    pub fn get(&self, name: &str) -> usize {
        self.parameters.iter().find(|(n, _)| n == name).map_or(0, |(_, v)| *v as usize)
    }
    fn names(strategy: &str) -> Result<&'static [&'static str], String> {
        match strategy {
            "loops" | "reduce" => {
                Ok(&["bits", "block", "nontemporal", "prefetch", "tasks", "tile", "unroll"])
            }
            "rows" => Ok(&["bits", "block", "unroll"]),
            "scalar" => Ok(&["block"]),
            "contract" => Ok(&["bits", "m", "m_block", "n", "n_block", "pack"]),
            s if Unit::of(s).is_some() => {
                Ok(&["bits", "k_block", "m", "m_block", "n", "n_block", "pack"])
            }
            "attention" => Ok(&["bits", "columns", "keys", "keys_block", "n"]),
            "transpose" => Ok(&["bits", "m", "m_block", "n", "n_block", "nontemporal", "prefetch"]),
            _ => Err(format!(
                "has schedule '{strategy}', which is none of loops rows reduce contract blocked dot amx attention transpose scalar"
            )),
        }
    }
}

/// How many iterations a vector of `bits` holds: as many as of the widest element that is computed
/// with.
pub fn lanes(k: &Kernel, nest: &Nest, bits: usize) -> usize {
    let mut widest = 8;
    let mut see = |t: Type| {
        let t = t.element().unwrap_or(t);
        if let Ok(d) = t.dtype() {
            widest = widest.max(d.byte_size() * 8 * usize::from(d != DType::I1));
        }
    };
    for s in nest.all().filter_map(|s| k.stages.get(s)) {
        s.reads()
            .chain(s.outputs.iter().map(|o| &o.access))
            .filter_map(|a| k.buffers.get(a.buffer))
            .for_each(|b| see(b.element));
        let inner = walk(s.op);
        inner.iter().filter(|o| **o != s.op).flat_map(|o| o.results()).for_each(|r| see(r.ty()));
    }
    (bits / widest).max(1)
}

/// The dimension that goes into vectors: the one along which most is contiguous.
pub fn vector_dim(k: &Kernel, plan: &Plan, nest: &Nest, from: usize) -> Option<usize> {
    let cost = |d: usize| -> Option<i64> {
        let extent = nest.extents.get(d)?.known();
        let mut sum = match extent {
            Some(n) if n < 2 => return None,
            Some(n) if n < 4 => 40,
            Some(n) if n < 8 => 6,
            _ => 0,
        };
        let step = |at: &crate::analysis::Lin| match at.coefficient(d).known() {
            _ if at.in_rest(d) => 12,
            Some(0 | 1) => 0,
            _ => 8,
        };
        for s in nest.all().filter_map(|s| k.stages.get(s)) {
            if nest.reduction[d] {
                if !s.combines() {
                    return None;
                }
                sum += 1;
            }
            let real = |b: usize| !plan.passed.get(b).copied().unwrap_or(false);
            sum += s.reads().filter(|a| real(a.buffer)).map(|a| step(&a.at)).sum::<i64>();
            sum += s
                .outputs
                .iter()
                .filter(|o| real(o.access.buffer))
                .map(|o| 2 * step(&o.access.at))
                .sum::<i64>();
        }
        Some(sum)
    };
    (from..nest.extents.len())
        .rev()
        .filter_map(|d| Some((cost(d)?, d)))
        .min_by_key(|(c, _)| *c)
        .map(|(_, d)| d)
}

/// What the machine is like.
pub struct Machine {
    /// Bits of a vector.
    pub bits: i64,
    /// Threads to have tasks for.
    pub threads: i64,
    /// Bytes of the second level cache.
    pub l2: i64,
    /// Bytes of the last level cache that a kernel may count on.
    pub l3: i64,
    /// What multiplies bf16.
    pub bf16: Bf16,
}

/// Work that one task should at least have, in elements.
const LEAST: i64 = 16384;
/// How many bytes ahead a stream is asked for: the best of 256 to 16384 for gelu(a b + c)
/// sigmoid(d) of 16 M f32 on a Zen 4, of which it takes an eighth of the time.
const PREFETCH: i64 = 2048;

/// The schedule of a kernel.
pub fn choose(k: &Kernel, plan: &Plan, m: &Machine) -> Schedule {
    let make = |strategy: &str, parameters: &[(&str, i64)]| Schedule {
        strategy: strategy.into(),
        parameters: parameters.iter().map(|(n, v)| (n.to_string(), *v)).collect(),
    };
    let work = |n: &Nest| Poly::product(&n.extents).known();
    let short =
        plan.nests.iter().all(|n| n.all().map(|s| walk(k.stages[s].op).len()).sum::<usize>() < 16);
    if plan.dependent {
        let per_row: Option<i64> =
            plan.nests.iter().map(|n| Poly::product(&n.extents[plan.rows..]).known()).sum();
        let block = per_row.map_or(1, |w| (LEAST / w.max(1)).clamp(1, 1024));
        return make(
            "rows",
            &[("bits", m.bits), ("block", block), ("unroll", if short { 4 } else { 2 })],
        );
    }
    if let Some((unit, sizes)) = product(k, plan).and_then(|p| blocked(k, plan, &p, m)) {
        return make(unit.strategy(), &sizes);
    }
    if let Some(roles) = contraction::contraction(k, plan, m.bits as usize) {
        return make("contract", &contract(&plan.nests[0], &roles, m));
    }
    let reduces = plan.nests.iter().any(|n| n.reduction.contains(&true));
    let written = |n: &Nest| {
        n.all()
            .flat_map(|s| &k.stages[s].outputs)
            .filter_map(|o| {
                let b = k.buffers.get(o.access.buffer)?;
                Some(Poly::product(&b.sizes).known()? * b.element.dtype().ok()?.byte_size() as i64)
            })
            .sum::<i64>()
    };
    let streams = |n: &Nest| written(n) > m.l2 + m.l3 && in_lines(k, plan, n, m.bits as usize);
    // Borders of what is padded may be written beside.
    let fills =
        |n: &Nest| n.all().filter_map(|s| k.stages.get(s)).all(|s| s.reads().next().is_none());
    let turns = |n: &Nest| transposition(k, plan, n, m.bits as usize).is_some();
    if plan.nests.iter().any(turns) && plan.nests.iter().all(|n| turns(n) || fills(n)) {
        let past =
            plan.nests.iter().any(|n| streams(n) && whole_lines(k, n, m.bits as usize)) as i64;
        return make(
            "transpose",
            &[
                ("bits", m.bits),
                ("m", 4),
                ("m_block", 64),
                ("n", 1),
                ("n_block", 1024),
                ("nontemporal", past),
                ("prefetch", 0),
            ],
        );
    }
    let streams = !reduces && plan.nests.iter().any(streams);
    // With several functions an iteration is so long that the processor does not see the reads of
    // the next ones; with fewer, asking for them takes more than it gives.
    let function = |o: &Op| ACCURACY.iter().any(|(name, ..)| o.is(name));
    let functions = |n: &Nest| {
        n.all().map(|s| walk(k.stages[s].op).into_iter().filter(function).count()).sum::<usize>()
    };
    let long = plan.nests.iter().any(|n| functions(n) > 1);
    let prefetch = if streams && long { PREFETCH } else { 0 };
    // All parallel dimensions but the vector one make tasks; long vectors are tiles.
    let (mut tasks, mut tile, mut block) = (0, 0, 1);
    for n in &plan.nests {
        let v = vector_dim(k, plan, n, 0);
        let outer: Vec<usize> =
            (0..n.extents.len()).filter(|d| !n.reduction[*d] && Some(*d) != v).collect();
        let inner = v.filter(|v| !n.reduction[*v]);
        tasks = tasks.max(outer.len() as i64);
        let total: Option<i64> = work(n);
        let count = Poly::product(outer.iter().map(|d| &n.extents[*d])).known();
        let length = inner.and_then(|v| n.extents[v].known());
        if inner.is_some() {
            let reduced = Poly::product(
                (0..n.extents.len()).filter(|d| n.reduction[*d]).map(|d| &n.extents[d]),
            )
            .known()
            .unwrap_or(64);
            let wanted = (LEAST / reduced.max(1)).max(64);
            tile = if length.is_some_and(|l| l <= wanted) { 0 } else { wanted / 64 * 64 };
        }
        let per_task = match (total, count) {
            (Some(t), Some(c)) => t / c.max(1),
            _ => length.unwrap_or(1024),
        };
        if tile == 0 || !outer.is_empty() {
            block = (LEAST / per_task.clamp(1, LEAST)).max(1);
        }
    }
    let unroll = if short { 4 } else { 2 };
    let strategy = if reduces { "reduce" } else { "loops" };
    make(
        strategy,
        &[
            ("bits", m.bits),
            ("block", block),
            ("nontemporal", streams as i64),
            ("prefetch", prefetch),
            ("tasks", tasks),
            ("tile", tile),
            ("unroll", unroll),
        ],
    )
}

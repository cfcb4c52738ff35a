//! `kiln-gpu-schedule`: says on each kernel how a GPU computes it, with how many threads and
//! blocks.
//!
//! Why: as `kiln-schedule` for the host. Strategies: `loops` (a thread per group of elements,
//! reductions within a thread), `registers` (stages that share rows, which a group of threads keeps
//! from the first stage to the last), `rows` (the same for rows that are too long or of open size,
//! read again by each stage), `reduce` (a group of threads per result), `columns` (results side by
//! side in memory, threads share what each of them sums), `contract` (tiles of a matmul or
//! convolution in shared memory), `fma` (products of f32 whose addresses are linear: the next tiles
//! are copied to a ring of `stages` meanwhile; `unroll` positions in depth are written out, so that
//! one is read while another is multiplied, and `resident` blocks share a multiprocessor),
//! `transpose` (what is read along another dimension than results are written: tiles of `down` by
//! `over` elements in shared memory), `scan` (cumulative sums, products and extremes: threads
//! `across` share a row or a column of which they have `pieces` each, and go on with what came
//! before; `beside` of these groups are a block), `depthwise` (convolutions of each channel by
//! itself, with channels last: a thread takes neighbours `across` in width), `wgmma` (products and
//! convolutions of bf16 or f16 on the tensor cores of sm_90a: with `tensor-cores`, where the copy
//! engine can read both operands; else they are `contract`; of f32 too where rounding to tf32 is
//! allowed): tiles of `m` by `n` in a ring of `stages`, blocks that stay `resident` on a
//! multiprocessor; or `parts` of a cluster share the depth of each tile, `mma` (the same,
//! convolutions as well, with the instructions of a warp, on older chips), `few` (products of bf16
//! or f16 with few rows, whose matrix goes from memory to the tensor cores by registers: a block
//! has so many of its `rows`, and its `warps` share the depth), `attention` (there too: scores stay
//! in registers), `split_attention` (of few queries, and on older chips of any: `warps` of a block,
//! and on sm_90a `parts` of a cluster, share the keys). The left operand of a product of `wgmma` or
//! `mma` may be computed of what lies in memory, as `kiln-prologues` says: then each warp runs that
//! on its registers. A kernel with `kiln.library` is also a library's product or convolution, which
//! has to be exactly that; here it is said which. The number of blocks is an affine map over the
//! kernel's sizes; every number is right, since threads go on until all is done.
//!
//! Numerics: exact; nothing is computed differently yet.
//!
//! ```text
//! before:  func.func @k0(…)
//! after:   func.func @k0(…) attributes {kiln.grid = affine_map<()[s0] -> (s0 ceildiv 1024)>, kiln.threads = 256,
//!                                       kiln.schedule = #kiln.schedule<"loops", {threads = 256, vector = 4}>}
//! ```
use crate::{
    analysis::{self, Kernel, Plan, kernels_of},
    strategies::{
        cpu::choose::Schedule,
        gpu::{
            attention, choose, common::grid, library, mma_gemm, register_rows, scan, simt_gemm,
            split_attention, transpose, wgmma_gemm,
        },
    },
    target::{
        Chip,
        launch::{
            CLUSTER, GRID, PERSISTENT, RESIDENT, SHARED, SHARED_BYTES, TENSOR_MAPS, THREADS, WARP,
        },
    },
};
use kiln_dialects::{ir::*, rules::Level};
use kiln_passes::{Failure, Numerics, Pass};

/// What a size of a product is taken for if it depends on the call.
pub const USUAL: i64 = 2048;

/// On a kernel: why what it has of a long scan is no walk.
pub const NO_SCAN: &str = "kiln.no_scan";

/// How many pieces of a length cover all; lengths may be as large as numbers are.
pub(crate) fn up(length: i64, piece: usize) -> i64 {
    length / piece as i64 + i64::from(length % piece as i64 != 0)
}

kiln_passes::pass_options! {
    /// The pass.
    pub struct GpuSchedule {
        /// Most threads of a block that computes elements one by one
        pub threads: i64 = 256,
        /// The chip: sm_80, sm_86, sm_89 or sm_90a
        pub chip: String = "sm_90a".into(),
        /// Whether products of bf16 and f16 go to the tensor cores by themselves; a schedule that
        /// says so always does
        pub tensor_cores: bool = true,
        /// Whether products of f32 do so too, with factors rounded to tf32; a schedule that says so
        /// always does
        pub tf32: bool = false,
    }
}

impl Pass for GpuSchedule {
    const FLAG: &'static str = "kiln-gpu-schedule";
    const SUMMARY: &'static str =
        "Chooses how a GPU computes each kernel: #kiln.schedule, threads of a block, blocks";
    const LEVELS: &'static [Level] = &[Level::Linalg];
    const LOWERS_TO: Option<Level> = Some(Level::Scheduled);
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<(), Failure> {
        if ![32, 64, 128, 256, 512, 1024].contains(&self.threads) {
            return Err(
                format!("threads is a power of two from 32 to 1024, not {}", self.threads).into()
            );
        }
        if !Chip::ALL.iter().any(|c| c.name() == self.chip) {
            return Err(format!("chip is sm_80, sm_86, sm_89 or sm_90a, not {}", self.chip).into());
        }
        let wgmma = self.chip == Chip::Sm90a.name();
        for func in kernels_of(root) {
            if attention::schedule(func, self.tensor_cores, wgmma)
                .map_err(|e| Failure::at(func, e))?
            {
                continue;
            }
            if func.attr("kiln.schedule").is_none() {
                func.set_attr("kiln.schedule", self.choose(func)?.attr(func.ctx()));
            }
            let schedule = of(func).map_err(|e| Failure::at(func, e))?;
            let threads = threads(&schedule).map_err(|e| Failure::at(func, e))?;
            let (k, plan) = planned(func, &schedule.strategy)?;
            let grid = grid::grid(&k, &plan, &schedule).map_err(|e| Failure::at(func, e))?;
            func.set_attr(THREADS, Attr::i64(func.ctx(), threads as i64));
            func.set_attr(GRID, grid);
            library::describe(&k, &plan, self.tf32).map_err(|e| Failure::at(func, e))?;
            if schedule.strategy == "registers"
                && func.attr(RESIDENT).is_none()
                && register_rows::resident(&schedule, threads) > 1
            {
                func.set_attr(
                    RESIDENT,
                    Attr::i64(func.ctx(), register_rows::resident(&schedule, threads) as i64),
                );
            }
            if schedule.strategy == "mma" {
                func.set_attr(
                    SHARED_BYTES,
                    Attr::i64(func.ctx(), mma_gemm::shared(&schedule) as i64),
                );
            }
            if schedule.strategy == "fma" {
                func.set_attr(
                    SHARED_BYTES,
                    Attr::i64(func.ctx(), simt_gemm::shared(&schedule) as i64),
                );
                func.set_attr(
                    RESIDENT,
                    Attr::i64(func.ctx(), schedule.get("resident").max(1) as i64),
                );
            }
            if schedule.strategy == "wgmma" {
                let fail = |e: String| Failure::at(func, e);
                let missing = || {
                    fail("has a schedule for the tensor cores, but is no product that they and the copy engine can do".into())
                };
                let (nest, product) = plan
                    .nests
                    .first()
                    .zip(wgmma_gemm::product(&k, &plan).filter(|_| wgmma))
                    .ok_or_else(missing)?;
                wgmma_gemm::fits(&schedule, nest, &product).map_err(fail)?;
                if schedule.get("parts") > 1 {
                    func.set_attr(CLUSTER, Attr::i64(func.ctx(), schedule.get("parts") as i64));
                }
                func.set_attr(
                    TENSOR_MAPS,
                    wgmma_gemm::tensor_maps::maps(&k, nest, &product, &schedule).map_err(fail)?,
                );
                func.set_attr(
                    SHARED_BYTES,
                    Attr::i64(func.ctx(), wgmma_gemm::shared(&schedule, product.slabs()) as i64),
                );
                if schedule.get("resident") > 0 {
                    // Room for as many as are launched.
                    for name in [RESIDENT, PERSISTENT] {
                        func.set_attr(name, Attr::i64(func.ctx(), schedule.get("resident") as i64));
                    }
                }
            }
        }
        root.set_attr("kiln.level", Attr::string(root.ctx(), Level::Scheduled.name()));
        Ok(())
    }
}

impl GpuSchedule {
    fn choose(&self, func: Op) -> Result<Schedule, Failure> {
        let k = analysis::read(func)?;
        let refused = scan::refused(&k);
        if let Some(schedule) = scan::walk(k).and_then(|(k, plan)| scan::choose(&k, &plan)) {
            return Ok(schedule);
        }
        if let Some(why) = refused {
            func.set_attr(NO_SCAN, Attr::string(func.ctx(), &why));
        }
        let (k, plan) = planned(func, "registers")?;
        if let Some(schedule) = register_rows::choose(&k, &plan) {
            return Ok(schedule);
        }
        let (k, plan) = planned(func, "")?;
        let chosen = match (self.tensor_cores, plan.nests.first()) {
            (true, Some(nest)) if !plan.dependent => {
                choose::product(&k, &plan, nest, self.chip == Chip::Sm90a.name(), self.tf32)
            }
            _ => None,
        };
        Ok(chosen.unwrap_or_else(|| choose::choose(&k, &plan, self.threads)))
    }
}

/// A kernel and its nests as a strategy takes them: rows in registers need no memory for what they
/// pass on, and an attention is one, as is a scan with what is around it.
pub fn planned(func: Op, strategy: &str) -> Result<(Kernel, Plan), Failure> {
    let mut k = analysis::read(func)?;
    if strategy == "scan" {
        return scan::walk(k)
            .ok_or_else(|| Failure::at(func, "has a schedule for scans, but is none"));
    }
    if ["attention", "split_attention"].contains(&strategy) {
        let plan = Plan::whole(&k);
        return Ok((k, plan));
    }
    let registers = strategy == "registers";
    let mut plan = analysis::nests(&mut k, if registers { i64::MAX } else { SHARED });
    if registers {
        register_rows::hold(&k, &mut plan);
    }
    Ok((k, plan))
}

/// The schedule on a function.
pub fn of(func: Op) -> Result<Schedule, String> {
    Schedule::read(func, &|strategy| match strategy {
        "loops" => Ok(&["threads", "vector"]),
        "rows" | "reduce" | "registers" => Ok(&["group", "groups", "pieces", "vector"]),
        "columns" => Ok(&["columns", "parts", "pieces", "vector"]),
        "depthwise" => Ok(&["across", "threads", "vector"]),
        "scan" => Ok(&["across", "ahead", "beside", "pieces", "vector"]),
        "transpose" => Ok(&["down", "over", "threads", "vector"]),
        "contract" => Ok(&["depth", "m", "m_each", "n", "n_each"]),
        "few" => Ok(&["pieces", "rows", "warps"]),
        "fma" => Ok(&["depth", "m", "m_each", "n", "n_each", "resident", "stages", "unroll"]),
        "mma" => Ok(&["m", "n", "stages"]),
        "wgmma" => Ok(&["k", "m", "n", "parts", "resident", "stages"]),
        "attention" => Ok(&["blocks", "groups", "keys", "queries", "stages"]),
        "split_attention" => Ok(&["keys", "parts", "rows", "warps"]),
        _ => Err(format!(
            "has schedule '{strategy}', which is none of loops rows registers reduce columns scan transpose depthwise contract few fma mma \
             wgmma attention split_attention"
        )),
    })
}

/// Threads of a block.
pub fn threads(s: &Schedule) -> Result<usize, String> {
    if ["rows", "reduce", "registers", "columns", "few"].contains(&s.strategy.as_str())
        && !(1..=64).contains(&s.get("pieces"))
    {
        return Err(format!("has a schedule whose pieces are {}, not 1 to 64", s.get("pieces")));
    }
    if s.strategy == "depthwise" && !(1..=16).contains(&s.get("across")) {
        return Err(format!("has a schedule whose across is {}, not 1 to 16", s.get("across")));
    }
    let power = |name: &str, least: usize, most: usize| {
        let n = s.get(name);
        let fits = n.is_power_of_two() && (least..=most).contains(&n);
        if fits {
            Ok(n)
        } else {
            Err(format!(
                "has a schedule whose {name} is {n}, not a power of two from {least} to {most}"
            ))
        }
    };
    match s.strategy.as_str() {
        "wgmma" => return wgmma_gemm::threads(s),
        "mma" => return mma_gemm::threads(s),
        "fma" => return simt_gemm::threads(s),
        "scan" => return scan::threads(s),
        "attention" => return attention::threads(s),
        "split_attention" => return split_attention::threads(s),
        _ => {}
    }
    if !["contract", "few"].contains(&s.strategy.as_str()) {
        power("vector", 1, 16)?;
    }
    let all = match s.strategy.as_str() {
        "transpose" => {
            let (least, most) = transpose::SIZES;
            power("down", least, most)?;
            power("over", least, most)?;
            power("threads", 32, 1024)?
        }
        "loops" | "depthwise" => power("threads", 32, 1024)?,
        "rows" | "reduce" => power("group", 32, 1024)? * power("groups", 1, 32)?,
        "registers" => power("group", 1, 1024)? * power("groups", 1, 1024)?,
        "columns" => power("columns", 1, 1024)? * power("parts", 1, 1024)?,
        "few" => power("rows", 16, 64).and_then(|_| Ok(WARP * power("warps", 1, 32)?))?,
        _ => {
            let (m, n) = (power("m", 1, 256)?, power("n", 1, 256)?);
            power("depth", 1, 64)?;
            m / power("m_each", 1, m)? * (n / power("n_each", 1, n)?)
        }
    };
    if (32..=1024).contains(&all) {
        Ok(all)
    } else {
        Err(format!("has a schedule of {all} threads a block; 32 to 1024 are possible"))
    }
}

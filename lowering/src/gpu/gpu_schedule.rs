//! `kiln-gpu-schedule`: chooses a strategy, its parameters and the launch configuration of each
//! kernel on a GPU.
//!
//! Why: as `kiln-schedule` for CPUs. The strategies of `strategies/table.rs` are tried in order.
//! The one that is chosen states the launch: CTAs as an affine map over the kernel's sizes,
//! threads, clusters, shared memory, TMA descriptors, and whether a short kernel may start while the
//! one before it ends (`kiln.dependent`). An existing schedule is verified: each
//! parameter against its domain, all together against the kernel. A kernel with `kiln.library` is
//! also a cuBLASLt or cuDNN call; this pass writes the call's arguments.
//!
//! Numerics: exact; the computation does not change yet.
//!
//! ```text
//! before:  func.func @k0(…)
//! after:   func.func @k0(…) attributes {kiln.grid = affine_map<()[s0] -> (s0 ceildiv 1024)>, kiln.threads = 256,
//!                                       kiln.schedule = #kiln.schedule<"elementwise", {threads = 256, vector = 4}>}
//! ```
use crate::{
    analysis::kernels_of,
    strategies::{
        Analysis, Device, Gpu, Machine, Nesting, Request, SCHEDULE, Strategy,
        gpu::{library, skinny_gemm::SkinnyGemm, wgmma_gemm::tiles::PROCESSORS},
        table,
    },
    target::{
        Chip,
        launch::{DEPENDENT, GRID},
    },
};
use kiln_dialects::{algebra::Expr, ir::*, rules::Level};
use kiln_passes::{Numerics, Pass};

/// On a kernel: why a strategy whose pattern matches refused it, by the strategy's name.
pub const REFUSED: &str = "kiln.refused";

kiln_passes::pass_options! {
    /// The pass.
    pub struct GpuSchedule {
        /// Most threads per CTA of an elementwise kernel
        pub threads: i64 = 256,
        /// The chip: sm_80, sm_86, sm_89 or sm_90a
        pub chip: String = "sm_90a".into(),
        /// Whether bf16 and f16 products use tensor cores by default; a schedule that says so
        /// always does
        pub tensor_cores: bool = true,
        /// Whether f32 products do too, with operands rounded to tf32; a schedule that says so
        /// always does
        pub tf32: bool = false,
        /// Whether short kernels may start while the one before them ends; on sm_90a only
        pub dependent: bool = true,
    }
}

impl Pass for GpuSchedule {
    const FLAG: &'static str = "kiln-gpu-schedule";
    const SUMMARY: &'static str = "Chooses each GPU kernel's #kiln.schedule, CTA size and grid";
    const LEVELS: &'static [Level] = &[Level::Linalg];
    const LOWERS_TO: Option<Level> = Some(Level::Scheduled);
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        if ![32, 64, 128, 256, 512, 1024].contains(&self.threads) {
            return Err(
                format!("threads is a power of two from 32 to 1024, not {}", self.threads).into()
            );
        }
        let chip = Chip::ALL.into_iter().find(|c| c.name() == self.chip);
        let chip = chip
            .ok_or_else(|| format!("chip is sm_80, sm_86, sm_89 or sm_90a, not {}", self.chip))?;
        let Self { threads, tensor_cores, tf32, .. } = *self;
        let machine = Machine::Gpu(Gpu { chip, threads, tensor_cores, tf32 });
        for func in kernels_of(root) {
            let analysis = Analysis::of(func)?;
            if func.attr(SCHEDULE).is_none() {
                let (schedule, refused) = table::choose(&analysis, machine, Device::Gpu)?;
                func.set_attr(SCHEDULE, schedule);
                if !refused.is_empty() {
                    let c = func.ctx();
                    let all: Vec<_> =
                        refused.iter().map(|(name, why)| (*name, Attr::string(c, why))).collect();
                    func.set_attr(REFUSED, Attr::dictionary(c, &all));
                }
            }
            let (row, schedule) = table::scheduled(func, Device::Gpu)?;
            let nested =
                analysis.nests(row.nesting()).ok_or_else(|| Error::at(func, row.mismatch()))?;
            let request = Request { kernel: &nested.0, plan: &nested.1, machine };
            row.launch(&request, schedule)?.apply(func);
            // A position is loaded first of all, in front of a wait that the strategy places.
            let early = row.name() == SkinnyGemm::NAME && !nested.0.positions.is_empty();
            let overlaps = self.dependent && chip == Chip::Sm90a && !early;
            if overlaps && gains_by_overlap(func, row.name()) {
                func.set_attr(DEPENDENT, Attr::unit(func.ctx()));
            }
            if row.nesting().name != Nesting::NONE.name {
                library::describe(&nested.0, &nested.1, tf32).at(func)?;
            }
        }
        root.set_attr("kiln.level", Attr::string(root.ctx(), Level::Scheduled.name()));
        Ok(())
    }
}

/// Whether a kernel is worth starting while the one before it ends: one that can load weights then,
/// or that takes about as long as a launch, with at most a CTA for each SM. Others are faster with
/// `ld.global.nc`, which a dependent kernel has for constants alone.
fn gains_by_overlap(func: Op, strategy: &str) -> bool {
    let grid = func.attr(GRID).and_then(Attr::as_affine_map);
    let ctas = grid.and_then(|(_, results)| match results.first()? {
        Expr::Const(n) => Some(*n),
        _ => None,
    });
    strategy == SkinnyGemm::NAME || ctas.is_some_and(|n| n <= PROCESSORS as i64)
}

//! `kiln-schedule`: chooses a strategy and its parameters for each kernel.
//!
//! Why: the schedule is an attribute in the IR, where it can be read, edited and autotuned.
//! `lowering/src/strategies/table.rs` lists the strategies, in the order in which they are asked.
//!
//! Numerics: exact; the computation does not change yet.
//!
//! ```text
//! before:  func.func @k0(…)
//! after:   func.func @k0(…) attributes {kiln.schedule = #kiln.schedule<"rows", {bits = 512, block = 16, unroll = 4}>}
//! ```

use crate::{
    analysis::kernels_of,
    strategies::{Analysis, Bf16, Cpu, Device, Machine, SCHEDULE, table},
};
use kiln_dialects::{ir::*, rules::Level};
use kiln_passes::{Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct SchedulePass {
        /// Vector register width in bits: 512 or 256
        pub vector_bits: i64 = 512,
        /// Number of threads that the work is divided for
        pub threads: i64 = 2,
        /// Size of the L2 cache in bytes
        pub l2: i64 = 2097152,
        /// Bytes of the last-level cache that a kernel may use
        pub l3: i64 = 33554432,
        /// How bf16 is multiplied: widen (f32 FMAs), dot (AVX512-BF16) or amx
        pub bf16: String = "widen".into(),
    }
}

impl Pass for SchedulePass {
    const FLAG: &'static str = "kiln-schedule";
    const SUMMARY: &'static str = "Chooses each kernel's #kiln.schedule: a strategy and tile sizes";
    const LEVELS: &'static [Level] = &[Level::Linalg];
    const LOWERS_TO: Option<Level> = Some(Level::Scheduled);
    const REQUIRED: bool = true;
    const NUMERICS: Numerics = Numerics::Exact;

    fn run(&self, root: Op) -> Result<()> {
        if ![128, 256, 512].contains(&self.vector_bits) {
            return Err(format!("vector-bits is 128, 256 or 512, not {}", self.vector_bits).into());
        }
        let bf16 = Bf16::of(&self.bf16)
            .ok_or_else(|| format!("bf16 is widen, dot or amx, not {}", self.bf16))?;
        let machine = Machine::Cpu(Cpu {
            bits: self.vector_bits,
            threads: self.threads,
            l2: self.l2,
            l3: self.l3,
            bf16,
        });
        for func in kernels_of(root) {
            if func.attr(SCHEDULE).is_some() {
                table::scheduled(func, Device::Cpu)?;
                continue;
            }
            let (schedule, _) = table::choose(&Analysis::of(func)?, machine, Device::Cpu)?;
            func.set_attr(SCHEDULE, schedule);
        }
        root.set_attr("kiln.level", Attr::string(root.ctx(), Level::Scheduled.name()));
        Ok(())
    }
}

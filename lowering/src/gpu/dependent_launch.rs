//! `kiln-dependent-launch`: lets a kernel start while the kernel before it ends (programmatic
//! dependent launch).
//!
//! Why: between two kernels of a stream the GPU drains, launches and fills again, which takes about
//! a microsecond, as long as a short kernel. A dependent kernel is scheduled onto SMs as soon as
//! all CTAs of the one before it have started or ended. It waits with `griddepcontrol.wait` until
//! that one has ended and its writes are visible; until then it may only set up what no other
//! kernel writes. The wait is the kernel's first op, unless its strategy has put one behind a
//! prefetch. Every dependent kernel waits, so that the end of one implies the end of all before it.
//! GPUs before Hopper have no such launches.
//!
//! Numerics: exact.
//!
//! ```text
//! before:  func.func @k(…) attributes {kiln.threads = 256} { …
//! after:   func.func @k(…) attributes {kiln.dependent, kiln.threads = 256} {
//!            nvvm.griddepcontrol launch_dependents   nvvm.griddepcontrol wait   …
//! ```
use crate::{analysis::kernels_of, target::launch::DEPENDENT};
use kiln_dialects::{ir::*, rules::Level};
use kiln_passes::{Numerics, Pass};

kiln_passes::pass_options! {
    /// The pass.
    pub struct DependentLaunch {}
}

impl Pass for DependentLaunch {
    const FLAG: &'static str = "kiln-dependent-launch";
    const SUMMARY: &'static str =
        "Makes kernels wait for the kernel before them themselves, so that they start earlier";
    const LEVELS: &'static [Level] = &[Level::Tiled];
    const NUMERICS: Numerics = Numerics::Exact;
    const REQUIRED: bool = true;
    const DIALECTS: &'static [&'static str] = &["nvvm"];

    fn run(&self, root: Op) -> Result<()> {
        kernels_of(root).into_iter().filter(|f| f.attr(DEPENDENT).is_some()).try_for_each(|f| {
            let entry = f.regions().first().and_then(|r| r.first()).ok_or_at(f, "has no body")?;
            let first = *entry.ops().first().ok_or_at(f, "has an empty body")?;
            let b = Builder::before(first).ok_or_at(f, "has no entry block")?.at(f.loc());
            nvvm::griddepcontrol(b, nvvm::GridDepActionKind::LaunchDependents)?;
            if !walk(f).into_iter().any(waits) {
                nvvm::griddepcontrol(b, nvvm::GridDepActionKind::Wait)?;
            }
            Ok(())
        })
    }
}

/// Whether an op waits for the end of the kernels before this one.
fn waits(op: Op) -> bool {
    op.dyn_cast::<nvvm::Griddepcontrol>()
        .is_some_and(|op| op.kind() == Some(nvvm::GridDepActionKind::Wait))
}

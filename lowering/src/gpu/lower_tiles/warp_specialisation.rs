//! Warp specialisation: in the first warpgroup of a CTA one elected thread issues copies
//! (producer); the other warpgroups run `wgmma` (consumers).
use crate::{
    emit::code::{BranchBody, Code},
    strategies::gpu::common::{ptx::Ptx, threads},
};
use kiln_dialects::ir::*;

/// A consumer warpgroup, given its index, the thread index among its 128, and the warp index in the
/// CTA.
pub(super) type Multiplies<'a> = dyn FnMut(Code, Value, Value, Value) -> Result<()> + 'a;

/// Roles of a CTA's warps.
pub(super) struct WarpRoles<'a> {
    /// Registers of a producer and of a consumer thread (`setmaxnreg`), if they differ.
    pub(super) registers: Option<(usize, usize)>,
    /// Initialises all mbarriers.
    pub(super) barriers: &'a mut BranchBody<'a>,
    /// The producer thread.
    pub(super) copies: &'a mut BranchBody<'a>,
    /// What the producer warpgroup does after the last copy.
    pub(super) copied: Option<&'a mut BranchBody<'a>>,
    /// A consumer warpgroup.
    pub(super) multiplies: &'a mut Multiplies<'a>,
}

/// Emits all roles of a CTA.
pub(super) fn emit(c: Code, roles: WarpRoles<'_>) -> Result<()> {
    let WarpRoles { registers, barriers, copies, mut copied, multiplies } = roles;
    let p = Ptx(c);
    let thread = p.thread_id()?;
    let warp = p.warp_id(thread)?;
    let first = p.eq_const(thread, 0)?;
    c.if_else(
        first,
        &mut |c| {
            barriers(c)?;
            Ptx(c).fence_mbarrier_init()
        },
        None,
    )?;
    threads::barrier(c)?;
    let copying = p.eq_const(p.div_const(warp, 4)?, 0)?;
    let limit = |c: Code, count: Option<usize>, more: bool| {
        count.map_or(Ok(()), |n| Ptx(c).setmaxnreg(n, more))
    };
    c.if_else(
        copying,
        &mut |c| {
            limit(c, registers.map(|r| r.0), false)?;
            c.if_else(first, copies, None)?;
            copied.as_mut().map_or(Ok(()), |copied| copied(c))
        },
        Some(&mut |c| {
            limit(c, registers.map(|r| r.1), true)?;
            let p = Ptx(c);
            let group = p.sub(p.div_const(warp, 4)?, p.number(1)?)?;
            multiplies(c, group, p.rem_const(thread, 128)?, warp)
        }),
    )
}

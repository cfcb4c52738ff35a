//! Blocks whose first four warps copy, one thread of them, and whose other groups of four warps
//! multiply.
use crate::{
    emit::code::{Code, Then},
    strategies::gpu::common::{ptx::Ptx, threads},
};
use kiln_dialects::ir::*;

/// What a multiplying group does: its number, the thread's number among its 128, the warp's in the
/// block.
pub type Multiplies<'a> = dyn FnMut(Code, Value, Value, Value) -> Result<()> + 'a;

/// What the warps of a block do.
pub struct Roles<'a> {
    /// Registers of a copying and of a multiplying thread, if these are not the same.
    pub registers: Option<(usize, usize)>,
    /// Makes all barriers.
    pub barriers: &'a mut Then<'a>,
    /// The copying thread.
    pub copies: &'a mut Then<'a>,
    /// What the copying thread's warps do when it is done.
    pub copied: Option<&'a mut Then<'a>>,
    /// A multiplying group.
    pub multiplies: &'a mut Multiplies<'a>,
}

/// All of a block.
pub fn emit(c: Code, roles: Roles<'_>) -> Result<()> {
    let Roles { registers, barriers, copies, mut copied, multiplies } = roles;
    let p = Ptx(c);
    let thread = p.thread()?;
    let warp = p.warp(thread)?;
    let first = p.is(thread, 0)?;
    c.when(
        first,
        &mut |c| {
            barriers(c)?;
            Ptx(c).publish()
        },
        None,
    )?;
    threads::barrier(c)?;
    let copying = p.is(p.over(warp, 4)?, 0)?;
    let limit = |c: Code, count: Option<usize>, more: bool| {
        count.map_or(Ok(()), |n| Ptx(c).registers(n, more))
    };
    c.when(
        copying,
        &mut |c| {
            limit(c, registers.map(|r| r.0), false)?;
            c.when(first, copies, None)?;
            copied.as_mut().map_or(Ok(()), |copied| copied(c))
        },
        Some(&mut |c| {
            limit(c, registers.map(|r| r.1), true)?;
            let p = Ptx(c);
            let group = p.minus(p.over(warp, 4)?, p.number(1)?)?;
            multiplies(c, group, p.rest(thread, 128)?, warp)
        }),
    )
}

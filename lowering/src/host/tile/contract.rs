//! Contractions: a register tile of rows by vectors, its running values carried through the reduction loops, inside of blocks that fit the caches.
use super::{
    body::Scope,
    code::{Code, Made},
    loops::{Fixed, Loops},
    tasks::{Threads, blocks, decode},
};
use crate::host::{
    kernel::{Nest, Plan},
    schedule::{Schedule, contraction},
};
use kiln_dialects::ir::*;

/// The nest of a contraction.
pub fn emit(c: Code, scope: &Scope<'_>, plan: &Plan, nest: &Nest, schedule: &Schedule, threads: Threads) -> Made<()> {
    let roles = contraction(scope.kernel, plan, schedule.get("bits")).ok_or("has a schedule for contractions, but is none")?;
    let loops = Loops { scope, nest, vector: Some(roles.vector), lanes: roles.lanes, unroll: schedule.get("n").max(1) };
    let none: Fixed = vec![None; nest.extents.len()];
    let size = |d: usize| scope.poly(c, &nest.extents[d]);
    let (m, n) = (size(roles.rows)?, size(roles.columns)?);
    let (m_block, n_block) = (c.index(schedule.get("m_block").max(1) as i64)?, c.index(schedule.get("n_block").max(1) as i64)?);
    let mut sizes: Vec<Value> = roles.outer.iter().map(|d| size(*d)).collect::<Made<_>>()?;
    sizes.extend([c.ceil_div(n, n_block)?, c.ceil_div(m, m_block)?]);
    let total = sizes.iter().try_fold(c.index(1)?, |a, b| c.mul(a, *b))?;
    blocks(c, total, 1, threads, &mut |c, i| {
        let at = decode(c, i, &sizes)?;
        let mut fixed = none.clone();
        roles.outer.iter().zip(&at).for_each(|(d, i)| fixed[*d] = Some(*i));
        let part = |i: Value, block: Value, size: Value| -> Made<(Value, Value)> {
            let lo = c.mul(i, block)?;
            Ok((lo, c.min(c.add(lo, block)?, size)?))
        };
        let columns = part(at[roles.outer.len()], n_block, n)?;
        let rows = part(at[roles.outer.len() + 1], m_block, m)?;
        if roles.columns == roles.vector {
            return panel(c, &loops, &fixed, columns, (roles.rows, rows), schedule.get("m"));
        }
        c.each(columns.0, columns.1, 1, &[], &mut |c, i, _| {
            let mut fixed = fixed.clone();
            fixed[roles.columns] = Some(i);
            let whole = (c.index(0)?, loops.size(c, roles.vector, &fixed)?);
            panel(c, &loops, &fixed, whole, (roles.rows, rows), schedule.get("m")).map(|()| vec![])
        })?;
        Ok(())
    })
}

/// All rows for each group of vectors, so that what is read for the group stays in the first level cache.
fn panel(c: Code, loops: &Loops<'_>, fixed: &Fixed, columns: (Value, Value), rows: (usize, (Value, Value)), most: usize) -> Made<()> {
    let (d, (lo, hi)) = rows;
    loops.chunks(c, columns.0, columns.1, &[], &mut |c, start, count, mask, _| {
        let mut at = lo;
        // What is left of the rows is done in fewer at once.
        let mut counts = vec![most.max(1)];
        counts.extend([4, 1].into_iter().filter(|n| *n < most));
        for group in counts {
            let step = c.index(group as i64)?;
            let whole = c.div(c.sub(hi, at)?, step)?;
            let end = c.add(at, c.mul(whole, step)?)?;
            c.each(at, end, group as i64, &[], &mut |c, i, _| {
                loops.parallel(c, fixed, Some(start), count, mask, Some((d, i, group))).map(|()| vec![])
            })?;
            at = end;
        }
        Ok(vec![])
    })?;
    Ok(())
}

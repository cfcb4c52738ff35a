//! The CTAs of a cluster, whose roles run in turn, each until it waits. Where all wait, their tiles
//! are summed over the cluster, or none would ever go on.
use super::{
    elements::Elements,
    products::extent,
    state::{Activation, Exchange, Global, Owner, Role, Shared, Unit, Val, block},
};
use crate::{
    error::{Error, OptionExt, Result, ResultExt},
    ir::{Node as _, Op},
    ops::TileClusterReduce,
};

/// Rows of a warp, which one CTA owns.
const WARP_ROWS: usize = 16;

/// A CTA: what its roles share, the producer, and the consumers of all warpgroups.
pub(super) struct Cta {
    pub(super) shared: Shared,
    pub(super) roles: [Role; 2],
}

impl Unit<'_> {
    /// Offers a tile to be summed over the cluster; the text says what the role waits for.
    pub(super) fn offer(&mut self, op: Op) -> Result<String> {
        let o = TileClusterReduce::of(op).ok_or_malformed(op)?;
        if !self.role.products.open.is_empty() {
            return Err("takes the stages that a product under way reads".into());
        }
        if o.ctas != self.global.cluster {
            let cluster = self.global.cluster;
            return Err(format!("sums over {} CTAs in a cluster of {cluster}", o.ctas).into());
        }
        let (value, rank) = (self.elements(o.value)?, self.number(o.rank)?);
        self.role.exchange = Some(Exchange { op, value, rank });
        Ok("waits for the other CTAs of its cluster".into())
    }
}

/// Runs all CTAs of a cluster.
///
/// # Errors
/// An op fails, roles wait for each other, or stages are left full.
pub(super) fn run(global: &mut Global, ctas: &mut [Cta]) -> Result<()> {
    loop {
        let mut any = false;
        for Cta { shared, roles } in ctas.iter_mut() {
            for role in roles {
                any |= Unit { role, shared, global }.run()?;
            }
        }
        if ctas.iter().all(|cta| cta.roles.iter().all(|r| r.stack.is_empty())) {
            return Ok(());
        }
        if !any && !exchanged(ctas)? {
            return Err(deadlock(ctas));
        }
    }
}

/// The error of roles that all wait: at the first one, with what the others do.
fn deadlock(ctas: &[Cta]) -> Error {
    let (mut first, mut others): (Option<(Op, &str)>, Vec<String>) = (None, vec![]);
    for cta in ctas {
        let of = if ctas.len() > 1 { format!(" of CTA {}", cta.shared.block) } else { "".into() };
        for role in &cta.roles {
            let who = if role.producer { "the producer" } else { "the consumer" };
            match &role.waits {
                Some((op, what)) if first.is_none() => first = Some((*op, what)),
                Some((op, what)) => {
                    let (name, place) = (op.name(), op.loc().chain().join(" <- "));
                    others.push(format!("{who}{of} {what} in '{name}' at {place}"));
                }
                None => others.push(format!("{who}{of} has ended")),
            }
        }
    }
    match first {
        Some((op, what)) => {
            Error::at(op, format!("{what}, which never happens: {}", others.join(", ")))
        }
        None => Error::internal("has roles that do not go on"),
    }
}

/// Sums the tiles of all CTAs, if each offers one, and enters the bodies; returns whether it has.
fn exchanged(ctas: &mut [Cta]) -> Result<bool> {
    let ready = |cta: &Cta| {
        let [producer, consumers] = &cta.roles;
        producer.stack.is_empty() && consumers.exchange.is_some()
    };
    if !ctas.iter().all(ready) {
        return Ok(false);
    }
    let mut all: Vec<Exchange> = vec![];
    for (i, cta) in ctas.iter_mut().enumerate() {
        let Some(own) = cta.roles[1].exchange.take() else { return Ok(false) };
        if own.rank != i as i64 {
            return Err(format!("has rank {} of CTA {i} of its cluster", own.rank)).at(own.op);
        }
        // The elements of other CTAs are received over the stages of all pipelines.
        if cta.shared.rings.iter().any(|r| r.left_over().is_some()) {
            return Err("takes stages that are full").at(own.op);
        }
        all.push(own);
    }
    let count = all.len();
    for (i, cta) in ctas.iter_mut().enumerate() {
        let op = all[i].op;
        let [rows, columns] = extent(op.operand(0)).at(op)?;
        let share = rows / WARP_ROWS / count * WARP_ROWS;
        let owned = i * share..(i + 1) * share;
        // Rows that another CTA owns have no sums here.
        let (dtype, mut sums) = (all[i].value.dtype, vec![f64::NAN; rows * columns]);
        // Its own elements, then those of the others by their distance in rank.
        for distance in 0..count {
            let from = all[(i + distance) % count].value.spread(rows * columns).numbers();
            for at in owned.start * columns..owned.end * columns {
                let sum = if distance == 0 { 0.0 } else { sums[at] };
                let sum = sum + from[at];
                sums[at] = if dtype.is_float() { dtype.round(sum) } else { sum };
            }
        }
        let sums = Elements::of_numbers(dtype, sums);
        let body = block(op, 0)?;
        let role = &mut cta.roles[1];
        role.values.extend(body.args().first().map(|v| (*v, Val::Elements(sums))));
        role.owned = Some(owned);
        role.stack.push(Activation::of(body, Owner::Sums));
    }
    Ok(true)
}

//! `einsum`: an equation over letters as products and sums.
use super::{Args, Cx, Outcome, tools::*};
use kiln_dialects::{ir::*, ops::*};

/// An operand and the letter of each of its dimensions.
type Term = (Value, Vec<char>);

/// Letters in several operands and the result are batch dimensions; in operands only, contracted;
/// in one operand only, summed.
pub(super) fn einsum(cx: &mut Cx, a: &Args<'_>) -> Result<Outcome> {
    let equation: String = a.text("equation", "")?.chars().filter(|c| !c.is_whitespace()).collect();
    let operands = cx.tensors(a, "tensors")?;
    let (left, right) = match equation.split_once("->") {
        Some((l, r)) => (l, Some(r)),
        None => (equation.as_str(), None),
    };
    let texts: Vec<&str> = left.split(',').collect();
    if texts.len() != operands.len() {
        return Err(format!(
            "einsum(): more operands were provided than specified in the equation {equation}, or fewer"
        )
        .into());
    }
    let mut terms = vec![];
    for (text, value) in texts.iter().zip(operands) {
        terms.push((value, letters(text, rank_of(value))?));
    }
    let ellipsis = terms.iter().flat_map(|t| &t.1).filter_map(|c| place_of(*c)).max();
    // The last dimension of an ellipsis is place 0.
    let ellipsis: Vec<char> = (0..ellipsis.map_or(0, |n| n + 1)).rev().map(letter_of).collect();
    let result = match right {
        Some(text) => expanded(text, &ellipsis)?,
        None => implicit(left, &ellipsis),
    };
    let terms = terms.into_iter().map(|t| diagonal(cx, t)).collect::<Result<Vec<_>>>()?;
    let mut at = unit_free(cx, terms)?.into_iter();
    let (mut value, mut letters) = at.next().ok_or("has no operands")?;
    let rest: Vec<_> = at.collect();
    for (i, (other, theirs)) in rest.iter().enumerate() {
        let later =
            |c: &char| result.contains(c) || rest[i + 1..].iter().any(|(_, t)| t.contains(c));
        (value, letters) = contract(cx, (value, letters), (*other, theirs.clone()), &later)?;
    }
    let gone: Vec<i64> =
        (0..letters.len()).filter(|i| !result.contains(&letters[*i])).map(|i| i as i64).collect();
    if !gone.is_empty() {
        value = cx.b.add(&Reduce {
            kind: ReduceKind::Sum,
            input: value,
            dims: gone,
            maybe_empty: false,
        })?;
        letters.retain(|c| result.contains(c));
    }
    let places = result
        .iter()
        .map(|c| letters.iter().position(|l| l == c).map(|p| p as i64))
        .collect::<Option<Vec<_>>>();
    let value = cx.transpose(
        value,
        places.ok_or_else(|| format!("the result of {equation} has letters of its own"))?,
    )?;
    cx.one(value)
}

/// The letter of a dimension of an ellipsis, counted from its last: of Unicode's private ones.
fn letter_of(place: u32) -> char {
    char::from_u32(0xE000 + place).unwrap_or('\u{E000}')
}

/// The inverse of [`letter_of`].
fn place_of(letter: char) -> Option<u32> {
    (letter as u32).checked_sub(0xE000)
}

/// The letters of an operand's dimensions.
fn letters(text: &str, rank: usize) -> Result<Vec<char>> {
    let named = text.chars().filter(char::is_ascii_alphabetic).count();
    let free = rank.checked_sub(named).ok_or_else(|| {
        format!("einsum(): {text} has more subscripts than the operand has dimensions, {rank}")
    })?;
    let all: Vec<char> = (0..free as u32).rev().map(letter_of).collect();
    expanded(text, &all)
}

/// A term whose ellipsis stands for these letters.
fn expanded(text: &str, ellipsis: &[char]) -> Result<Vec<char>> {
    let (before, after) = text.split_once("...").unwrap_or((text, ""));
    if !format!("{before}{after}").chars().all(|c| c.is_ascii_alphabetic()) {
        return Err(format!("einsum(): invalid subscript in {text}").into());
    }
    let dots: &[char] = if text.contains("...") { ellipsis } else { &[] };
    Ok(before.chars().chain(dots.iter().copied()).chain(after.chars()).collect())
}

/// The result of an equation without one: the ellipsis, then letters that occur once, in
/// alphabetic order.
fn implicit(left: &str, ellipsis: &[char]) -> Vec<char> {
    let all: Vec<char> = left.chars().filter(char::is_ascii_alphabetic).collect();
    let once = |c: &&char| all.iter().filter(|x| x == c).count() == 1;
    let mut once: Vec<char> = all.iter().filter(once).copied().collect();
    once.sort();
    [ellipsis, &once].concat()
}

/// Dimensions of one letter become one: the diagonal.
fn diagonal(cx: &mut Cx, (mut value, mut letters): Term) -> Result<Term> {
    let twice = |all: &[char]| {
        let again = |i: &usize| all[..*i].contains(&all[*i]);
        let second = (0..all.len()).find(again)?;
        all.iter().position(|c| *c == all[second]).map(|first| (first, second))
    };
    while let Some((first, second)) = twice(&letters) {
        let (m, n) = (cx.b.size_of(value, first)?, cx.b.size_of(value, second)?);
        if m.known().zip(n.known()).is_some_and(|(m, n)| m != n) {
            return Err(format!(
                "einsum(): subscript {} is repeated for dimensions of different sizes",
                letters[first]
            )
            .into());
        }
        let i = cx.count(m)?;
        let dims = vec![first as i64, second as i64];
        value = cx.b.add(&Gather { input: value, indices: vec![i, i], dims })?;
        let letter = letters[first];
        letters.remove(second);
        letters.remove(first);
        letters.insert(0, letter);
    }
    Ok((value, letters))
}

/// Drops dimensions of size 1 that broadcast with another operand's.
fn unit_free(cx: &mut Cx, terms: Vec<Term>) -> Result<Vec<Term>> {
    let mut wide: Vec<char> = vec![];
    for (value, letters) in &terms {
        let dims = value.ty().dims();
        let all = letters.iter().zip(&dims).filter(|(_, d)| d.known() != Some(1));
        wide.extend(all.map(|(c, _)| *c));
    }
    let mut all = vec![];
    for (mut value, mut letters) in terms {
        for i in (0..letters.len()).rev() {
            let unit = value.ty().dims().get(i).and_then(|d| d.known()) == Some(1);
            if unit && wide.contains(&letters[i]) {
                value = cx.dropped(value, i)?;
                letters.remove(i);
            }
        }
        all.push((value, letters));
    }
    Ok(all)
}

fn contract(cx: &mut Cx, x: Term, y: Term, later: &dyn Fn(&char) -> bool) -> Result<Term> {
    // Sums over letters of one operand only.
    let alone = |cx: &mut Cx, t: Term, other: &[char]| -> Result<Term> {
        let gone: Vec<i64> = (0..t.1.len())
            .filter(|i| !other.contains(&t.1[*i]) && !later(&t.1[*i]))
            .map(|i| i as i64)
            .collect();
        if gone.is_empty() {
            return Ok(t);
        }
        let v = cx.b.add(&Reduce {
            kind: ReduceKind::Sum,
            input: t.0,
            dims: gone.clone(),
            maybe_empty: false,
        })?;
        Ok((
            v,
            t.1.iter()
                .enumerate()
                .filter(|(i, _)| !gone.contains(&(*i as i64)))
                .map(|(_, c)| *c)
                .collect(),
        ))
    };
    let x = alone(cx, x, &y.1)?;
    let y = alone(cx, y, &x.1)?;
    let shared: Vec<char> = x.1.iter().copied().filter(|c| y.1.contains(c)).collect();
    let (batch, inner): (Vec<char>, Vec<char>) = shared.into_iter().partition(|c| later(c));
    let places = |t: &Term, which: &[char]| {
        which
            .iter()
            .filter_map(|c| t.1.iter().position(|l| l == c).map(|p| p as i64))
            .collect::<Vec<_>>()
    };
    let node = DotGeneral {
        lhs: x.0,
        rhs: y.0,
        lhs_batch: places(&x, &batch),
        rhs_batch: places(&y, &batch),
        lhs_contract: places(&x, &inner),
        rhs_contract: places(&y, &inner),
        element_type: None,
    };
    let v = cx.b.add(&node)?;
    let free = |t: &Term| {
        t.1.iter().copied().filter(|c| !batch.contains(c) && !inner.contains(c)).collect::<Vec<_>>()
    };
    Ok((v, [batch.clone(), free(&x), free(&y)].concat()))
}

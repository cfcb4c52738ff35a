//! Lengths that a kernel transforms, and the radices of its passes.

/// The largest radix: a thread holds that many complex numbers in registers.
const MAX_RADIX: i64 = 16;

/// The radix of each pass over a row, whose product is the length.
pub type Radices = Vec<i64>;

/// The fewest radices from 2 to 16 whose product is `n`, as even as possible and descending; `None`
/// for a length with a prime factor above 13, and for 1, which needs no pass.
pub fn radices(n: i64) -> Option<Radices> {
    let mut rest = n;
    for p in [2, 3, 5, 7, 11, 13] {
        while rest > 1 && rest % p == 0 {
            rest /= p;
        }
    }
    if n < 2 || rest != 1 {
        return None;
    }
    let mut best = None;
    search(n, MAX_RADIX, &mut vec![], &mut best);
    best
}

/// Extends `chosen` by radices of at most `most`; fewer are better, then a smaller sum.
fn search(n: i64, most: i64, chosen: &mut Radices, best: &mut Option<Radices>) {
    let cost = |all: &Radices| (all.len(), all.iter().sum::<i64>());
    if n == 1 {
        if best.as_ref().is_none_or(|b| cost(chosen) < cost(b)) {
            *best = Some(chosen.clone());
        }
        return;
    }
    if best.as_ref().is_some_and(|b| chosen.len() >= b.len()) {
        return;
    }
    for radix in (2..=most.min(n)).rev().filter(|r| n % r == 0) {
        chosen.push(radix);
        search(n / radix, radix, chosen, best);
        chosen.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::radices;

    #[test]
    fn lengths_have_the_fewest_and_most_even_radices() {
        for (n, want) in [
            (2, vec![2]),
            (13, vec![13]),
            (64, vec![8, 8]),
            (1000, vec![10, 10, 10]),
            (4096, vec![16, 16, 16]),
            (8192, vec![16, 8, 8, 8]),
            (2401, vec![7, 7, 7, 7]),
        ] {
            assert_eq!(radices(n), Some(want), "{n}");
        }
        assert!([0, 1, 17, 34, 521, -4].iter().all(|n| radices(*n).is_none()));
    }
}

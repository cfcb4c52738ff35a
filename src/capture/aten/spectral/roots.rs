//! Roots of unity and factors of lengths, in f64.

/// A complex number.
pub(super) type Number = (f64, f64);

/// The largest factor that is one product, unless it is prime.
const RADIX: i64 = 32;
/// The largest prime factor that is one product.
const PRIME: i64 = 512;

/// The product of two complex numbers.
pub(super) fn multiply(x: Number, y: Number) -> Number {
    (x.0 * y.0 - x.1 * y.1, x.0 * y.1 + x.1 * y.0)
}

/// `e^(-2 pi i k / n)`, or with a positive exponent if `inverse`. The angle is reduced to a quarter,
/// so that multiples of a quarter are exact.
pub(super) fn root(k: i64, n: i64, inverse: bool) -> Number {
    let four = 4 * i128::from(k.rem_euclid(n));
    let (quarter, rest) = (four / i128::from(n), four % i128::from(n));
    let angle = rest as f64 / n as f64 * std::f64::consts::FRAC_PI_2;
    let (sin, cos) = angle.sin_cos();
    let (re, im) = match quarter {
        0 => (cos, sin),
        1 => (-sin, cos),
        2 => (-cos, -sin),
        _ => (sin, -cos),
    };
    if inverse { (re, im) } else { (re, -im) }
}

/// A length as factors of at most 32, or primes of at most 512; `None` if there are larger primes.
pub(super) fn factors(n: i64) -> Option<Vec<i64>> {
    let (mut rest, mut primes, mut p) = (n, vec![], 2);
    while p * p <= rest {
        while rest % p == 0 {
            primes.push(p);
            rest /= p;
        }
        p += 1;
    }
    if rest > 1 {
        primes.push(rest);
    }
    let mut all: Vec<i64> = vec![];
    for p in primes.into_iter().rev() {
        if p > PRIME {
            return None;
        }
        match all.iter_mut().find(|f| **f * p <= RADIX) {
            Some(f) => *f *= p,
            None => all.push(p),
        }
    }
    Some(if all.is_empty() { vec![1] } else { all })
}

/// The transform of a power of two of numbers, by halves.
pub(super) fn transform(x: Vec<Number>) -> Vec<Number> {
    let n = x.len();
    if n < 2 {
        return x;
    }
    let even = transform(x.iter().step_by(2).copied().collect());
    let odd = transform(x.iter().skip(1).step_by(2).copied().collect());
    let turned = |(k, v): (usize, &Number)| multiply(root(k as i64, n as i64, false), *v);
    let odd: Vec<Number> = odd.iter().enumerate().map(turned).collect();
    let sum = even.iter().zip(&odd).map(|(a, b)| (a.0 + b.0, a.1 + b.1));
    let difference = even.iter().zip(&odd).map(|(a, b)| (a.0 - b.0, a.1 - b.1));
    sum.chain(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_products_of_small_factors() {
        for (n, want) in [(1, vec![1]), (7, vec![7]), (1024, vec![32, 32]), (521 * 2, vec![])] {
            assert_eq!(factors(n).unwrap_or_default(), want, "{n}");
        }
        for n in [12, 360, 1000, 509 * 4, 3 * 11 * 13] {
            let all = factors(n).unwrap_or_default();
            assert_eq!(all.iter().product::<i64>(), n);
        }
    }

    #[test]
    fn quarters_are_exact() {
        assert_eq!(root(1, 4, false), (0.0, -1.0));
        assert_eq!(root(6, 8, true), (0.0, -1.0));
        let x = transform(vec![(1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (4.0, 0.0)]);
        assert_eq!(x, [(10.0, 0.0), (-2.0, 2.0), (-2.0, 0.0), (-2.0, -2.0)]);
    }
}

//! A = L D L' of a symmetric matrix by Bunch and Kaufman's diagonal pivoting (Some stable methods
//! for calculating inertia and solving symmetric linear systems, 1977), after LAPACK's sytf2 and
//! sytrs with the lower triangle. faer's factors do not have LAPACK's packed form, in which later
//! swaps leave earlier columns of L as they are.
use crate::matrix::Real;

/// An n×n matrix, row-major, of which the lower triangle is used.
struct Lower<'a, T> {
    a: &'a mut [T],
    n: usize,
}

impl<T: Real> Lower<'_, T> {
    fn at(&self, i: usize, j: usize) -> T {
        self.a[i * self.n + j]
    }
    fn size(&self, i: usize, j: usize) -> T {
        self.at(i, j).magnitude()
    }
    fn subtract(&mut self, i: usize, j: usize, x: T) {
        self.a[i * self.n + j] -= x;
    }
    fn swap(&mut self, (i, j): (usize, usize), (k, l): (usize, usize)) {
        self.a.swap(i * self.n + j, k * self.n + l);
    }
    /// The first of the largest elements of column `k` below row `k`: its row.
    fn largest_below(&self, k: usize) -> usize {
        let from = k + 1;
        (from..self.n)
            .fold(from, |best, i| if self.size(i, k) > self.size(best, k) { i } else { best })
    }
    /// The pivot of column `k`: the row that is swapped, and whether it makes a 2×2 block. None: the
    /// column is zero, or its diagonal element is NaN.
    fn pivot(&self, k: usize, alpha: T) -> Option<(usize, bool)> {
        let (diagonal, last) = (self.size(k, k), k + 1 == self.n);
        let row = if last { k } else { self.largest_below(k) };
        let column = if last { T::ZERO } else { self.size(row, k) };
        if diagonal.undefined() || (diagonal == T::ZERO && column == T::ZERO) {
            return None;
        }
        if diagonal >= alpha * column {
            return Some((k, false));
        }
        let beside = (k..row).map(|j| self.size(row, j));
        let below = (row + 1..self.n).map(|i| self.size(i, row));
        let across = beside.chain(below).fold(T::ZERO, |most, x| if x > most { x } else { most });
        if diagonal >= alpha * column * (column / across) {
            Some((k, false))
        } else {
            Some((row, self.size(row, row) < alpha * across))
        }
    }
    /// Swaps rows and columns `k` and `p` of what has not been factored, `k` before `p`.
    fn exchange(&mut self, k: usize, p: usize) {
        (p + 1..self.n).for_each(|i| self.swap((i, k), (i, p)));
        (k + 1..p).for_each(|i| self.swap((i, k), (p, i)));
        self.swap((k, k), (p, p));
    }
    /// Eliminates column `k` by its diagonal element.
    fn eliminate(&mut self, k: usize) {
        let by = T::ONE / self.at(k, k);
        for i in k + 1..self.n {
            for j in k + 1..=i {
                self.subtract(i, j, by * self.at(i, k) * self.at(j, k));
            }
        }
        (k + 1..self.n).for_each(|i| self.a[i * self.n + k] = by * self.at(i, k));
    }
    /// Eliminates columns `k` and `k + 1` by their 2×2 block.
    fn eliminate_two(&mut self, k: usize) {
        if k + 2 >= self.n {
            return;
        }
        let off = self.at(k + 1, k);
        let (first, second) = (self.at(k + 1, k + 1) / off, self.at(k, k) / off);
        let by = T::ONE / (first * second - T::ONE) / off;
        for j in k + 2..self.n {
            let (x, y) = (self.at(j, k), self.at(j, k + 1));
            let (l, m) = (by * (first * x - y), by * (second * y - x));
            for i in j..self.n {
                self.subtract(i, j, self.at(i, k) * l + self.at(i, k + 1) * m);
            }
            (self.a[j * self.n + k], self.a[j * self.n + k + 1]) = (l, m);
        }
    }
}

/// The factors of the symmetric matrix whose lower triangle is `a`'s, packed in one, with zeros
/// above the diagonal: the diagonal blocks of D, and L below them, with an implicit unit diagonal.
/// Row i was swapped with row `pivots[i]`, counted from 1; two equal negative pivots are a 2×2
/// block, whose second row was swapped. Returns the position of the first zero on D's diagonal, from
/// 1, or 0.
pub(crate) fn factor<T: Real>(a: &[T], n: usize, packed: &mut [T], pivots: &mut [i32]) -> i32 {
    for (i, (from, to)) in a.chunks(n.max(1)).zip(packed.chunks_mut(n.max(1))).enumerate() {
        to.fill(T::ZERO);
        to[..=i].copy_from_slice(&from[..=i]);
    }
    let eight = (0..8).fold(T::ZERO, |sum, _| sum + T::ONE);
    let alpha = (T::ONE + (eight + eight + T::ONE).root()) / eight;
    let (mut m, mut k, mut info) = (Lower { a: packed, n }, 0, 0);
    while k < n {
        let Some((row, two)) = m.pivot(k, alpha) else {
            info = if info == 0 { k as i32 + 1 } else { info };
            pivots[k] = k as i32 + 1;
            k += 1;
            continue;
        };
        let last = if two { k + 1 } else { k };
        if row != last {
            m.exchange(last, row);
            if two {
                m.swap((k + 1, k), (row, k));
            }
        }
        let pivot = row as i32 + 1;
        if two {
            m.eliminate_two(k);
            (pivots[k], pivots[k + 1]) = (-pivot, -pivot);
        } else {
            m.eliminate(k);
            pivots[k] = pivot;
        }
        k = last + 1;
    }
    info
}

/// Rows of the right-hand sides.
struct Rows<'a, T> {
    x: &'a mut [T],
    k: usize,
}

impl<T: Real> Rows<'_, T> {
    fn swap(&mut self, i: usize, j: usize) {
        if i != j {
            (0..self.k).for_each(|c| self.x.swap(i * self.k + c, j * self.k + c));
        }
    }
    /// Subtracts a multiple of row `from`.
    fn subtract(&mut self, to: usize, by: T, from: usize) {
        for c in 0..self.k {
            let x = self.x[from * self.k + c];
            self.x[to * self.k + c] -= by * x;
        }
    }
    fn each(&mut self, i: usize, f: impl Fn(T) -> T) {
        self.x[i * self.k..(i + 1) * self.k].iter_mut().for_each(|x| *x = f(*x));
    }
}

/// The solution X of A X = B for A packed as by [`factor`], and n×k right-hand sides. Err: the pivot
/// that is no row, or half of a block.
pub(crate) fn solve<T: Real>(
    (packed, pivots): (&[T], &[i32]),
    b: &[T],
    (n, k): (usize, usize),
    x: &mut [T],
) -> Result<(), i32> {
    let blocks = blocks(pivots)?;
    x.copy_from_slice(b);
    let (at, mut x) = (|i: usize, j: usize| packed[i * n + j], Rows { x, k });
    for &(i, row, two) in &blocks {
        x.swap(if two { i + 1 } else { i }, row);
        let next = if two { i + 2 } else { i + 1 };
        for below in next..n {
            (i..next).for_each(|j| x.subtract(below, at(below, j), j));
        }
        if !two {
            let by = T::ONE / at(i, i);
            x.each(i, |x| x * by);
            continue;
        }
        let off = at(i + 1, i);
        let (first, second) = (at(i, i) / off, at(i + 1, i + 1) / off);
        let denominator = first * second - T::ONE;
        for c in 0..k {
            let (p, q) = (x.x[i * k + c] / off, x.x[(i + 1) * k + c] / off);
            x.x[i * k + c] = (second * p - q) / denominator;
            x.x[(i + 1) * k + c] = (first * q - p) / denominator;
        }
    }
    for &(i, row, two) in blocks.iter().rev() {
        let next = if two { i + 2 } else { i + 1 };
        for below in next..n {
            (i..next).for_each(|j| x.subtract(j, at(below, j), below));
        }
        x.swap(next - 1, row);
    }
    Ok(())
}

/// The diagonal blocks: first row, row that was swapped with the last one, whether of two rows.
fn blocks(pivots: &[i32]) -> Result<Vec<(usize, usize, bool)>, i32> {
    let (mut all, mut i) = (vec![], 0);
    while let Some(pivot) = pivots.get(i) {
        let two = *pivot < 0;
        let row = (pivot.unsigned_abs() as usize).checked_sub(1).filter(|r| *r < pivots.len());
        let row = row.ok_or(*pivot)?;
        if two && pivots.get(i + 1) != Some(pivot) {
            return Err(*pivot);
        }
        all.push((i, row, two));
        i += if two { 2 } else { 1 };
    }
    Ok(all)
}

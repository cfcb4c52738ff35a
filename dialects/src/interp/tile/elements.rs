//! Elements of a value: one of a scalar, those of a vector or of a fragment, or those that a body
//! computes for many positions at once.
use crate::{
    error::Result,
    ir::Type,
    value::{DType, Data},
};
use std::rc::Rc;

/// Elements in order. As many as a vector's width stand for any number of equal vectors.
#[derive(Clone, Debug)]
pub(super) struct Elements {
    pub(super) dtype: DType,
    /// Elements of a vector; 1 of all other types.
    pub(super) width: usize,
    data: Rc<Data>,
}

/// The dtype of a type's elements, where `index` is 64 bits wide, and the width of a vector.
pub(super) fn form(ty: Type) -> Result<(DType, usize)> {
    let element = ty.element().unwrap_or(ty);
    let dtype = if element.is_index() { DType::I64 } else { element.dtype()? };
    let sizes = if ty.is_vector() { ty.vector_sizes().unwrap_or_default() } else { vec![] };
    match sizes.as_slice() {
        [] => Ok((dtype, 1)),
        [n] if *n > 0 => Ok((dtype, *n as usize)),
        _ => Err(format!("has type {ty}, which is no vector of one dimension").into()),
    }
}

impl Elements {
    /// Floats are rounded and integers wrapped to the dtype.
    pub(super) fn rounded(dtype: DType, width: usize, mut data: Data) -> Elements {
        match &mut data {
            Data::F(all) => all.iter_mut().for_each(|x| *x = dtype.round(*x)),
            Data::I(all) if dtype != DType::I64 => {
                all.iter_mut().for_each(|x| *x = dtype.wrap(*x));
            }
            Data::I(_) => {}
        }
        Elements { dtype, width, data: Rc::new(data) }
    }
    /// Numbers in a dtype; integers below 2^53 are exact.
    pub(super) fn of_numbers(dtype: DType, all: Vec<f64>) -> Elements {
        let data = match dtype.is_float() {
            true => Data::F(all),
            false => Data::I(all.into_iter().map(|x| x as i64).collect()),
        };
        Elements::rounded(dtype, 1, data)
    }
    /// The elements as numbers; integers below 2^53 are exact.
    pub(super) fn numbers(&self) -> Vec<f64> {
        match self.data() {
            Data::F(all) => all.clone(),
            Data::I(all) => all.iter().map(|x| *x as f64).collect(),
        }
    }
    /// As they are.
    pub(super) fn exact(dtype: DType, width: usize, data: Data) -> Elements {
        Elements { dtype, width, data: Rc::new(data) }
    }
    pub(super) fn index(i: i64) -> Elements {
        Elements::exact(DType::I64, 1, Data::I(vec![i]))
    }
    pub(super) fn indices(all: Vec<i64>) -> Elements {
        Elements::exact(DType::I64, 1, Data::I(all))
    }
    pub(super) fn len(&self) -> usize {
        self.data.len()
    }
    pub(super) fn data(&self) -> &Data {
        &self.data
    }
    pub(super) fn floats(&self) -> Result<&[f64]> {
        match &*self.data {
            Data::F(all) => Ok(all),
            Data::I(_) => Err(format!("takes {} where floats are needed", self.dtype).into()),
        }
    }
    pub(super) fn ints(&self) -> Result<&[i64]> {
        match &*self.data {
            Data::I(all) => Ok(all),
            Data::F(_) => Err(format!("takes {} where integers are needed", self.dtype).into()),
        }
    }
    /// The integer that they all are.
    pub(super) fn uniform(&self) -> Result<i64> {
        match self.ints()? {
            [one] => Ok(*one),
            all => match all.first() {
                Some(first) if all.iter().all(|x| x == first) => Ok(*first),
                _ => Err("takes a number that differs from element to element".into()),
            },
        }
    }
    /// `n` elements, of which the `i`-th is that at `of(i)`.
    pub(super) fn picked(&self, n: usize, of: &dyn Fn(usize) -> usize) -> Elements {
        if self.data.is_empty() || self.len() == 1 {
            return self.clone();
        }
        let count = self.len();
        let data = match &*self.data {
            Data::F(all) => Data::F((0..n).map(|i| all[of(i) % count]).collect()),
            Data::I(all) => Data::I((0..n).map(|i| all[of(i) % count]).collect()),
        };
        Elements { data: Rc::new(data), ..*self }
    }
    /// `n` elements, repeated if there are fewer.
    pub(super) fn spread(&self, n: usize) -> Elements {
        if self.data.is_empty() || self.len() == n {
            return self.clone();
        }
        let count = self.len();
        let data = match &*self.data {
            Data::F(all) => Data::F((0..n).map(|i| all[i % count]).collect()),
            Data::I(all) => Data::I((0..n).map(|i| all[i % count]).collect()),
        };
        Elements { data: Rc::new(data), ..*self }
    }
    /// The same elements as those of another type.
    pub(super) fn like(self, dtype: DType, width: usize) -> Elements {
        Elements { dtype, width, ..self }
    }
    /// Of each element that of `a` where `taken` says so, else that of `b`.
    pub(super) fn chosen(
        n: usize,
        taken: &dyn Fn(usize) -> bool,
        [a, b]: [&Elements; 2],
    ) -> Result<Elements> {
        fn pick<T: Copy>(n: usize, taken: &dyn Fn(usize) -> bool, a: &[T], b: &[T]) -> Vec<T> {
            (0..n).map(|i| if taken(i) { a[i % a.len()] } else { b[i % b.len()] }).collect()
        }
        let data = match (a.data(), b.data()) {
            (Data::F(a), Data::F(b)) => Data::F(pick(n, taken, a, b)),
            (Data::I(a), Data::I(b)) => Data::I(pick(n, taken, a, b)),
            _ => return Err("chooses between values of two kinds".into()),
        };
        Ok(Elements::exact(a.dtype, a.width, data))
    }
}

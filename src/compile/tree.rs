//! Arguments and results as trees (PyTorch's pytrees): structures of tensors and numbers, flattened
//! into leaves and rebuilt from them.
use super::tree_error::TreeError;
use crate::{
    runtime::guards::Scalar,
    tensor::{self, Tensor, TraceError},
};

/// A leaf of an argument or a result.
#[derive(Clone, Debug)]
pub enum Leaf {
    /// A tensor.
    Tensor(Tensor),
    /// A constant of the program, or the length of a list.
    Scalar(Scalar),
    /// A number that may change between calls.
    Number(tensor::Scalar),
}

/// The remaining leaves, in order.
pub type Leaves = std::vec::IntoIter<Leaf>;

/// A structure of tensors and numbers.
pub trait Tree: Sized {
    /// Flattens it into its leaves, in order. The length of a list, and the presence of an option,
    /// are leaves too.
    fn leaves(&self, out: &mut Vec<Leaf>);
    /// As [`Tree::leaves`], by value, so that no handle is cloned.
    fn into_leaves(self, out: &mut Vec<Leaf>) {
        self.leaves(out);
    }
    /// Estimated number of leaves, to reserve memory.
    fn size_hint(&self) -> usize {
        1
    }
    /// Unflattens leaves. Err: they do not match the structure.
    fn rebuild(leaves: &mut Leaves) -> Result<Self, TreeError>;
    /// Display names of the leaves of a value called `path`.
    fn names(&self, path: &str, out: &mut Vec<String>);
}

fn next(leaves: &mut Leaves) -> Result<Leaf, TreeError> {
    leaves.next().ok_or_else(|| "a structure has fewer parts than it had".into())
}

impl Tree for Tensor {
    fn leaves(&self, out: &mut Vec<Leaf>) {
        out.push(Leaf::Tensor(self.clone()));
    }
    fn into_leaves(self, out: &mut Vec<Leaf>) {
        out.push(Leaf::Tensor(self));
    }
    fn rebuild(leaves: &mut Leaves) -> Result<Tensor, TreeError> {
        match next(leaves)? {
            Leaf::Tensor(t) => Ok(t),
            Leaf::Scalar(s) => Err(format!("{s} stands where a tensor was").into()),
            Leaf::Number(s) => Err(format!("{s:?} stands where a tensor was").into()),
        }
    }
    fn names(&self, path: &str, out: &mut Vec<String>) {
        out.push(path.into());
    }
}

impl Tree for tensor::Scalar {
    fn leaves(&self, out: &mut Vec<Leaf>) {
        out.push(Leaf::Number(self.clone()));
    }
    fn into_leaves(self, out: &mut Vec<Leaf>) {
        out.push(Leaf::Number(self));
    }
    fn rebuild(leaves: &mut Leaves) -> Result<tensor::Scalar, TreeError> {
        match next(leaves)? {
            Leaf::Number(s) => Ok(s),
            Leaf::Scalar(s) => Ok(tensor::Scalar::plain(s)),
            Leaf::Tensor(_) => Err("a tensor stands where a number was".into()),
        }
    }
    fn names(&self, path: &str, out: &mut Vec<String>) {
        out.push(path.into());
    }
}

macro_rules! scalars {
    ($($t:ty: $kind:ident, $from:expr, $to:expr;)*) => { $(
        impl Tree for $t {
            fn leaves(&self, out: &mut Vec<Leaf>) {
                out.push(Leaf::Scalar(Scalar::$kind($from(*self))));
            }
            fn rebuild(leaves: &mut Leaves) -> Result<$t, TreeError> {
                match next(leaves)? {
                    Leaf::Scalar(Scalar::$kind(x)) => Ok($to(x)),
                    _ => Err(concat!("another leaf stands where a ", stringify!($t), " was").into()),
                }
            }
            fn names(&self, path: &str, out: &mut Vec<String>) {
                out.push(path.into());
            }
        }
    )* };
}
scalars! {
    i64: Int, |x: i64| x, |x: i64| x;
    i32: Int, i64::from, |x: i64| x as i32;
    usize: Int, |x: usize| x as i64, |x: i64| x as usize;
    f64: Float, |x: f64| x, |x: f64| x;
    f32: Float, f64::from, |x: f64| x as f32;
    bool: Bool, |x: bool| x, |x: bool| x;
}

fn count(leaves: &mut Leaves) -> Result<usize, TreeError> {
    match next(leaves)? {
        Leaf::Scalar(Scalar::Count(n)) => Ok(n),
        _ => Err("another leaf stands where the length of a list was".into()),
    }
}

impl<T: Tree> Tree for Vec<T> {
    fn leaves(&self, out: &mut Vec<Leaf>) {
        out.push(Leaf::Scalar(Scalar::Count(self.len())));
        self.iter().for_each(|x| x.leaves(out));
    }
    fn into_leaves(self, out: &mut Vec<Leaf>) {
        out.push(Leaf::Scalar(Scalar::Count(self.len())));
        self.into_iter().for_each(|x| x.into_leaves(out));
    }
    fn size_hint(&self) -> usize {
        1 + self.len()
    }
    fn rebuild(leaves: &mut Leaves) -> Result<Vec<T>, TreeError> {
        (0..count(leaves)?).map(|_| T::rebuild(leaves)).collect()
    }
    fn names(&self, path: &str, out: &mut Vec<String>) {
        out.push(format!("{path}.len()"));
        self.iter().enumerate().for_each(|(i, x)| x.names(&format!("{path}[{i}]"), out));
    }
}

impl<T: Tree> Tree for Option<T> {
    fn leaves(&self, out: &mut Vec<Leaf>) {
        out.push(Leaf::Scalar(Scalar::Count(usize::from(self.is_some()))));
        self.iter().for_each(|x| x.leaves(out));
    }
    fn into_leaves(self, out: &mut Vec<Leaf>) {
        out.push(Leaf::Scalar(Scalar::Count(usize::from(self.is_some()))));
        self.into_iter().for_each(|x| x.into_leaves(out));
    }
    fn rebuild(leaves: &mut Leaves) -> Result<Option<T>, TreeError> {
        (count(leaves)? > 0).then(|| T::rebuild(leaves)).transpose()
    }
    fn names(&self, path: &str, out: &mut Vec<String>) {
        out.push(format!("{path}.is_some()"));
        self.iter().for_each(|x| x.names(path, out));
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    fn leaves(&self, out: &mut Vec<Leaf>) {
        self.iter().for_each(|x| x.leaves(out));
    }
    fn into_leaves(self, out: &mut Vec<Leaf>) {
        self.into_iter().for_each(|x| x.into_leaves(out));
    }
    fn rebuild(leaves: &mut Leaves) -> Result<[T; N], TreeError> {
        let all = (0..N).map(|_| T::rebuild(leaves)).collect::<Result<Vec<T>, TreeError>>()?;
        all.try_into().map_err(|_| "an array of another length".into())
    }
    fn names(&self, path: &str, out: &mut Vec<String>) {
        self.iter().enumerate().for_each(|(i, x)| x.names(&format!("{path}[{i}]"), out));
    }
}

macro_rules! tuples {
    ($(($($t:ident $i:tt)*))*) => { $(
        impl<$($t: Tree),*> Tree for ($($t,)*) {
            #[allow(unused_variables)]
            fn leaves(&self, out: &mut Vec<Leaf>) {
                $(self.$i.leaves(out);)*
            }
            #[allow(unused_variables)]
            fn into_leaves(self, out: &mut Vec<Leaf>) {
                $(self.$i.into_leaves(out);)*
            }
            fn size_hint(&self) -> usize {
                0 $(+ self.$i.size_hint())*
            }
            #[allow(unused_variables, clippy::unused_unit)]
            fn rebuild(leaves: &mut Leaves) -> Result<Self, TreeError> {
                Ok(($($t::rebuild(leaves)?,)*))
            }
            #[allow(unused_variables)]
            fn names(&self, path: &str, out: &mut Vec<String>) {
                $(self.$i.names(&format!("{path}.{}", $i), out);)*
            }
        }
    )* };
}
tuples!(()(A 0)(A 0 B 1)(A 0 B 1 C 2)(A 0 B 1 C 2 D 3)(A 0 B 1 C 2 D 3 E 4)(A 0 B 1 C 2 D 3 E 4 G 5));

/// A function's return value: a structure, or a `Result` of one, whose error becomes the call's.
pub trait Returns {
    /// The structure.
    type Tree: Tree;
    /// The structure, or the function's error.
    fn into_tree(self) -> Result<Self::Tree, TraceError>;
}
impl<T: Tree> Returns for T {
    type Tree = T;
    fn into_tree(self) -> Result<T, TraceError> {
        Ok(self)
    }
}
impl<T: Tree> Returns for Result<T, TraceError> {
    type Tree = T;
    fn into_tree(self) -> Result<T, TraceError> {
        self
    }
}

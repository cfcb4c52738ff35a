//! Compilable functions and their arguments.
use super::{
    tree::{Leaf, Leaves, Returns, Tree},
    tree_error::TreeError,
};
use crate::tensor::{Scalar, Tensor};

/// The arguments of a function: a tuple of [`Tree`]s (pytrees).
pub trait Arguments: Tree {
    /// Display names of the leaves: `arg0`, `arg1[2]`.
    fn leaf_names(&self) -> Vec<String>;
    /// How many leaves each argument has.
    fn leaf_counts(&self) -> Vec<usize>;
}

/// A function or closure of up to six arguments.
pub trait Function<A> {
    /// Its return type.
    type Out: Returns;
    /// Calls it.
    fn invoke(&self, arguments: A) -> Self::Out;
}

/// What a call accepts as arguments: the tuple, or the argument of a unary function; tensors also
/// by reference.
pub trait Pack<A> {
    /// The arguments.
    fn pack(self) -> A;
}

impl<A: Arguments> Pack<A> for A {
    fn pack(self) -> A {
        self
    }
}
impl<X: Tree> Pack<(X,)> for X {
    fn pack(self) -> (X,) {
        (self,)
    }
}
impl Pack<(Tensor,)> for &Tensor {
    fn pack(self) -> (Tensor,) {
        (self.clone(),)
    }
}
impl Pack<(Tensor, Tensor)> for (&Tensor, &Tensor) {
    fn pack(self) -> (Tensor, Tensor) {
        (self.0.clone(), self.1.clone())
    }
}
impl Pack<(Tensor, Tensor, Tensor)> for (&Tensor, &Tensor, &Tensor) {
    fn pack(self) -> (Tensor, Tensor, Tensor) {
        (self.0.clone(), self.1.clone(), self.2.clone())
    }
}

/// Plain numbers are accepted next to a tensor.
macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Pack<(Tensor, Scalar)> for (&Tensor, $number) {
            fn pack(self) -> (Tensor, Scalar) {
                (self.0.clone(), self.1.into())
            }
        }
        impl Pack<(Tensor, Scalar)> for (Tensor, $number) {
            fn pack(self) -> (Tensor, Scalar) {
                (self.0, self.1.into())
            }
        }
    )* };
}
numbers!(f64, f32, i64, i32);
impl Pack<(Tensor, Scalar)> for (&Tensor, Scalar) {
    fn pack(self) -> (Tensor, Scalar) {
        (self.0.clone(), self.1)
    }
}

macro_rules! functions {
    ($(($($t:ident $i:tt)*))*) => { $(
        impl<$($t: Tree),*> Arguments for ($($t,)*) {
            fn leaf_names(&self) -> Vec<String> {
                #[allow(unused_mut)]
                let mut out = vec![];
                $(self.$i.names(&format!("arg{}", $i), &mut out);)*
                out
            }
            fn leaf_counts(&self) -> Vec<usize> {
                vec![$(leaves(&self.$i).len()),*]
            }
        }
        impl<F, R: Returns, $($t: Tree),*> Function<($($t,)*)> for F
        where
            F: Fn($($t),*) -> R,
        {
            type Out = R;
            #[allow(unused_variables)]
            fn invoke(&self, arguments: ($($t,)*)) -> R {
                self($(arguments.$i),*)
            }
        }
    )* };
}
functions!(()(A 0)(A 0 B 1)(A 0 B 1 C 2)(A 0 B 1 C 2 D 3)(A 0 B 1 C 2 D 3 E 4)(A 0 B 1 C 2 D 3 E 4 G 5));

/// Arguments of which one is the first, by which [`grad`](crate::grad) differentiates.
pub trait FirstArgument: Arguments {
    /// The first argument.
    type First: Tree;
    /// The first argument.
    fn first(&self) -> &Self::First;
}

macro_rules! first {
    ($(($($t:ident)*))*) => { $(
        impl<$($t: Tree),*> FirstArgument for ($($t,)*) {
            type First = A;
            fn first(&self) -> &A {
                &self.0
            }
        }
    )* };
}
first!((A)(A B)(A B C)(A B C D)(A B C D E)(A B C D E G));

/// Flattens a structure into its leaves.
pub(super) fn leaves(tree: &impl Tree) -> Vec<Leaf> {
    let mut out = Vec::with_capacity(tree.size_hint());
    tree.leaves(&mut out);
    out
}

/// As [`leaves`], by value.
pub(crate) fn into_leaves(tree: impl Tree) -> Vec<Leaf> {
    let mut out = Vec::with_capacity(tree.size_hint());
    tree.into_leaves(&mut out);
    out
}

/// Unflattens a structure, which must consume all leaves.
pub(crate) fn rebuild<T: Tree>(leaves: Vec<Leaf>) -> Result<T, TreeError> {
    let mut left: Leaves = leaves.into_iter();
    let tree = T::rebuild(&mut left)?;
    if left.next().is_some() {
        Err("a structure has more parts than it had".into())
    } else {
        Ok(tree)
    }
}

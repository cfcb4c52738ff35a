//! Functions that can be compiled, and what they are called with.
use super::tree::{Leaf, Leaves, Returns, Tree};
use crate::tensor::{Scalar, Tensor};

/// The arguments of a function: a tuple of [`Tree`]s.
pub trait Arguments: Tree {
    /// What people call each leaf: `arg0`, `arg1[2]`.
    fn leaf_names(&self) -> Vec<String>;
}

/// A function or a closure of up to six arguments.
pub trait Function<A> {
    /// What it gives.
    type Out: Returns;
    /// Calls it.
    fn invoke(&self, arguments: A) -> Self::Out;
}

/// What stands for arguments in a call: the tuple, or, of a function of one argument, that
/// argument; tensors also by reference.
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

/// A function of a tensor and a number takes plain numbers as they are.
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

/// All leaves of a structure.
pub(super) fn leaves(tree: &impl Tree) -> Vec<Leaf> {
    let mut out = Vec::with_capacity(tree.about());
    tree.leaves(&mut out);
    out
}

/// As [`leaves`], of a structure that is given up for them.
pub(super) fn into_leaves(tree: impl Tree) -> Vec<Leaf> {
    let mut out = Vec::with_capacity(tree.about());
    tree.into_leaves(&mut out);
    out
}

/// The structure of these leaves, all of which it takes.
pub(super) fn rebuild<T: Tree>(leaves: Vec<Leaf>) -> Result<T, String> {
    let mut left: Leaves = leaves.into_iter();
    let tree = T::rebuild(&mut left)?;
    if left.next().is_some() {
        Err("a structure has more parts than it had".into())
    } else {
        Ok(tree)
    }
}

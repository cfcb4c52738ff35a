//! A factorization with its sizes: whether the libraries have it, and what memory it needs.
use super::library::{Functions, Handle, Libraries, Status};
use crate::cuda::flow_memory::WORKSPACE_ALIGNMENT;
use kiln_linalg::{Factorization, Type};
use std::ptr::{null, null_mut};

/// `CUBLAS_FILL_MODE_UPPER`.
pub const UPPER: i32 = 1;
/// Rows up to which cuBLAS factors a batch at once. PyTorch's limit.
const LU_BATCH: usize = 128;
/// Batches of at most this many systems with at least that many rows are solved one by one, as
/// PyTorch does.
const FEW_SYSTEMS: (usize, usize) = (8, 64);

/// Batches of more matrices than this, of at most [`SMALL`] rows and columns, go to the host where a
/// library has no function for batches: each matrix is a launch of its own.
const LONG_BATCH: usize = 64;
/// See [`LONG_BATCH`].
const SMALL: usize = 64;

/// The libraries' handles.
pub struct Handles {
    pub solver: Handle,
    pub blas: Handle,
    /// Of gesvdj: its default tolerance and number of sweeps.
    pub jacobi: Handle,
}

/// Whether the libraries have a function for a factorization, of some sizes at least.
pub fn computes(f: Factorization) -> bool {
    use Factorization::*;
    match f {
        Cholesky
        | Lu
        | Qr
        | HouseholderProduct
        | Svd { .. }
        | SingularValues
        | Eigh
        | Eigenvalues
        | Solve { .. }
        | LuSolve { .. } => true,
        Permutation | Eig { .. } | Eigvals { .. } | Ldl | LdlSolve | Check(_) => false,
    }
}

/// f32 or f64.
pub trait Number: Copy + 'static {
    const ONE: Self;
    fn functions(libraries: &Libraries) -> &Functions<Self>;
}

impl Number for f32 {
    const ONE: f32 = 1.0;
    fn functions(libraries: &Libraries) -> &Functions<f32> {
        &libraries.f32
    }
}

impl Number for f64 {
    const ONE: f64 = 1.0;
    fn functions(libraries: &Libraries) -> &Functions<f64> {
        &libraries.f64
    }
}

/// A factorization with its sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub f: Factorization,
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    /// Columns of right-hand sides, or reflections.
    pub k: usize,
    /// Bytes of an element.
    pub width: usize,
}

/// Offsets of the parts of scratch memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// `info` of each matrix.
    pub info: usize,
    /// Addresses of each matrix, of one or two operands.
    pub pointers: usize,
    /// A copy of the operand, which the library overwrites.
    pub copy: usize,
    /// Vectors of one matrix that nobody asked for: gesvdj faults without room for them.
    pub vectors: usize,
    /// In all.
    pub bytes: usize,
}

impl Call {
    /// `None`: the libraries have no function for it, or none for these sizes.
    pub fn new(f: Factorization, inputs: &[Type]) -> Option<Call> {
        // Also checks that the operands fit.
        if !computes(f) || f.results(inputs).is_err() {
            return None;
        }
        let of = inputs.first()?;
        let (batch, m, n) = f.sizes(of).ok()?;
        let batch = batch.iter().product();
        let k = match f {
            // Right-hand sides are stored by columns.
            Factorization::LuSolve { .. } => inputs.get(2)?.1.iter().rev().nth(1).copied()?,
            _ => inputs.get(1).map_or(1, |ty| ty.1.last().copied().unwrap_or(0)),
        };
        let width = if of.0 == kiln_linalg::Element::F32 { 4 } else { 8 };
        let call = Call { f, batch, m, n, k, width };
        let sizes = [m.checked_mul(n)?, n.checked_mul(k)?, batch];
        let fits = sizes.iter().all(|size| *size > 0 && i32::try_from(*size).is_ok());
        let long = batch > LONG_BATCH && m.max(n) <= SMALL && !call.batched();
        (fits && !long).then_some(call)
    }

    /// Whether one call computes all matrices.
    pub fn batched(&self) -> bool {
        let few = self.batch <= FEW_SYSTEMS.0 && self.n >= FEW_SYSTEMS.1;
        self.batch > 1
            && match self.f {
                Factorization::Cholesky => true,
                Factorization::Lu => self.m == self.n && self.n <= LU_BATCH,
                Factorization::Solve { .. } | Factorization::LuSolve { .. } => !few,
                _ => false,
            }
    }

    /// Rows, columns, and columns of right-hand sides.
    pub fn ints(&self) -> (i32, i32, i32) {
        (self.m as i32, self.n as i32, self.k as i32)
    }

    /// Whether the library gives vectors, and square ones.
    pub fn vectors(&self) -> (i32, i32) {
        match self.f {
            Factorization::Svd { full } => (1, i32::from(!full)),
            Factorization::Eigh => (1, 0),
            _ => (0, 1),
        }
    }

    /// Elements of the library's workspace. Err: the library's status.
    pub fn work<T: Number>(&self, all: &Libraries, handles: &Handles) -> Result<i32, Status> {
        use Factorization::*;
        let (f, h, (m, n, k)) = (T::functions(all), handles.solver, self.ints());
        let ((vectors, economic), mut count) = (self.vectors(), 0);
        let (to, none, none_mut) = (&raw mut count, null::<T>(), null_mut::<T>());
        // SAFETY: queries, which read no matrix.
        let status = unsafe {
            match self.f {
                _ if self.batched() => 0,
                Cholesky => (f.potrf_size)(h, UPPER, n, none_mut, n, to),
                Lu => (f.getrf_size)(h, m, n, none_mut, m, to),
                Qr => (f.geqrf_size)(h, m, n, none_mut, m, to),
                HouseholderProduct => (f.orgqr_size)(h, m, n, k, none, m, none, to),
                Eigh | Eigenvalues => (f.syevd_size)(h, vectors, UPPER, n, none, n, none, to),
                Svd { .. } | SingularValues => (f.gesvdj_size)(
                    h,
                    vectors,
                    economic,
                    n,
                    m,
                    none,
                    n,
                    none,
                    none,
                    n,
                    none,
                    m,
                    to,
                    handles.jacobi,
                ),
                _ => 0,
            }
        };
        if status == 0 { Ok(count.max(0)) } else { Err(status) }
    }

    /// The parts of scratch memory. The library's workspace is first. `None`: too large.
    pub fn layout(&self, work: i32) -> Option<Layout> {
        use Factorization::*;
        let aligned = |bytes: usize| bytes.checked_next_multiple_of(WORKSPACE_ALIGNMENT);
        let matrices = self.batch.checked_mul(self.m * self.n)?.checked_mul(self.width)?;
        let copied = matches!(self.f, Svd { .. } | SingularValues | Eigenvalues);
        let info = aligned((work as usize).checked_mul(self.width)?)?;
        let pointers = aligned(info.checked_add(self.batch * 4)?)?;
        let addresses = if self.batched() { 16 * self.batch } else { 0 };
        let copy = aligned(pointers.checked_add(addresses)?)?;
        let vectors = aligned(copy.checked_add(if copied { matrices } else { 0 })?)?;
        let unwanted = if self.f == SingularValues { self.m.min(self.n) } else { 0 };
        let unwanted = (self.m + self.n).checked_mul(unwanted)?.checked_mul(self.width)?;
        let bytes = aligned(vectors.checked_add(unwanted)?)?;
        Some(Layout { info, pointers, copy, vectors, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_linalg::Element::{F32, F64, I32};

    fn call(f: Factorization, inputs: &[Type]) -> Option<Call> {
        Call::new(f, inputs)
    }

    #[test]
    fn the_host_computes_what_the_libraries_do_not() {
        use Factorization::*;
        let ty = |shape: &[usize]| (F32, shape.to_vec());
        assert!(call(Lu, &[ty(&[2, 5, 4])]).is_some_and(|c| (c.batch, c.m, c.n) == (2, 4, 5)));
        // Not square, empty, of other dtypes.
        assert_eq!(call(Cholesky, &[ty(&[2, 5, 4])]), None);
        assert_eq!(call(Qr, &[ty(&[2, 0, 4])]), None);
        assert_eq!(call(Lu, &[(I32, vec![4, 4])]), None);
        assert_eq!(call(Ldl, &[ty(&[4, 4])]), None);
        assert_eq!(call(Eig { complex: false }, &[ty(&[4, 4])]), None);
        // A long batch of small matrices, without and with a function for batches.
        assert_eq!(call(Qr, &[ty(&[65, 8, 8])]), None);
        assert!(call(Qr, &[ty(&[65, 80, 8])]).is_some());
        assert!(call(Cholesky, &[ty(&[65, 8, 8])]).is_some_and(|c| c.batched()));
        // Sizes beyond 32 bits.
        assert_eq!(call(Qr, &[ty(&[1 << 16, 1 << 15])]), None);
    }

    #[test]
    fn scratch_holds_all_parts() {
        let solve = Factorization::Solve { upper: true, unit: false };
        let inputs = [(F64, vec![9, 3, 3]), (F64, vec![9, 3, 2])];
        let layout = call(solve, &inputs).and_then(|c| c.layout(0)).expect("a layout");
        // 9 times `info`, then 9 addresses of systems and of right-hand sides.
        let want = Layout { info: 0, pointers: 256, copy: 512, vectors: 512, bytes: 512 };
        assert_eq!(layout, want);
        let values = call(Factorization::SingularValues, &[(F32, vec![2, 10, 20])]);
        let layout = values.and_then(|c| c.layout(100)).expect("a layout");
        // Two matrices of 800 bytes, then 10 vectors of 10 and of 20 numbers.
        let want = Layout { info: 512, pointers: 768, copy: 768, vectors: 2560, bytes: 3840 };
        assert_eq!(layout, want);
    }
}

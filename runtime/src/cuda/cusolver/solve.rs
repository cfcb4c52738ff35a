//! What a factorization is in calls of cuSOLVER and cuBLAS.
use super::{
    Handles, LONG_BATCH, Outcome, SMALL,
    library::{Functions, Libraries, Status},
};
use crate::cuda::{CudaError, staging::Staging, stream::Stream, workspace::WORKSPACE_ALIGNMENT};
use kiln_linalg::{Factorization, Type};
use std::ptr::{null, null_mut};

/// `CUBLAS_FILL_MODE_*`.
const LOWER: i32 = 0;
const UPPER: i32 = 1;
/// `CUBLAS_SIDE_RIGHT`.
const RIGHT: i32 = 1;
/// `CUBLAS_OP_N`.
const AS_IT_IS: i32 = 0;
/// Rows up to which cuBLAS factors a batch at once. PyTorch's limit.
const LU_BATCH: usize = 128;
/// Batches of at most this many systems with at least that many rows are solved one by one, as
/// PyTorch does.
const FEW_SYSTEMS: (usize, usize) = (8, 64);

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
    f: Factorization,
    batch: usize,
    m: usize,
    n: usize,
    /// Columns of right-hand sides, or reflections.
    k: usize,
    /// Bytes of an element.
    width: usize,
}

/// Offsets of the parts of scratch memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// `info` of each matrix.
    info: usize,
    /// Addresses of each matrix, of one or two operands.
    pointers: usize,
    /// A copy of the operand, which the library overwrites.
    copy: usize,
    /// In all.
    pub bytes: usize,
}

impl Call {
    /// `None`: the libraries have no function for it, or none for these sizes.
    pub fn new(f: Factorization, inputs: &[Type]) -> Option<Call> {
        // Also checks that the operands fit.
        if !super::computes(f) || f.results(inputs).is_err() {
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
    fn batched(&self) -> bool {
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
    fn ints(&self) -> (i32, i32, i32) {
        (self.m as i32, self.n as i32, self.k as i32)
    }

    /// Whether the library gives vectors, and square ones.
    fn vectors(&self) -> (i32, i32) {
        match self.f {
            Factorization::Svd { full } => (1, i32::from(!full)),
            Factorization::Eigh => (1, 0),
            _ => (0, 1),
        }
    }

    /// Elements of the library's workspace. Err: the library's status.
    pub(super) fn work<T: Number>(
        &self,
        all: &Libraries,
        handles: &Handles,
    ) -> Result<i32, Status> {
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
        let bytes = copy.checked_add(if copied { matrices } else { 0 })?;
        Some(Layout { info, pointers, copy, bytes: aligned(bytes)? })
    }
}

/// Copies bytes on the device: from, to, how many.
type CopyBytes<'a> = dyn Fn(u64, u64, usize) -> Result<(), CudaError> + 'a;

/// A call with its memory.
pub(super) struct Run<'a> {
    pub libraries: &'a Libraries,
    pub handles: &'a Handles,
    pub inputs: &'a [u64],
    pub outputs: &'a [u64],
    pub scratch: u64,
    pub stream: Stream,
    pub copy: &'a CopyBytes<'a>,
}

impl Run<'_> {
    /// Enqueues the library's functions.
    pub fn enqueue<T: Number>(
        &self,
        call: &Call,
        staging: &mut Staging,
    ) -> Result<Outcome, CudaError> {
        use Factorization::*;
        let said = |what: &str, status: Status| {
            Ok(Outcome::Host(format!("cuSOLVER's {what} returns status {status}")))
        };
        let work = match call.work::<T>(self.libraries, self.handles) {
            Ok(work) => work,
            Err(status) => return said("query of its workspace", status),
        };
        let Some(layout) = call.layout(work) else {
            return Ok(Outcome::Host("its workspace is too large".into()));
        };
        let size = call.width;
        let matrices = call.batch * call.m * call.n * size;
        // The matrices that the library overwrites.
        let place = match call.f {
            Svd { .. } | SingularValues | Eigenvalues => self.scratch + layout.copy as u64,
            Eigh => self.outputs[1],
            _ => self.outputs[0],
        };
        let sides = call.batch * call.n * call.k * size;
        match call.f {
            Solve { .. } => (self.copy)(self.inputs[1], place, sides)?,
            LuSolve { .. } => (self.copy)(self.inputs[2], place, sides)?,
            _ => (self.copy)(self.inputs[0], place, matrices)?,
        }
        if call.batched() {
            let each = |at: u64, elements: usize| -> Vec<u8> {
                (0..call.batch)
                    .flat_map(|i| (at + (i * elements * size) as u64).to_le_bytes())
                    .collect()
            };
            let bytes = match call.f {
                Solve { .. } | LuSolve { .. } => {
                    let systems = each(self.inputs[0], call.n * call.n);
                    [each(place, call.n * call.k), systems].concat()
                }
                _ => each(place, call.m * call.n),
            };
            staging.upload(self.scratch + layout.pointers as u64, &bytes, self.stream, false)?;
            return match self.batch::<T>(call, layout) {
                0 => Ok(Outcome::Done),
                status => said("function for batches", status),
            };
        }
        for i in 0..call.batch {
            let status = self.one::<T>(call, layout, (place, work), i);
            if status != 0 {
                return said("function", status);
            }
        }
        if !matches!(call.f, Svd { .. } | SingularValues | Eigh | Eigenvalues) {
            return Ok(Outcome::Done);
        }
        let mut info = vec![0u8; 4 * call.batch];
        staging.download(&mut [(self.scratch + layout.info as u64, &mut info)], self.stream)?;
        Ok(if info.iter().all(|byte| *byte == 0) {
            Outcome::Done
        } else {
            Outcome::Host("cuSOLVER's iteration did not converge".into())
        })
    }

    /// All matrices by one call.
    fn batch<T: Number>(&self, call: &Call, layout: Layout) -> Status {
        use Factorization::*;
        let (f, (_, n, k)) = (T::functions(self.libraries), call.ints());
        let (count, pointers) = (call.batch as i32, self.scratch + layout.pointers as u64);
        let systems = pointers + 8 * call.batch as u64;
        // SAFETY: addresses of as many matrices of these sizes as the batch has.
        unsafe {
            match call.f {
                Cholesky => (f.potrf_batched)(
                    self.handles.solver,
                    UPPER,
                    n,
                    pointers as _,
                    n,
                    self.outputs[1] as _,
                    count,
                ),
                Lu => (f.getrf_batched)(
                    self.handles.blas,
                    n,
                    pointers as _,
                    n,
                    self.outputs[1] as _,
                    self.outputs[2] as _,
                    count,
                ),
                LuSolve { adjoint } => (f.getrs_batched)(
                    self.handles.blas,
                    i32::from(adjoint),
                    n,
                    k,
                    systems as _,
                    n,
                    self.inputs[1] as _,
                    pointers as _,
                    n,
                    // Of the arguments, and on the host.
                    &mut 0,
                    count,
                ),
                Solve { upper, unit } => (f.trsm_batched)(
                    self.handles.blas,
                    RIGHT,
                    if upper { LOWER } else { UPPER },
                    AS_IT_IS,
                    i32::from(unit),
                    k,
                    n,
                    &T::ONE,
                    systems as _,
                    n,
                    pointers as _,
                    k,
                    count,
                ),
                _ => 0,
            }
        }
    }

    /// Matrix `i`, of those at `place` that are overwritten.
    fn one<T: Number>(
        &self,
        call: &Call,
        layout: Layout,
        (place, count): (u64, i32),
        i: usize,
    ) -> Status {
        use Factorization::*;
        let (f, h, (m, n, k)) = (T::functions(self.libraries), self.handles.solver, call.ints());
        let (vectors, economic) = call.vectors();
        let at = |base: u64, elements: usize| (base + (i * elements * call.width) as u64) as *mut T;
        let integers = |base: u64, each: usize| (base + (4 * i * each) as u64) as *mut i32;
        let least = call.m.min(call.n);
        let work = self.scratch as *mut T;
        let info = integers(self.scratch + layout.info as u64, 1);
        let a = at(place, call.m * call.n);
        let (from, to) = (self.inputs, self.outputs);
        // SAFETY: matrices of these sizes at these addresses, and as much workspace as was asked
        // for.
        unsafe {
            match call.f {
                Cholesky => (f.potrf)(h, UPPER, n, a, n, work, count, integers(to[1], 1)),
                Lu => (f.getrf)(h, m, n, a, m, work, integers(to[1], least), integers(to[2], 1)),
                Qr => (f.geqrf)(h, m, n, a, m, at(to[1], least), work, count, info),
                HouseholderProduct => {
                    (f.orgqr)(h, m, n, k, a, m, at(from[1], call.k), work, count, info)
                }
                Eigh | Eigenvalues => {
                    let values = at(to[0], call.n);
                    (f.syevd)(h, vectors, UPPER, n, a, n, values, work, count, info)
                }
                // Of the transposed matrix: the two kinds of vectors change places.
                SingularValues => (f.gesvdj)(
                    h,
                    vectors,
                    economic,
                    n,
                    m,
                    a,
                    n,
                    at(to[0], least),
                    null_mut(),
                    n,
                    null_mut(),
                    m,
                    work,
                    count,
                    info,
                    self.handles.jacobi,
                ),
                Svd { full } => {
                    let (p, q) = if full { (call.m, call.n) } else { (least, least) };
                    let (left, right) = (at(to[0], p * call.m), at(to[2], q * call.n));
                    (f.gesvdj)(
                        h,
                        vectors,
                        economic,
                        n,
                        m,
                        a,
                        n,
                        at(to[1], least),
                        right,
                        n,
                        left,
                        m,
                        work,
                        count,
                        info,
                        self.handles.jacobi,
                    )
                }
                // `CUBLAS_OP_T` is 1.
                LuSolve { adjoint } => (f.getrs)(
                    h,
                    i32::from(adjoint),
                    n,
                    k,
                    at(from[0], call.n * call.n),
                    n,
                    integers(from[1], call.n),
                    at(place, call.n * call.k),
                    n,
                    info,
                ),
                Solve { upper, unit } => (f.trsm)(
                    self.handles.blas,
                    RIGHT,
                    if upper { LOWER } else { UPPER },
                    AS_IT_IS,
                    i32::from(unit),
                    k,
                    n,
                    &T::ONE,
                    at(from[0], call.n * call.n),
                    n,
                    at(place, call.n * call.k),
                    k,
                ),
                _ => 0,
            }
        }
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
        let want = Layout { info: 0, pointers: 256, copy: 512, bytes: 512 };
        assert_eq!(layout, want);
        let values = call(Factorization::SingularValues, &[(F32, vec![2, 10, 20])]);
        let layout = values.and_then(|c| c.layout(100)).expect("a layout");
        assert_eq!(layout, Layout { info: 512, pointers: 768, copy: 768, bytes: 768 + 1792 });
    }
}

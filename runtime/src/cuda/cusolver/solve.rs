//! What a factorization is in calls of cuSOLVER and cuBLAS.
use super::{
    call::{Call, Handles, Layout, Number, UPPER},
    library::{Libraries, Status},
};
use crate::cuda::{CudaError, outcome::Outcome, staging::Staging, stream::Stream};
use kiln_linalg::Factorization;

/// `CUBLAS_FILL_MODE_LOWER`.
const LOWER: i32 = 0;
/// `CUBLAS_SIDE_RIGHT`.
const RIGHT: i32 = 1;
/// `CUBLAS_OP_N`.
const AS_IT_IS: i32 = 0;

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
                Svd { .. } | SingularValues => {
                    let (values, right, left) = match call.f {
                        Svd { full } => {
                            let (p, q) = if full { (call.m, call.n) } else { (least, least) };
                            (at(to[1], least), at(to[2], q * call.n), at(to[0], p * call.m))
                        }
                        _ => {
                            let right = (self.scratch + layout.vectors as u64) as *mut T;
                            (at(to[0], least), right, right.wrapping_add(least * call.n))
                        }
                    };
                    (f.gesvdj)(
                        h,
                        vectors,
                        economic,
                        n,
                        m,
                        a,
                        n,
                        values,
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

//! Errors of the functions that return no `info`, with PyTorch's sentences.
use crate::Error;

/// Whose `info` is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `cholesky` and `linalg.cholesky`.
    Cholesky,
    /// `linalg.inv`.
    Inverse,
    /// `linalg.solve`.
    Solve,
    /// `linalg.lu_factor`.
    LuFactor,
    /// `linalg.ldl_factor`, whose failure is an internal error of PyTorch's.
    LdlFactor,
}

impl Api {
    pub(crate) const ALL: [(&str, Api); 5] = [
        ("cholesky", Api::Cholesky),
        ("inv", Api::Inverse),
        ("solve", Api::Solve),
        ("lu_factor", Api::LuFactor),
        ("ldl_factor", Api::LdlFactor),
    ];

    /// The first failure of a batch. A single matrix has no batch dimension.
    pub(crate) fn check(self, info: &[i32], single: bool) -> Result<(), Error> {
        let Some((at, info)) = info.iter().enumerate().find(|(_, i)| **i != 0) else {
            return Ok(());
        };
        let batch = if single { String::new() } else { format!("(Batch element {at}): ") };
        Err(Error::Failed(match self {
            Api::Cholesky => format!(
                "linalg.cholesky: {batch}The factorization could not be completed because the input is not positive-definite (the leading minor of order {info} is not positive-definite)."
            ),
            Api::Inverse => format!(
                "linalg.inv: {batch}The diagonal element {info} is zero, the inversion could not be completed because the input matrix is singular."
            ),
            Api::Solve => format!(
                "torch.linalg.solve: {batch}The solver failed because the input matrix is singular."
            ),
            Api::LuFactor => format!(
                "torch.linalg.lu_factor: {batch}U[{info},{info}] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
            ),
            Api::LdlFactor => format!(
                "torch.linalg.ldl_factor: {batch}D[{info},{info}] is zero and using it on ldl_solve would result in a division by zero."
            ),
        }))
    }
}

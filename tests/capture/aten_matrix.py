"""Linear algebra cases of gen_aten.py. Vectors whose signs are arbitrary appear as magnitudes or in products."""
import torch
from aten_support import A, Dim, case, f


def definite(*shape, dtype=torch.float32):
    """Symmetric positive-definite matrices."""
    x = f(*shape, shape[-1], dtype=dtype)
    return x @ x.mT + torch.eye(shape[-1], dtype=dtype)


def matrix():
    add = lambda fn, *a, **k: case("matrix", fn, *a, **k)
    f64 = lambda *shape: f(*shape, dtype=torch.float64)
    n, m = Dim("n", min=2, max=64), Dim("m", min=2, max=64)
    square = lambda *shape: f(*shape, shape[-1]) + 3 * torch.eye(shape[-1])
    # Of rank 1, and of zeros: no divisor is 0 by rounding.
    singular = torch.stack([torch.outer(torch.arange(1.0, 4), torch.tensor([1.0, 2, 4])), torch.eye(3), torch.zeros(3, 3)])

    for upper in (False, True):
        add(lambda x, u=upper: A.linalg_cholesky.default(x, upper=u), definite(2, 4))
        add(lambda x, u=upper: A.linalg_cholesky_ex.default(x, upper=u, check_errors=True), definite(3, dtype=torch.float64))
        add(lambda x, u=upper: A.cholesky.default(x, u), definite(5))
        add(lambda x, b, u=upper: A.cholesky_solve.default(b, x, u), definite(2, 3), f(3, 2))
        add(lambda x, b, u=upper: A._cholesky_solve_helper.default(b, x, u), definite(3), f(3, 2))
        add(lambda x, u=upper: A.cholesky_inverse.default(x, u), definite(2, 3))
    add(lambda x: A.linalg_cholesky_ex.default(x)[1], torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, -1, 1]))]))
    add(lambda x: A.linalg_cholesky.default(x @ x.mT + torch.eye(3)), f(4, 3, 3), dyn=[{0: n}])

    for shape in ((3, 3), (2, 5, 3), (3, 5), (0, 3), (2, 0, 0)):
        add(lambda x: (*A.linalg_lu_factor_ex.default(x), *A.linalg_lu.default(x)), f(*shape))
    add(lambda x: A.linalg_lu_factor.default(x), f64(40, 37))
    add(lambda x: A._lu_with_info.default(x), f(2, 3, 3))
    add(lambda x: A.linalg_lu_factor_ex.default(x), singular)
    lu = torch.linalg.lu_factor(f(2, 4, 3))
    add(lambda x, p: A.lu_unpack.default(x, p), *lu)
    add(lambda x, p: A.lu_unpack.default(x, p, True, False), *lu)
    add(lambda x, p: A.lu_unpack.default(x, p, False), *lu)
    add(lambda x: (*A.linalg_lu.default(x), A.linalg_det.default(x[:, :3, :3])), f(2, 5, 4), dyn=[{0: n, 1: Dim("k", min=5, max=64), 2: Dim("l", min=4, max=64)}])

    for x in (square(2, 3), singular, f64(4, 4), f(2, 0, 0)):
        add(lambda x: (A.linalg_det.default(x), A.det.default(x), A._linalg_det.default(x)[0]), x)
        add(lambda x: (*A.linalg_slogdet.default(x), *A.slogdet.default(x), *A._linalg_slogdet.default(x)[:2], A.logdet.default(x)), x)

    for x in (square(3), square(2, 4), f64(4, 4)):
        add(lambda x: (A.linalg_inv.default(x), A.inverse.default(x), *A.linalg_inv_ex.default(x)), x)
    add(lambda x: A.linalg_inv_ex.default(x, check_errors=True)[1], square(3))
    add(lambda x: A.linalg_inv_ex.default(x)[1], singular)
    add(lambda x: A.linalg_inv.default(x + 4 * torch.eye(3)), f(4, 3, 3), dyn=[{0: n}])
    add(lambda x: A.linalg_matrix_power.default(x, -3), square(3))
    add(lambda x: A.linalg_tensorinv.default(x, 1), f(6, 2, 3))
    add(lambda x: A.linalg_tensorinv.default(x), f(2, 3, 6))
    add(lambda x, b: A.linalg_tensorsolve.default(x, b), f(2, 3, 6), f(2, 3))
    add(lambda x, b: A.linalg_tensorsolve.default(x, b, [0, 2]), f(2, 6, 3), f(6))

    for x, b in ((square(3), f(3)), (square(2, 3), f(2, 3)), (square(2, 3), f(3, 2)), (square(3), f(4, 3, 2)), (f64(4, 4), f64(4, 1))):
        add(lambda x, b: (A.linalg_solve.default(x, b), *A.linalg_solve_ex.default(x, b), *A._linalg_solve_ex.default(x, b)), x, b)
    add(lambda x, b: A.linalg_solve.default(x, b, left=False), square(2, 3), f(2, 4, 3))
    add(lambda x, b: A.linalg_solve_ex.default(x, b)[1], singular, f(3, 3, 1))
    for left in (False, True):
        for adjoint in (False, True):
            add(lambda x, p, b, l=left, h=adjoint: A.linalg_lu_solve.default(x, p, b, left=l, adjoint=h), *torch.linalg.lu_factor(square(2, 3)), f(3, 3))
    add(lambda x, p, b: A.lu_solve.default(b, x, p), *torch.linalg.lu_factor(square(3)), f(2, 3, 2))
    for upper in (False, True):
        for unit in (False, True):
            for left in (False, True):
                add(lambda x, b, u=upper, o=unit, l=left: A.linalg_solve_triangular.default(x, b, upper=u, left=l, unitriangular=o), square(2, 3), f(3, 3))
                add(lambda x, b, u=upper, o=unit, t=left: A.triangular_solve.default(b, x, u, t, o), square(3), f(2, 3, 2))

    for shape in ((4, 3), (2, 3, 5), (3, 3), (0, 3), (3, 0), (40, 35)):
        add(lambda x: (*A.linalg_qr.default(x), *A.linalg_qr.default(x, "complete"), *A.linalg_qr.default(x, "r")), f(*shape))
        add(lambda x: (*A.qr.default(x), *A.qr.default(x, False), *A.geqrf.default(x)), f(*shape))
    reflections = torch.geqrf(f(2, 4, 3))
    add(lambda x, tau: (A.linalg_householder_product.default(x, tau), A.orgqr.default(x, tau)), *reflections)
    for left, transpose in ((True, False), (False, True)):
        add(lambda x, tau, c, l=left, t=transpose: A.ormqr.default(x, tau, c, l, t), *reflections, f(2, 4, 4))
    add(lambda x: A.linalg_qr.default(x), f(4, 3), dyn=[{0: n, 1: m}])

    def svd(x):
        u, s, vh = A.linalg_svd.default(x, False)
        p, _, q = A.linalg_svd.default(x)
        v, t, w = A.svd.default(x)
        return u.abs(), s, vh.abs(), u @ (s[..., None] * vh), p @ p.mT, q @ q.mT, v @ (t[..., None] * w.mT), A.linalg_svdvals.default(x)

    for shape in ((4, 3), (2, 3, 5), (30, 40)):
        add(svd, f64(*shape))
    add(lambda x: (*A.linalg_svd.default(x), *A.svd.default(x, False)), f(3, 0))
    add(lambda x: (*A.svd.default(x, True, False), *A._linalg_svd.default(x, False, False), A._linalg_svd.default(x)[1]), f(2, 3, 4))

    def eigh(x, uplo):
        w, v = A.linalg_eigh.default(x, uplo)
        a, u = A._linalg_eigh.default(x, uplo)
        return w, v.abs(), a, u.abs(), *A._linalg_eigh.default(x, uplo, False), A.linalg_eigvalsh.default(x, uplo)

    for uplo in "LU":
        add(lambda x, u=uplo: eigh(x, u), f64(2, 4, 4))

    whole = f(2, 4, 3)
    for x in (whole, singular):
        add(lambda x: (A.linalg_pinv.atol_rtol_float(x), A.linalg_pinv.atol_rtol_float(x, atol=0.5), A.linalg_pinv.atol_rtol_float(x, rtol=0.3)), x)
        add(lambda x: (A.linalg_matrix_rank.atol_rtol_float(x), A.linalg_matrix_rank.atol_rtol_float(x, atol=0.5, rtol=0.3), A.linalg_matrix_rank.default(x, 0.5)), x)
    add(lambda x: (A.linalg_pinv.default(x, 0.3), A.pinverse.default(x), A.linalg_pinv.rcond_tensor(x, torch.tensor(0.2))), f(3, 4))
    add(lambda x, t: (A.linalg_pinv.atol_rtol_tensor(x, atol=t), A.linalg_matrix_rank.atol_rtol_tensor(x, rtol=t), A.linalg_matrix_rank.tol_tensor(x, t)), whole, torch.tensor([0.5, 0.1]))
    add(lambda x: (A.linalg_pinv.atol_rtol_float(x, hermitian=True), A.linalg_matrix_rank.atol_rtol_float(x, hermitian=True)), definite(3))
    add(lambda x: (A.linalg_pinv.atol_rtol_float(x), A.linalg_matrix_rank.atol_rtol_float(x)), f(2, 0, 3))
    for order in (None, 2, -2, 1, torch.inf):
        add(lambda x, o=order: A.linalg_cond.default(x, o), square(2, 3))
    for order in ("nuc", "fro"):
        add(lambda x, o=order: A.linalg_cond.p_str(x, o), singular[:2] if order == "fro" else square(3))
    for order in (2, -2, 1, torch.inf):
        add(lambda x, o=order: A.linalg_matrix_norm.default(x, o), f(2, 4, 3))
    add(lambda x: (A.linalg_matrix_norm.str_ord(x, "nuc", [0, 2], True), A.linalg_norm.ord_str(x[0], "nuc"), A.nuclear_norm.default(x[1])), f(2, 4, 3))
    add(lambda x: (A.linalg_norm.default(x, 2), A.linalg_norm.default(x, 1)), f(4, 0))


def general():
    add = lambda fn, *a, **k: case("eigen", fn, *a, **k)
    c = lambda *shape, dtype=torch.float64: torch.complex(f(*shape, dtype=dtype), f(*shape, dtype=dtype))
    n = Dim("n", min=2, max=64)

    def eig(x):
        """What neither the order of eigenvalues nor the directions of eigenvectors decide: A + (A V - V W) is A, and power sums are traces."""
        w, v = A.linalg_eig.default(x)
        z = x if x.is_complex() else torch.complex(x, torch.zeros_like(x))
        found = torch.view_as_real(z + (z @ v - v * w[..., None, :]))
        sums = [torch.view_as_real((w**k).sum(-1)) for k in (1, 2, 3)]
        largest = torch.view_as_real(v).square().sum(-1)
        others = [torch.view_as_real(op(x).sum(-1)) for op in (A.linalg_eigvals.default, A._linalg_eigvals.default)]
        return found, *sums, w.abs().sort().values, torch.view_as_real(w)[..., 0].sort().values, largest.sum(-2), *others

    for shape in ((4, 4), (2, 5, 5), (12, 12), (2, 0, 0), (1, 1)):
        add(eig, f(*shape, dtype=torch.float64))
        add(eig, c(*shape))
    # Real eigenvalues, with a complex dtype all the same; and a rotation, which has none.
    add(lambda x: A.linalg_eigvals.default(x), torch.diag(torch.tensor([1.0, -2.0, 0.5])))
    add(eig, torch.tensor([[0.0, -1.0, 0], [1, 0, 0], [0, 0, 2]], dtype=torch.float64))
    add(lambda x: torch.view_as_real(A.linalg_eigvals.default(x).sum(-1)), f(3, 4, 4), dyn=[{0: n}])

    symmetric = lambda *shape, dtype=torch.float32: (x := f(*shape, shape[-1], dtype=dtype)) + x.mT
    # A zero diagonal has pivots of two rows.
    hollow = symmetric(2, 6) * (1 - torch.eye(6))
    for x in (symmetric(4), symmetric(2, 5), hollow, symmetric(40, dtype=torch.float64), definite(3), f(2, 0, 0), symmetric(1)):
        add(lambda x: (*A.linalg_ldl_factor.default(x), *A.linalg_ldl_factor_ex.default(x, hermitian=True)), x)
    add(lambda x: A.linalg_ldl_factor_ex.default(x), torch.stack([torch.zeros(3, 3), torch.diag(torch.tensor([1.0, 0, 2])), torch.ones(3, 3)]))
    add(lambda x: A.linalg_ldl_factor_ex.default(x), symmetric(3, 4), dyn=[{0: n}])
    for x, b in ((symmetric(4), f(4, 2)), (hollow, f(6, 3)), (symmetric(30, dtype=torch.float64), f(2, 30, 1, dtype=torch.float64)), (symmetric(2, 1), f(2, 1, 0))):
        add(lambda l, p, b: A.linalg_ldl_solve.default(l, p, b), *torch.linalg.ldl_factor(x), b)

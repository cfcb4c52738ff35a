"""Cases of gen_aten.py on complex numbers, and Fourier transforms."""
import torch
from aten_support import A, Dim, case, f, p

C = torch.complex64


def c(*shape, dtype=torch.float32):
    return torch.complex(f(*shape, dtype=dtype), f(*shape, dtype=dtype))


def writes(x):
    """Both parts, and all of a tensor, through views of each other."""
    x = x.clone()
    parts = torch.view_as_real(x)
    parts[..., 0].mul_(2)
    x[0] = 3 + 1j
    x.imag[:, 0] = 7
    again = torch.view_as_complex(parts)
    again[1:].mul_(1j)
    return x, parts, again


def numbers():
    add = lambda fn, *a, **k: case("complex", fn, *a, **k)
    add(A.complex.default, f(3), f(3))
    add(A.complex.default, f(2, 3, dtype=torch.float64), f(3, dtype=torch.float64))
    add(A.polar.default, p(3), f(3))
    for name in "real imag view_as_real angle sgn abs _conj conj_physical resolve_conj resolve_neg".split():
        add(getattr(A, name).default, c(2, 3))
    for name in "real angle sgn conj_physical resolve_conj resolve_neg".split():
        add(getattr(A, name).default, f(3))
    add(A._neg_view.default, f(3))
    add(A.view_as_complex.default, f(3, 2))
    for name in "exp expm1 log sqrt rsqrt reciprocal sin cos tan sinh cosh tanh square neg isfinite isnan logical_not sigmoid".split():
        add(getattr(A, name).default, torch.cat([c(3), torch.tensor([0j, 1, -1, 1j, -1j], dtype=C)]) + 0.25)
    for name in "add sub mul div eq ne".split():
        op = getattr(A, name).Tensor
        add(op, c(2, 3), c(3))
        add(op, c(2, 3), f(3))
    add(lambda x: (x * 2j, 1 + x, x**2, x**-0.5, x ** (1 + 1j), x / (1 - 1j)), c(3))
    add(lambda x, y: (x * 1j, x + y), f(3), c(3, dtype=torch.float64))
    add(lambda x, y: (torch.where(y > 0, x, y), torch.cat([x, y]), x.masked_fill(y > 0, 1j)), c(3), f(3))
    add(lambda x: (x.reshape(-1), x.mT, x[1:, 0], x.flip(0), x.roll(1, 1), x.expand(2, 2, 3)), c(2, 3))
    add(lambda x: (x.sum(), x.mean(1), x.cumsum(0), x.prod(), x.prod(1), x.any(0), x.norm()), c(2, 5))
    add(lambda x, y: (x @ y, torch.addmm(x @ y, x, y, beta=2, alpha=1j), torch.einsum("ij,jk->k", x, y), x.mH @ x), c(2, 3), c(3, 4))
    add(lambda x: (x.to(torch.complex128), torch.ones_like(x), torch.full((2,), 1 + 2j), torch.eye(2, dtype=C)), c(2))
    add(writes, c(2, 3))
    add(lambda x: x.abs(), c(3, 2), dyn=[{0: Dim("n", min=2, max=64)}])


def fourier():
    add = lambda fn, *a, **k: case("fourier", fn, *a, **k)
    for name in "fft ifft hfft irfft".split():
        add(getattr(A, f"fft_{name}").default, c(2, 12))
        add(lambda x, op=getattr(A, f"fft_{name}").default: op(x, 7, 0, "ortho"), c(5, 2))
        add(getattr(A, f"fft_{name}2").default, c(4, 3))
        add(lambda x, op=getattr(A, f"fft_{name}n").default: op(x, [3, 6], [0, 1], "forward"), c(2, 5))
    for name in "rfft ihfft".split():
        add(getattr(A, f"fft_{name}").default, f(2, 12))
        add(lambda x, op=getattr(A, f"fft_{name}").default: op(x, 7, 0, "ortho"), f(5, 2))
        add(getattr(A, f"fft_{name}2").default, f(4, 3))
        add(lambda x, op=getattr(A, f"fft_{name}n").default: op(x, [3, 6], [0, 1], "forward"), f(2, 5))
    add(A.fft_fft.default, c(521))  # by a convolution
    add(A.fft_rfft.default, f(66))  # two factors
    add(A.fft_fft.default, c(2, 40, dtype=torch.float64))
    add(A.fft_rfft.default, f(3, 8), dyn=[{0: Dim("n", min=2, max=64)}])
    add(lambda x: A._fft_c2c.default(x, [0, 1], 1, False), c(2, 3))
    add(lambda x: A._fft_r2c.default(x, [1], 2, False), f(2, 4))
    add(lambda x: A._fft_c2r.default(x, [1], 0, 5), c(2, 3))
    for name in "fftshift ifftshift".split():
        add(getattr(A, f"fft_{name}").default, c(2, 3))
        add(lambda x, op=getattr(A, f"fft_{name}").default: op(x, [1]), f(2, 5))
    add(lambda x: (x + A.fft_fftfreq.default(4, 0.5), x + A.fft_rfftfreq.default(6, 2.0)), f(4))
    w = p(6)
    add(lambda x, w: A.stft.center(x, 8, 3, 6, w, True, "reflect", True, None, True), f(2, 14), w)
    add(lambda x: A.stft.default(x, 8, 4, None, None, False, None, False), f(16))
    add(lambda x, w: A.stft.default(x, 6, 3, None, w, False, False, True), c(15), w)
    add(lambda x, w: A.istft.default(x, 8, 2, 6, w, True, True, True, 9), c(2, 5, 6), w)


def fourier_symbolic():
    """Transforms of symbolic lengths."""
    add = lambda fn, *a, **k: case("fourier_symbolic", fn, *a, **k)
    n, m = Dim("n", min=4, max=64), Dim("m", min=16, max=64)
    add(A.fft_fft.default, c(3, 10), dyn=[{1: n}])
    add(lambda x: A.fft_ifft.default(x, None, -1, "ortho"), c(9), dyn=[{0: n}])
    add(lambda x: A.fft_fftn.default(x, None, [0, 1]), f(4, 16), dyn=[{0: n, 1: m}])
    add(lambda x: (A.fft_irfft.default(x), A.fft_hfft.default(x, None, 1, "ortho")), c(2, 5), dyn=[{1: n}])
    add(lambda x: A._fft_c2r.default(x, [1], 2, 2 * x.shape[1] - 1), c(2, 5), dyn=[{1: n}])
    add(A.fft_rfft.default, f(9), dyn=[{0: n}])
    add(lambda x: A.fft_rfft.default(x, 7), f(16), dyn=[{0: m}])
    for name in "fftshift ifftshift".split():
        add(getattr(A, f"fft_{name}").default, c(2, 5), dyn=[{1: n}])
    add(lambda x: A.stft.center(x, 8, 3, 6, None, True, "reflect", True, None, True), f(2, 21), dyn=[{1: m}])

"""Small functions through torch.compile(backend="kiln") against eager."""
import pytest
import torch

import kiln_torch
from kiln_torch import _kiln, kiln, reports
from kiln_torch.program import Program

f = torch.randn


def compiled(fn, **options):
    return torch.compile(fn, backend=kiln, options=options or None)


def same(got, want, strides=True):
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    flat = lambda x: torch.utils._pytree.tree_leaves(x)
    for a, b in zip(flat(got), flat(want)):
        if isinstance(b, torch.Tensor):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert not strides or a.stride() == b.stride() or b.numel() < 2 or 1 in b.shape


def mutates(x, y):
    x.mul_(2)
    y[1:] += x[:-1]
    return x.sum()


def aliases(x):
    v = x.view(-1)
    return v, v[2:5], x.t()


def kwargs(x, *, scale=2.0, flag=True):
    return {"a": x * scale if flag else x, "b": (x + 1, None, 3)}


FUNCTIONS = {
    "pointwise": (lambda x, y: torch.sin(x) * y + 1, lambda: (f(4, 5), f(5))),
    "reduction": (lambda x: (x.sum(), x.mean(0), x.amax(1, keepdim=True)), lambda: (f(4, 5),)),
    "softmax of a pointwise": (lambda x, y: (x.sin() + y).softmax(-1), lambda: (f(6, 7), f(7))),
    "matmul": (lambda x, y: torch.nn.functional.gelu(x @ y), lambda: (f(3, 8, 16), f(16, 4))),
    "mutation": (mutates, lambda: (f(4), f(4))),
    "aliases": (aliases, lambda: (f(3, 4),)),
    "an input returned": (lambda x: (x, x + 1, x), lambda: (f(3),)),
    "keyword arguments and structures": (lambda x: kwargs(x, scale=0.5), lambda: (f(3),)),
    "0-d": (lambda x, y: x * y + x.item() if False else x * y, lambda: (torch.tensor(2.0), f(3))),
    "empty": (lambda x: (x * 2, x.sum()), lambda: (f(0, 3),)),
    "integers overflow": (lambda x: x * 2 + 1, lambda: (torch.tensor([2**31 - 1, -5], dtype=torch.int32),)),
    "promotion": (lambda x, y: (x + y, x / 2, x > y), lambda: (torch.arange(5), f(5))),
    "bools": (lambda x: (~(x > 0), (x > 0).sum(), torch.where(x > 0, x, -x)), lambda: (f(7),)),
    "transposed input": (lambda x: x.exp().sum(1), lambda: (f(5, 4).t(),)),
    "channels last": (lambda x: torch.relu(x) + 1, lambda: (f(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),)),
    "expanded input": (lambda x: x + 1, lambda: (f(1, 4).expand(3, 4),)),
    "an input at an offset": (lambda x: x * 3, lambda: (f(10)[3:],)),
    "index and gather": (lambda x, i: (x[i], x.gather(0, i[:, None].expand(-1, 4))), lambda: (f(6, 4), torch.tensor([0, 5, 2]))),
    "cat and split": (lambda x, y: torch.cat([x, y], 1).split([2, 3, 3], 1), lambda: (f(2, 4), f(2, 4))),
    "a weight of another dtype": (lambda x, w: torch.lerp(x, x + 1, w), lambda: (f(4, dtype=torch.float64), torch.tensor(0.3))),
    "an index without elements": (lambda x, i: x.scatter_reduce(0, i, x, "sum", include_self=False), lambda: (f(1, 1), torch.zeros(0, 4, dtype=torch.int64))),
    "f64": (lambda x: torch.tanh(x) @ x.T, lambda: (f(3, 4, dtype=torch.float64),)),
    "bf16": (lambda x: torch.relu(x) + x, lambda: (f(3, 4).bfloat16(),)),
    "a Fourier transform": (lambda x: torch.fft.rfft(x[:, :1] * torch.arange(8.0, device=x.device)), lambda: (f(5, 4),)),
    "complex numbers": (lambda x: ((x * 2j + 1).t(), (x @ x.T).conj(), x.abs(), x.mul_(1 - 1j)), lambda: (f(3, 4, dtype=torch.complex64),)),
    "a conjugate": (lambda x: (x.real + 1, x.exp()), lambda: (f(3, 4, dtype=torch.complex128).conj(),)),
    "lazily negated": (lambda x: x + 1, lambda: (f(3, 4, dtype=torch.complex64).conj().imag,)),
    "constant": (lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=x.device), lambda: (f(2, 3),)),
    "arange and full": (lambda x: x + torch.arange(4, device=x.device) + torch.full((4,), 0.5, device=x.device), lambda: (f(3, 4),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_function_as_eager(name, dynamic):
    fn, inputs = FUNCTIONS[name]
    given = inputs()
    copies = lambda: [t.detach().clone(memory_format=torch.preserve_format) if t.is_contiguous() else t for t in given]
    mine, theirs = copies(), copies()
    with torch.no_grad():
        want = fn(*theirs)
        got = torch.compile(fn, backend=kiln, dynamic=dynamic)(*mine)
    # A result whose memory has gaps of dynamic sizes becomes dense.
    same(got, want, strides=not (dynamic and name == "cat and split"))
    same(mine, theirs)
    assert reports and all(r.programs > 0 or r.nodes == 0 for r in reports), reports
    assert all(not r.eager for r in reports), reports


def test_a_growing_size_compiles_twice():
    fn = compiled(lambda x: (x * 2).softmax(-1).sum(0))
    for n in (4, 7, 9, 12, 33):
        x = f(n, n + 1)
        same(fn(x), (x * 2).softmax(-1).sum(0))
    assert len(reports) <= 2


def test_ops_outside_the_table_stay_eager_and_are_named():
    def fn(x):
        y = torch._fake_quantize_learnable_per_tensor_affine(x, torch.tensor([0.1]), torch.tensor([0.0]), 0, 255)
        return y.sin() + 1

    x = f(5, 5)
    same(compiled(fn)(x), fn(x))
    assert any("fake_quantize" in op for r in reports for op in r.eager)
    assert "fake_quantize" in kiln_torch.explain(fn, x) and "test_functions.py" in kiln_torch.explain(fn, x)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="kiln.strict"):
        compiled(fn, **{"kiln.strict": True})(x)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_call_that_a_row_refuses_is_decomposed(monkeypatch, dynamic):
    """Where PyTorch has a decomposition; otherwise that call alone stays eager."""
    made, aten = Program.__init__, torch.ops.aten

    def refusing(self, inputs, nodes, *rest):
        for n in nodes:
            if n.target in (aten.roll.default, aten.aminmax.default) or n.target is aten.exp.default and n.args[0].target is aten.sin.default:
                raise _kiln.UnsupportedError("refused", [n.name], "refused")
        made(self, inputs, nodes, *rest)

    monkeypatch.setattr(Program, "__init__", refusing)
    fn = lambda x: (x.roll(1, 0).exp(), x.aminmax(dim=1)[1], x.sin().exp() * x.exp())
    x = f(3, 4)
    same(torch.compile(fn, backend=kiln, dynamic=dynamic)(x), fn(x))
    assert [(*r.eager.values(),) for r in reports] == [("refused",)], reports


def masked(q, k, v, m):
    return torch.nn.functional.scaled_dot_product_attention(q * 2, k, v, attn_mask=m > 0)


def grouped(q, k, v, m):
    return torch.nn.functional.scaled_dot_product_attention(q, k[:, :2], v[:, :2], is_causal=True, scale=0.3, enable_gqa=True) + m.sum()


@pytest.mark.parametrize("fn", [masked, grouped])
@pytest.mark.parametrize("dynamic", [False, True])
def test_attention_is_part_of_one_program(fn, dynamic):
    q, k, v = (f(2, 4, 17, 32) for _ in range(3))
    m = f(2, 1, 17, 17)
    with torch.no_grad():
        same(torch.compile(fn, backend=kiln, dynamic=dynamic)(q, k, v, m), fn(q, k, v, m), strides=False)
    assert [(r.programs, r.eager) for r in reports] == [(1, {})]


def test_frozen_parameters_are_constants():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 5)).eval()
    model[1].running_var.uniform_(0.5, 2)
    x, fast = f(2, 3, 8, 8), torch.compile(model, backend=kiln, options={"freezing": True})
    with torch.no_grad():
        want = model(x)
        torch.testing.assert_close(fast(x), want, rtol=1e-4, atol=1e-5)
        model[4].bias.add_(1)
        torch.testing.assert_close(fast(x), want, rtol=1e-4, atol=1e-5)
    assert len(reports) == 1 and reports[0].programs == 1
    # With gradients parameters are inputs.
    fast(x).sum().backward()
    assert model[4].bias.grad is not None
    torch.testing.assert_close(fast(x).detach(), model(x).detach(), rtol=1e-4, atol=1e-5)


def test_an_unknown_option_is_an_error():
    with pytest.raises(Exception, match="no_such_option"):
        compiled(lambda x: x + 1, no_such_option=1)(f(3))


def test_a_mode_with_cuda_graphs_compiles_for_processors():
    reports.clear()
    fn = torch.compile(lambda x: torch.relu(x) + 1, backend=kiln, mode="reduce-overhead")
    x = f(4)
    same(fn(x), torch.relu(x) + 1)
    assert [r.programs for r in reports] == [1] and not reports[0].eager


def test_inference_mode_and_threads():
    import concurrent.futures

    fn = compiled(lambda x: torch.relu(x @ x.T).sum(1))
    x = f(16, 16)
    with torch.inference_mode():
        want = torch.relu(x @ x.T).sum(1)
        same(fn(x), want)

    def call(_):
        # The default device is each thread's own, and a condition of the compiled code.
        with torch.no_grad(), torch.device(x.device):
            return fn(x)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        # Compiled by one: Dynamo refuses calls of a thread while another one traces, with any backend.
        same(pool.submit(call, 0).result(), want)
        for got in pool.map(call, range(32)):
            same(got, want)


def test_histogram_of_integers(device):
    """PyTorch counts integers on GPUs only."""
    if device == "cpu":
        pytest.skip("not implemented by PyTorch")
    x = torch.randint(-20, 30, (1000,))
    for bins, low, high in ((8, 0, 7), (7, -20, 30), (5, 0, 0)):
        f = lambda x: torch.histc(x, bins, low, high)
        torch.testing.assert_close(torch.compile(f, backend="kiln")(x), f(x))


def eigen(x):
    """What neither the order of eigenvalues nor the directions of eigenvectors decide."""
    w, v = torch.linalg.eig(x)
    z = x.to(w.dtype)
    return torch.view_as_real(z + (z @ v - v * w.unsqueeze(-2))), w.abs().sort().values, v.abs().square().sum(-2), torch.view_as_real(torch.linalg.eigvals(x).sum(-1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_eigenvalues_of_any_square_matrix(dtype):
    x = torch.randn(2, 6, 6, dtype=dtype)
    same(compiled(eigen)(x), eigen(x))
    assert all(not r.eager for r in reports), reports


def test_symmetric_systems_by_ldl():
    def fn(x, b):
        packed, pivots, info = torch.linalg.ldl_factor_ex(x + x.mT)
        return torch.linalg.ldl_solve(packed, pivots, b), info

    x, b = f(3, 7, 7), f(3, 7, 2)
    same(compiled(fn)(x, b), fn(x, b))
    assert all(not r.eager for r in reports), reports


# Vectors whose signs are arbitrary are squared, or multiplied back.
FACTORIZATIONS = {
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.mT + 4 * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)).sin(),
    "det": lambda x: (torch.linalg.det(x), *torch.linalg.slogdet(x.mT)),
    "eigh": lambda x: (lambda w, v: (w.cos(), (v * w.unsqueeze(-2)) @ v.mT))(*torch.linalg.eigh(x + x.mT)),
    "inv": lambda x: torch.linalg.inv(x + 4 * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)).exp(),
    "lu": lambda x: torch.linalg.lu(x[..., :, :5]),
    "qr": lambda x: (*torch.linalg.qr(x[..., :5, :]), torch.linalg.qr(x[..., :, :5], mode="complete")[0]),
    "solve": lambda x: torch.linalg.solve(x + 4 * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device), x.sin()),
    "svd": lambda x: (lambda u, s, v: (s, u.square(), (u * s.unsqueeze(-2)) @ v))(*torch.linalg.svd(x[..., :5, :], full_matrices=False)),
    "triangular": lambda x: torch.linalg.solve_triangular(x + 4 * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device), x.mT, upper=True),
}


@pytest.mark.parametrize("name", FACTORIZATIONS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_factorizations_are_parts_of_programs(name, dynamic):
    fn = FACTORIZATIONS[name]
    for shape in ((8, 8), (3, 8, 8), (3, 8, 8)):
        x = torch.randn(shape, dtype=torch.float64)
        same(compiled(fn, dynamic=dynamic)(x), fn(x))
        # Column-major matrices, as PyTorch's solvers return them.
        same(compiled(fn, dynamic=dynamic)(x.mT.contiguous().mT), fn(x))
    assert all(not r.eager for r in reports), reports


def test_samplers_of_cudnn_are_grid_sample():
    """cuDNN's ops exist on GPUs alone, but their decompositions run anywhere."""
    from kiln_torch.decompositions import cudnn_grid_sampler, cudnn_grid_sampler_backward

    x, at = torch.randn(2, 3, 5, 6, requires_grad=True), (torch.rand(2, 4, 3, 2) * 3 - 1.5).requires_grad_()
    want, cotangent = torch.nn.functional.grid_sample(x, at, align_corners=True), torch.randn(2, 3, 4, 3)
    torch.testing.assert_close(cudnn_grid_sampler(x, at), want)
    torch.testing.assert_close(cudnn_grid_sampler_backward(x, at, cotangent), torch.autograd.grad(want, (x, at), cotangent))


OUT_OF_RANGE = {
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
    "index": lambda x, i: x[i],
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None].expand(-1, 4), x),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_indices_out_of_range_are_refused_on_processors(name, device):
    if device != "cpu":
        pytest.skip("kernels on GPUs read the nearest element")
    fast, x = compiled(OUT_OF_RANGE[name]), f(5, 4)
    same(fast(x, torch.tensor([0, 4])), OUT_OF_RANGE[name](x, torch.tensor([0, 4])))
    for index in ([0, 5], [-6, 1], *([] if name == "index" else [[-1, 0]])):
        with pytest.raises((IndexError, RuntimeError)):
            OUT_OF_RANGE[name](x, torch.tensor(index))
        with pytest.raises(IndexError, match="is out of bounds for a dimension of size 5"):
            fast(x, torch.tensor(index))
    # Negative ones count from the end.
    if name == "index":
        same(fast(x, torch.tensor([-5, -1])), x[torch.tensor([-5, -1])])

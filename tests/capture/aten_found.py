"""Cases of gen_aten.py that random functions and public models led to."""
import torch
import torch.nn.functional as F
from aten_support import A, Dim, case, f, i


def found():
    add = lambda fn, *a, **k: case("found", fn, *a, **k)
    n, m, long = Dim("n", min=2, max=64), Dim("m", min=2, max=64), Dim("long", min=8, max=64)

    # The dtype of losses and distances of two dtypes.
    for x, y in ((torch.float32, torch.float64), (torch.float64, torch.float32), (torch.bfloat16, torch.float32)):
        for reduction in ("none", "sum", "mean"):
            add(lambda x, y, r=reduction: F.huber_loss(x, y, reduction=r), f(3, 4, dtype=x), f(3, 4, dtype=y))
            if x == torch.float64:
                # Else the result has the accuracy of the input's logarithm.
                add(lambda x, y, r=reduction: F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction=r), f(3, 4, dtype=x), f(3, 4, dtype=y))
    add(lambda x, y: torch.cdist(x, y), torch.zeros(1, 0, dtype=torch.bfloat16), torch.zeros(0, 0, 0))

    # The sign of NaN; positions of values among boundaries of another dtype; no elements by 0.
    add(lambda x: (torch.sign(x), torch.sgn(-x)), torch.tensor([float("nan"), -2.0, -0.0, 0.0, float("inf")]))
    for d in (torch.int64, torch.float32):
        add(lambda x, s: torch.bucketize(x, s), torch.tensor([-5, 3, 300], dtype=d), torch.tensor([0, 1, 4], dtype=torch.uint8))
    add(lambda x: (x % 0, x.div(0, rounding_mode="floor"), torch.fmod(x, 0)), i(-9, 9, 0, 3))

    # Writes through bits of another dtype.
    def bits(x, dtype):
        y = x.clone()
        v = y.view(dtype)
        v[..., 0] = 1
        return y, v, y.view(torch.uint8)

    for x in (i(-9, 9, 3, 4).to(torch.int8), i(-9, 9, 3, 4).to(torch.int32), f(3, 4)):
        for dtype in (torch.uint8, torch.int8, torch.int16):
            add(lambda x, d=dtype: bits(x, d), x)
    add(lambda x: bits(x, torch.int32), i(-9, 9, 3, 4).to(torch.int8))
    add(lambda x: bits(x, torch.int16), i(-9, 9, 3, 4).to(torch.int32), dyn=[{0: n}])

    # Without elements.
    for dtype in (torch.float32, torch.float16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool):
        add(lambda x: (x.median(), x.nanmedian()), torch.zeros(3, 0, dtype=dtype))
    for shape in ((1, 0, 0), (0, 4, 4), (2, 0, 4, 4)):
        add(lambda x: F.pixel_unshuffle(x, 2), torch.zeros(shape))
    for shape in ((0, 3, 8, 4), (0, 8, 4)):
        add(lambda x: F.scaled_dot_product_attention(x, x, x), torch.zeros(shape))
    add(lambda x: F.max_pool1d(x, 3, stride=1, padding=1), torch.zeros(0, 3, 4))
    add(lambda x: F.max_pool2d(x, 2), torch.zeros(0, 3, 4, 4))
    add(lambda x: torch.histogram(x, 3), torch.zeros(2, 0))
    add(lambda x: torch.histogram(x, 3, density=True).bin_edges, torch.zeros(2, 0))

    # A slice whose end is before its start.
    add(lambda x: x.view(-1)[3:1], f(4, 3), dyn=[{0: n, 1: m}])
    add(lambda x: x[2:-3], f(9, 3), dyn=[{0: long}])

    # Rows of what is channels last by its strides.
    for at in (0, 1, 2, 3):
        add(lambda x, at=at: x.movedim(-1, -3).index_select(at, torch.tensor([1, 0, 1])), f(5, 6, 3, 2), dyn=[{0: n, 1: m}])

    # Means of equal elements.
    add(lambda x: F.instance_norm((x > -100).float()), f(2, 3, 7, 7), dyn=[{0: n}])

    # Windows of signals.
    for name in "hann hamming blackman bartlett kaiser".split():
        op = getattr(A, f"{name}_window")
        for length in (0, 1, 2, 9):
            add(lambda x, op=op, n=length: op.default(n) + x, f(1))
            add(lambda x, op=op, n=length: op.periodic(n, False, dtype=torch.float64) + x, f(1))
    add(lambda x: A.hamming_window.periodic_alpha(8, True, 0.6) + x, f(1))
    add(lambda x: A.hamming_window.periodic_alpha_beta(8, False, 0.6, 0.3) + x, f(1))
    add(lambda x: A.kaiser_window.beta(8, True, 4.0) + x, f(1))

    # Numbers that are truncated to the result's dtype first.
    for start, end, step in ((0.0, -8.000001, -4.0), (1.0, 5.000001, 2.0), (-0.9, 2.1, 2.0), (2.1, -2.9, -1.0), (0.1, -7.9, -4.0)):
        for dtype in (torch.int64, torch.int32, torch.float32):
            add(lambda x, n=(start, end, step), d=dtype: A.arange.start_step(*n, dtype=d) + x, i(0, 5, 1))
    add(lambda x: torch.arange(3.1, dtype=torch.int64) + x, i(0, 5, 1))
    for op in (torch.linspace, torch.logspace):
        for start, end in ((4.3, -3), (0, 1.2), (1, 1.2)):
            # Exact interpretation does not round the numbers to 16 bits.
            for dtype in (torch.int64, torch.bfloat16) if op is torch.linspace else (torch.int64,):
                add(lambda x, op=op, n=(start, end), d=dtype: op(*n, 7, dtype=d) + x, i(0, 5, 1))
    add(lambda x, s: torch.logspace(s, 1.2, 4, dtype=torch.int64) + x, i(0, 5, 1), torch.tensor(0.5))
    add(lambda x: (x.prod(1, dtype=torch.bool), x.sum(1, dtype=torch.bool)), i(0, 3, 5, 3))

    # Unique slices.
    for dim in (0, 1, -1):
        for x in (i(0, 2, 4, 2, 3), i(0, 2, 4, 2, 3) > 0, i(0, 2, 4, 2, 3).float()):
            add(lambda x, d=dim: torch.unique(x, dim=d, return_inverse=True, return_counts=True), x)
            add(lambda x, d=dim: torch.unique_consecutive(x, dim=d, return_inverse=True, return_counts=True), x)
    add(lambda x: torch.unique(x, dim=0), i(0, 2, 6))
    add(lambda x: torch.unique(x, dim=0), i(0, 2, 6, 2), dyn=[{0: n}])

    # Powers of 16-bit floats that overflow them, of norms that do not.
    large = (f(3, 5) * 100).half()
    for p in (2, 3, 6, -1, 0.5):
        add(lambda x, p=p: torch.linalg.vector_norm(x, p, dim=1), large)
        add(lambda x, p=p: A.norm.ScalarOpt_dim(x, p, [0], True), large)
    add(lambda x: torch.linalg.matrix_norm(x), large)

    # Attention of queries and keys of different batches.
    sdpa = A.scaled_dot_product_attention.default
    add(sdpa, f(1, 2, 3, 4), f(3, 2, 5, 4), f(3, 2, 5, 4))
    add(sdpa, f(1, 2, 3, 4), f(3, 2, 5, 4), f(3, 2, 5, 4), dyn=[None, {0: n}, {0: n}])
    add(sdpa, f(3, 2, 3, 4), f(1, 2, 5, 4), f(3, 1, 5, 4))
    add(sdpa, f(2, 1, 3, 4), f(2, 3, 5, 4), f(2, 3, 5, 4))
    add(sdpa, f(2, 1, 2, 3, 4), f(1, 3, 2, 5, 4), f(2, 5, 4))

    # Strides without gaps, which are an order of dimensions; of one element each any stride does.
    def dense(x):
        y = x + 1
        y.as_strided((5, 3), (1, 5))[1:3].mul_(2)
        return y, y.as_strided((3, 1, 5), (5, 7, 1)), y.as_strided((1, 5, 1, 3), (3, 1, 15, 5)), y.t().as_strided((3, 5), (1, 3))

    add(dense, f(3, 5))

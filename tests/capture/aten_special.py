"""Cases of gen_aten.py: special functions, divisors, polynomials, and dtypes as PyTorch chooses them."""
import torch
from aten_support import A, Dim, b, case, f, i, inf, nan, u


def functions(add):
    points = torch.tensor([-30.0, -9.5, -4.0, -0.3, 0.0, 1e-3, 1.0, 2.0, 5.5, 19.0, 42.0])
    for name in ("bessel_j0", "bessel_j1", "modified_bessel_i0", "modified_bessel_i1", "spherical_bessel_j0"):
        op = getattr(A, f"special_{name}").default
        add(lambda x, op=op: op(x), points)
    for name in ("bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1"):
        op = getattr(A, f"special_{name}").default
        add(lambda x, op=op: op(x), points[4:] if name != "bessel_y1" else points)
    add(lambda x: A.special_airy_ai.default(x), torch.tensor([-20.0, -11.5, -10.0, -7.1, -4.9, -2.9, -1.0, 0.0, 1.9, 2.1, 12.0, 25.0]))
    add(lambda x: A.special_bessel_j0.default(x), i(-3, 9, 4))
    add(lambda x: A.special_spherical_bessel_j0.default(x), torch.tensor([inf, -inf, nan]))

    shape, value = torch.tensor([0.5, 3.0, 20.0, 40.0, 0.0, 2.0, 2.0, -1.0, inf]), torch.tensor([2.0, 0.1, 25.0, 35.0, 1.0, 0.0, inf, 1.0, 1.0])
    add(lambda a, x: A.igamma.default(a, x), shape, value)
    add(lambda a, x: A.igammac.default(a, x), shape, value)
    n = Dim("n", min=2, max=64)
    add(lambda a, x: A.igamma.default(a, x), shape, value, dyn=[{0: n}, {0: n}])

    x, order = torch.tensor([[-2.0], [-1.0], [-0.4], [0.0], [0.7], [1.0], [1.5]]), torch.tensor([-1.0, 0.0, 1.0, 2.7, 11.0])
    kinds = [f"{shifted}chebyshev_polynomial_{k}" for shifted in ("", "shifted_") for k in "tuvw"]
    for name in kinds + ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]:
        op = getattr(A, f"special_{name}")
        add(lambda x, n, op=op: op.default(x, n), x, order)
        add(lambda x, op=op: op.n_scalar(x, 3), x[:, 0])
        add(lambda n, op=op: op.x_scalar(0.25, n), i(0, 6, 3))
    add(lambda x, n: A.special_hermite_polynomial_h.default(x, n), x[:3, 0], torch.tensor([2.0, 200.0, nan]))

    add(lambda x, y: A.gcd.default(x, y), i(-60, 60, 3, 4), i(-60, 60, 4))
    add(lambda x, y: A.lcm.default(x, y), i(-9, 9, 12), i(-9, 9, 12))
    add(lambda x, y: A.lcm.default(x, y), i(0, 120, 5, dtype=torch.int8), i(0, 120, 5, dtype=torch.uint8))
    add(lambda x, y: A.gcd.default(x, y), i(1, 99, 5), i(1, 99, 5), dyn=[{0: n}, {0: n}])


def special():
    add = lambda fn, *a, **k: case("special", fn, *a, **k)
    functions(add)

    add(lambda x: A.nonzero_static.default(x, size=5), i(0, 2, 3, 4))
    add(lambda x: A.nonzero_static.default(x, size=9, fill_value=-7), i(0, 2, 5))
    add(lambda x: A.nonzero_static.default(x, size=2), torch.tensor(3.0))
    add(lambda x: A.bincount.default(x, None, 2), i(0, 6, 0))

    add(lambda x, y, z: A._trilinear.default(x, y, z, [1, 3], [0], [1, 2], [2, 3]), f(2, 5), f(3, 5, 4), f(2, 4))
    add(lambda x: A.resize.default(x, [2, 5]), f(3, 4))
    add(lambda x: A._histogramdd_bin_edges.default(x, [3, 2]), f(9, 2))
    add(lambda x: A._histogramdd_from_bin_cts.default(x, [3, 2], density=True), f(9, 2))
    add(lambda x, e: A._histogramdd_from_bin_tensors.default(x, [e, e]), f(9, 2), torch.tensor([-1.0, 0.0, 0.5, 2.0]))

    add(lambda x, y: A.clamp_min.Tensor(x, y), f(3, 4), f(4))
    add(lambda x, y: A.clamp_max.Tensor(x, y), i(-5, 5, 4), f(4))

    # 0-d tensors, no dimensions, no elements.
    add(lambda x: (A.any.dims(x, []), A.all.dims(x, []), A.all.dims(x, [0, 1], True), A.all.dims(x, None)), i(0, 2, 3, 4))
    add(lambda x: (A.softmax.int(x, 0), A.log_softmax.int(x, -1), A.prelu.default(x, x.view(1))), torch.tensor(-2.0))
    add(lambda x, y: A.cosine_similarity.default(x, y, 0), torch.tensor(-2.0), torch.tensor(3.0))
    add(lambda x: A.avg_pool1d.default(x, 6, 3, 2), f(0, 3, 9))
    add(lambda x: A.avg_pool2d.default(x, 2), i(0, 5, 0, 3, 9, 4))
    add(lambda x, m, v: A.batch_norm.default(x, None, None, m, v, True, 0.1, 1e-5, False), f(0), f(0), f(0))
    add(lambda x, w: A.group_norm.default(x, 2, w, w, -0.5), f(2, 6, 3), f(6))
    bags = (f(5, 3), torch.tensor([4, 1, 1, 0, 4, 4]), torch.tensor([0, 3]), f(6))
    for padding in (-1, 1, None):
        add(lambda x, at, of, w, padding=padding: A.embedding_bag.padding_idx(x, at, of, False, 0, False, w, False, padding)[0], *bags)

    # Integers and bools.
    for op, n in ((A.avg_pool1d.default, 1), (A.avg_pool2d.default, 2), (A.avg_pool3d.default, 3)):
        add(lambda x, op=op: op(x, 3, 2, 1, True, False), i(-(2**40), 2**40, 2, *[6] * n))
    add(lambda x: A.avg_pool2d.default(x, 2, 2, 1), i(-9, 9, 1, 2, 5, 5))
    add(lambda x: A.avg_pool2d.default(x, 2, divisor_override=3), i(-9, 9, 1, 2, 4, 4))
    add(lambda x, y: A.pairwise_distance.default(x, y), i(-5, 5, 3, 4), i(-5, 5, 3, 4))
    add(lambda x, y, z: A.triplet_margin_loss.default(x, y, z), i(-5, 5, 3, 4), i(-5, 5, 3, 4), i(-5, 5, 3, 4))
    add(lambda x: (A.sum_to_size.default(x, []), A.sum_to_size.default(x[0, 0], []), A.sum_to_size.default(x, [1, 3])), b(2, 3))
    add(lambda x, y: (A.outer.default(x, y), A.square.default(x), A.heaviside.default(x, y), A.lgamma.default(x)), b(3), b(3))
    for d in (torch.bool, torch.int64, torch.float32):
        add(lambda g, m: A.native_dropout_backward.default(g, m, 2.5), i(0, 2, 4, dtype=d), b(4))

    # 16-bit floats: dtypes of saved statistics.
    for d in (torch.bfloat16, torch.float16):
        for w in (d, torch.float32):
            add(lambda x, s: A._native_batch_norm_legit.no_stats(x, s, None, True, 0.1, 1e-5), f(3, 4, 5, dtype=d), f(4, dtype=w))
            add(lambda x, m: A._native_batch_norm_legit_no_training.default(x, None, None, m, m.abs() + 1, 0.1, 1e-5), f(3, 4, 5, dtype=d), f(4, dtype=w))


def roundings():
    """Functions of 16-bit floats whose results PyTorch's roundings on the way decide: only compiled programs round there."""
    add = lambda fn, *a: case("roundings", fn, *a)
    for d in (torch.bfloat16, torch.float16):
        add(lambda x, y: A.div.Tensor_mode(x, y, rounding_mode="trunc"), f(300, dtype=d) * 30, f(300, dtype=d))
        add(lambda x: A.div.Scalar_mode(x, 0.3, rounding_mode="trunc"), f(300, dtype=d) * 30)
        add(lambda x: (A.div.Scalar_mode(x, 0.7, rounding_mode="floor"), A.floor_divide.default(x, 0.3)), f(300, dtype=d) * 30)
        add(lambda x: A.threshold.default(x, 1.1, 9), torch.tensor([1.0, 1.1, 1.2], dtype=d))
        add(lambda x, y: A.pairwise_distance.default(x, y), f(4, 9, dtype=d), f(4, 9, dtype=d))
        add(lambda x, y, z: A.triplet_margin_loss.default(x, y, z, reduction=0), f(4, 9, dtype=d), f(4, 9, dtype=d), f(4, 9, dtype=d))
        add(lambda x: (A.special_ndtr.default(x), A.sinc.default(x)), torch.tensor([-0.3, 1.5], dtype=d))
        add(lambda x: A.histc.default(x, 10), torch.tensor(-1.8369, dtype=d))


def sampled():
    """Derivatives of sampling at coordinates, and of segments."""
    add = lambda fn, *a, **k: case("sampled", fn, *a, **k)
    f64 = lambda *shape: f(*shape, dtype=torch.float64)
    # Coordinates inside, outside, and at elements.
    grid = lambda *shape: torch.cat([f64(*shape) * 1.5, torch.tensor([-1.0, 0, 0.5, 1]).double()[: shape[-1]].expand(*shape[:-2], 1, shape[-1])], -2)
    for mode in (0, 1, 2):
        for padding in (0, 1, 2):
            for align in (False, True):
                fn = lambda g, x, at, m=mode, p=padding, c=align: A.grid_sampler_2d_backward.default(g, x, at, m, p, c, [True, True])
                add(fn, f64(2, 3, 3, 5), f64(2, 3, 6, 4), grid(2, 3, 4, 2))
                if mode < 2:
                    fn = lambda g, x, at, m=mode, p=padding, c=align: A.grid_sampler_3d_backward.default(g, x, at, m, p, c, [True, True])
                    add(fn, f64(2, 2, 2, 3, 4), f64(2, 2, 3, 4, 5), grid(2, 2, 3, 3, 3))
    add(lambda g, x, at: A.grid_sampler_2d_backward.default(g, x, at, 0, 0, False, [False, True])[1], f(1, 2, 2, 3), f(1, 2, 3, 3), u(1, 2, 3, 2))
    # The index of each maximum: of ties, without the padding, of an empty bag.
    table = torch.tensor([[1.0, 2], [3, 2], [3, -1], [9, 9], [-2, 0.5]])
    for padding in (-1, 3):
        fn = lambda w, at, to, p=padding: A._embedding_bag.default(w, at, to, False, 2, False, None, False, p)
        add(lambda w, at, to, fn=fn: (fn(w, at, to)[0], fn(w, at, to)[3]), table, torch.tensor([0, 2, 1, 3, 1, 4, 2]), torch.tensor([0, 4, 4, 6]))
    # Ties, a zero, two zeros, an empty segment.
    data = torch.tensor([[1.0, 2, 0], [3, 2, 5], [3, -1, 0], [4, 0.5, 2], [2, 7, 3], [0.25, 7, 3]])
    lengths = torch.tensor([3, 0, 1, 2])
    for reduce in ("sum", "mean", "max", "min", "prod"):
        y = torch.segment_reduce(data, reduce, lengths=lengths, initial=2.0 if reduce == "prod" else None)
        add(lambda g, y, x, n, r=reduce: A._segment_reduce_backward.default(g, y, x, r, lengths=n, initial=2.0 if r == "prod" else None), f(4, 3), y, data, lengths)
    across = torch.tensor([[1, 2], [2, 1]])
    add(lambda g, y, x, n: A._segment_reduce_backward.default(g, y, x, "max", lengths=n, axis=1), f(2, 2, 3), torch.segment_reduce(data.view(2, 3, 3), "max", lengths=across, axis=1), data.view(2, 3, 3), across)
    limits = torch.tensor([0, 2, 6])
    add(lambda g, y, x, n: A._segment_reduce_backward.default(g, y, x, "mean", offsets=n), f(2, 3), torch.segment_reduce(data, "mean", offsets=limits), data, limits)

"""Gathers, scatters, masks and tensors as indices, by the names of PyTorch's tests."""

import torch
import torch.nn.functional as F

from .case import arange, bools, case, cast, full, integers, normal, ones, permutation, tensor, uniform, zeros

aten = torch.ops.aten
i32, i64 = torch.int32, torch.int64
END = 2**63 - 1
SIGNED = (torch.int8, torch.int16, i32, i64)


def by_tensors(a):
    x, y = torch.tensor([1, 2]), torch.tensor([2, 3])
    p, q = x.view(1, 2), torch.tensor([1, 2, 3]).view(3, 1)
    return a[x, y], a[:, x, y], a[:, x, y, :], a[x, :, y], a[:, x, :, y, :], a[p, q], a[:, p, q], a[p, :, q], a[p, q, :], a[:, p, :, q]


def put_by_tensors(a):
    x, y = torch.tensor([1, 2], dtype=i32), torch.tensor([2, 3], dtype=i32)
    p, q = torch.tensor([[1, 2]]), torch.tensor([[1], [2], [3]])
    every = slice(None)
    places = [
        (x, y),
        (every, x, y),
        (every, x, y, every),
        (x, every, y),
        (every, x, every, y, every),
        (p, q),
        (every, p, q),
        (p, every, q),
        (p, q, every),
        (every, p, every, q),
    ]
    out = []
    for k, place in enumerate(places):
        b = a.clone()
        b[place] = torch.full_like(b[place], k)
        out.append(b)
    return out


def negative(a, b):
    n = a.numel()
    down = torch.arange(-1, -n - 1, -1)
    return (
        a[b - 1],
        a[down],
        a[torch.arange(1, -n - 1, -1)[1:]],
        a[(1.0 * down).int()],
        aten._unsafe_index(a, (b,)),
        a[torch.tensor([2])],
        a[torch.tensor([-2])],
    )


def edges(feature, edge):
    between = feature[edge[0]] - feature[edge[1]] + 1
    return torch.zeros_like(feature).scatter_add_(0, edge[1].unsqueeze(-1).expand_as(between), between)


def last_tokens(x, y):
    return y[torch.arange(1), x.ne(0).sum(-1) - 1]


def put(x, indices, values, accumulate=False):
    y = x.clone()
    y.index_put_(tuple(indices), values, accumulate)
    return y


def written_ids(weight, ids, shifted, first):
    out = torch.slice_scatter(ids, shifted, 1, 1, END)
    out = torch.select_scatter(out, first, 1, 0)
    return F.embedding(out, weight, 1)


def empty_slice_scatters(a, b):
    n = a.shape[0]
    return [aten.slice_scatter(a, b, 0, *r) for r in ((2, 0), (n, n + 10), (-20, 0), (-20, -16))]


def resampled(x):
    """Rows of a bilinear grid, by indices that sizes determine."""
    n = int(x.size(1) * 1.87)
    at = ((torch.arange(n).float() + 0.5) * (x.size(1) / n) - 0.5).clamp_min(0.0)
    low, high = at.long(), at.ceil().clamp_max(x.size(1) - 1).long()
    part = (at - low).unsqueeze(1)
    return x[:, low] * (1 - part) + x[:, high] * part


def searched(seq, values, **how):
    return [torch.searchsorted(seq, values, out_int32=o, right=r, **how) for o in (False, True) for r in (False, True)]


def bucketed(x, edges):
    return [torch.bucketize(x, edges, out_int32=o, right=r) for o in (False, True) for r in (False, True)]


BOUNDS = tensor([-0.9, -0.8, 0.1, 0.2, 0.5, 0.9])
SORTED = [
    (lambda: torch.rand(1), (6, 6)),
    (lambda: torch.rand(16).sort()[0], ()),
    (lambda: torch.rand(32).sort()[0], (6, 6)),
    (lambda: torch.rand(6, 32).sort()[0], (6, 6)),
]

INDEXING = {
    "scatter_bf16": case(
        lambda x, s, i: x.scatter_add(0, i, s),
        *([zeros(3, 5, dtype=d), ones(2, 5, dtype=d), tensor([[0, 1, 2, 0, 0]])] for d in (i64, torch.bool, torch.bfloat16)),
    ),
    "one_hot": case(lambda a: F.one_hot(a, 8) + 1, [lambda: (torch.arange(100) % 8).view(4, 5, 5)]),
    "index_propagation": case(lambda x: x[torch.arange(x.size(0))], [(8,)]),
    "index_propagation_flip": case(lambda x: x[torch.arange(x.size(0) - 1, -1, -1)], [(8,)]),
    "index_propagation_floordiv": case(lambda x, n: x[torch.arange(x.shape[0] * n) // n], [(8, 6), 3]),
    "index_propagation_remainder": case(lambda x, n: x[torch.arange(x.shape[0] * n) % x.shape[0]], [(8, 6), 3]),
    "index_propagation_abs": case(lambda x, n: x[(torch.arange(x.shape[0] + n) - n).abs()], [(8,), 3]),
    "index_propagation_device_assert_masked": case(lambda a: a[F.pad(torch.arange(a.size(0)), (50, 0))], [(24,)]),
    "index_remainder": case(lambda x, y: x[y % 12], [uniform(24), integers(0, 50, (50,))]),
    "neg_index": case(negative, [uniform(24), zeros(6, dtype=i64)]),
    "computed_buffer_inlining": case(lambda x: (i := torch.arange(x.size(0) - 1, -1, -1), x[i]), [(8,)]),
    "computed_indirect_mask": case(lambda x, n: x[torch.arange(n)] + 1, [(8,), 8]),
    "optimize_indexing_assert": case(lambda x: x[(1.0 * torch.arange(x.shape[0])).long()], [(8,)]),
    "optimize_indexing_dtype_with_constraint": case(lambda a, b: a[((2 * torch.arange(b.shape[0])) / 3).int()], [(100, 4), (102,)]),
    "_unsafe_masked_index": case(lambda a, m, i: aten._unsafe_masked_index(a, m, [i], 1), [(8,), tensor([True, False, True]), tensor([3, 9, 2])]),
    "_unsafe_masked_index_put_accumulate": case(
        lambda a, m, i, v: aten._unsafe_masked_index_put_accumulate(a, m, [i], v), [(8,), tensor([True, False, True]), tensor([3, 9, 2]), (3,)]
    ),
    "vectorized_ops_masked": case(
        lambda x: aten._unsafe_masked_index(x, torch.arange(64).view(1, 1, 64) < 63, [None, None, torch.arange(64)], 7), [(4, 3, 63)]
    ),
    "vectorized_ops_masked_var_novec": case(
        lambda x: aten._unsafe_masked_index(x, (torch.arange(10) < 5).view(1, 1, 1, 10), [None, None, None, torch.arange(10)], 7), [(1, 1, 8, 8)]
    ),
    "gather1": case(
        lambda a, b: (a.expand(4, 5, 10, 6).gather(3, b + 1), a.expand(4, 5, 10, 6).gather(-1, b + 1)), [(1, 1, 10, 6), integers(0, 5, (4, 5, 10, 1))]
    ),
    "gather2": case(lambda a, b: a.gather(0, b) + a.gather(-1, b), [tensor(123), tensor(0)]),
    "gather3": case(lambda a, b: a.gather(1, b), [(4, 5, 10, 6), integers(0, 5, (4, 5, 10, 1))], gradients=True),
    "device_assert": case(
        lambda x, y: x.view(-1, 6).sum(1).gather(0, y.trunc().long()),
        [(30,), ones(1, dtype=torch.float64)],
        [(36,), ones(1, dtype=torch.float64)],
        rtol=1e-5,
        atol=1e-5,
    ),
    "gather_scatter": case(edges, [(16, 8), integers(0, 16, (2, 80))], rtol=1e-4, atol=1e-4),
    "misaligned_address_issue1": case(lambda x, i: x.gather(1, i), [(1, 1000), integers(0, 999, (1, 1))]),
    "indirect_load_broadcast": case(lambda a, b, i: b.gather(0, i) + a, [(12, 1), (30, 20), lambda: torch.zeros(21, 12, dtype=i64).t()[:, :20]]),
    "embedding": case(lambda w, i: F.embedding(i, w, padding_idx=0).relu(), [(10, 4), integers(0, 10, (2, 8))], gradients=True),
    "embedding_sparse": case(lambda w, i: F.embedding(i, w, sparse=True), [(10, 3), integers(0, 10, (2, 3))]),
    "embedding_bag": case(
        lambda w, i, o: aten._embedding_bag(w, i, o, False, 0, False, None)[0], [(10, 4), integers(0, 10, (8,)), tensor([0, 2, 6])]
    ),
    "masked_scatter": case(torch.masked_scatter, [(10, 10), bools(10, 10), (100,)]),
    "index1": case(
        lambda a, b, c: aten.index(a, [b, c]),
        [(8, 8, 12), tensor([0, 0, 2, 2]), tensor([3, 4, 4, 3])],
        [(8, 8, 12), tensor([[0, 0, 2, 2]]), tensor([[3], [4], [4], [3]])],
    ),
    "index2": case(lambda a, b: (aten.index(a, [b]), aten.index(a, [None, b])), [(8, 8, 8), tensor([[0, 0, 2, 2]])]),
    "index3": case(lambda x, i, j: x[:, i, None, j, 0], [(3, 4, 4, 4, 3), tensor([0, 2, 1]), tensor([0, 2, 1])]),
    "index_select": case(
        lambda a, b: (a.index_select(0, b), a.index_select(1, b), a.index_select(2, b).index_select(1, b)),
        *([(8, 8, 8), tensor([0, 0, 2, 1], dtype=d)] for d in (i32, i64)),
    ),
    "index_tensor": case(last_tokens, [(1, 24), (1, 24, 2)]),
    "index_dynamic_shapes": case(resampled, [(15, 20, 3)], rtol=1e-5, atol=1e-5),
    "tensor_index_slice": case(by_tensors, [lambda: torch.arange(3 * 4 * 5 * 6 * 7).view(3, 4, 5, 6, 7)]),
    "tensor_index_put_slice": case(put_by_tensors, [lambda: torch.arange(3 * 4 * 5 * 4 * 4, dtype=i32).view(3, 4, 5, 4, 4)]),
    "single_elem": case(lambda a: a + 1, [(1,)]),
    "single_elem_indirect": case(lambda a, b: a[b] + 1, [(1,), tensor([0])]),
    "xblock_divides_xnumel": case(lambda a: a + 1, [(1024,)], [(1025,)]),
    "index_put1": case(
        lambda a, b, c: (torch.index_put(a, [b], c), torch.index_put(a + 1, [b], c + 1) + 1),
        [(30, 6, 3), permutation(20), (20, 6, 3)],
        [(24, 4, 2), arange(4), (4, 1, 1)],
    ),
    "index_put2": case(lambda a, b, c: torch.index_put(a, [b], c, True), [(10, 6, 3), integers(0, 10, (60,)), (60, 6, 3)], rtol=1e-4, atol=1e-4),
    "index_put3": case(
        lambda a, b, c: (a.index_put_((torch.arange(a.shape[0])[:, None], b), c), put(a + 1, [torch.arange(a.shape[0])[:, None], b], c)),
        [(24, 4, 2), arange(3), (24, 1, 2)],
    ),
    "index_put4": case(lambda a, b, c: torch.index_put(a, [b], c), [(8, 2), bools(8), ()]),
    "index_put_as_masked_fill": [case(lambda a, b, c, n=n: put(a, [b], c, n), [(24, 4, 2), bools(24, 4, 2), ()]) for n in (False, True)],
    "index_put_fallback1": [
        case(lambda a, b, c, n=n: put(a, [b], c, n), [(3,), tensor([True, True, False]), (2,)], dynamic=False) for n in (False, True)
    ],
    "index_put_fallback2": [
        case(
            lambda a, b, c, d, n=n: put(a, [torch.arange(1)[:, None], b, c], d, n),
            [(1, 2, 3), tensor([0, 1]), tensor([True, True, False]), ()],
            dynamic=False,
        )
        for n in (False, True)
    ],
    "index_put_deterministic_fallback": case(
        lambda a, b, c: torch.index_put(a, [b], c, True), [(10, 32), integers(0, 10, (60,)), (60, 32)], rtol=1e-4, atol=1e-4
    ),
    "index_put_index": case(lambda i, x, s: torch.index_put(x, [i], s)[i], [tensor([1]), (8, 4), (4,)]),
    "select_scatter": case(lambda x, a, b: (x.select_scatter(a, 1, 0), x.select_scatter(b, 0, 1)), [(8, 19, 6), (8, 6), (19, 6)]),
    "slice_scatter": case(lambda x, a: (x.slice_scatter(a, 2, 10, -10), x.slice_scatter(a[:, :, :40], 2, 10, -10, 2)), [(4, 8, 100), (4, 8, 80)]),
    "slice_scatter2": case(lambda a, b: a.slice_scatter(b, 0, 0, END), [(8, 19, 4), (8, 19, 4)]),
    "slice_scatter3": case(lambda a, b: a.slice_scatter(b, 1, 1, END, 2), [(1, 4), (1, 2)]),
    "slice_scatter4": case(lambda a, b: a.slice_scatter(b, 1, 2, END, 3), [(1, 9), (1, 3)]),
    "slice_scatter5": case(empty_slice_scatters, [arange(10.0), zeros(0)]),
    "invalid_operand_issue1": case(written_ids, [(55, 8), integers(0, 9, (8, 12)), integers(0, 9, (8, 11)), integers(0, 9, (8,))]),
    "scatter1": case(lambda a, i, b: a.scatter(-1, i, b), [zeros(2, 3), tensor([[0]]), ones(2, 3)]),
    "scatter2": case(lambda a, i, b: a.scatter(0, i, b, reduce="add"), [zeros(6, 52), zeros(6, 52, dtype=i64), ones(6, 52)]),
    "scatter3": case(lambda a, i, b: a.scatter(2, i, b, reduce="add"), [(5, 29, 13), tensor([[[3, 5, 7, 9]]]), 0.8]),
    "scatter4": case(lambda x, i, s: x.scatter(0, i, s), [(19, 92), integers(0, 19, (1, 92)), (1, 92)]),
    "scatter5": [
        case(
            lambda a, i, b, r=r: (a.clone().scatter_(0, i, b, reduce=r), (a + 1).scatter_(0, i, b, reduce=r)),
            [ones(4, 5), tensor([[1], [2], [3]]), (4, 5)],
        )
        for r in ("add", "multiply")
    ],
    "scatter6": case(lambda a, i, b: a.scatter(2, i, b), [(5, 8, 13), tensor([[[3, 5, 7, 9]]]), 0.8]),
    "scatter_add1": case(lambda a, i, b: a.scatter_add(0, i, b), [(2, 3), tensor([[0]]), (2, 3)]),
    "scatter_add2": case(lambda a, i, b: a.scatter_add(0, i, b), [(2, 3), tensor([[0, 0, 0], [1, 1, 1]]), (2, 3)]),
    "scatter_add3": [
        case(lambda a, i, b: a.scatter_add(2, i, b), [(5, 29, 13), tensor([[[3, 5, 7, 9]]]), (1, 1, 4)]),
        case(lambda a, i, b: a.scatter_add(2, i, b), [(5, 29, 13), tensor([[[3, 5, 7, 9]]]), (1, 1, 10)]),
    ],
    "scatter_reduce1": [
        case(lambda a, i, b: a.scatter_reduce(2, i, b, "sum"), [(5, 29, 13), tensor([[[3, 5, 7, 9]]]), (1, 1, 4)]),
        case(lambda a, i, b: a.scatter_reduce(2, i, b, "sum"), [(5, 29, 13), tensor([[[3, 5, 7, 9]]]), (1, 1, 10)]),
    ],
    "scatter_reduce2": case(
        lambda a, i, b: [a.scatter_reduce(0, i, b, r, include_self=False) for r in ("sum", "amax")], [(2, 3), zeros(2, 3, dtype=i64), (2, 3)]
    ),
    "scatter_reduce3": case(
        lambda a, i, b: [(a.clone().scatter_reduce_(0, i, b, r), (a + 1).scatter_reduce_(0, i, b, r)) for r in ("sum", "prod")],
        [ones(4, 5), tensor([[1], [2], [3]]), (4, 5)],
    ),
    "dense_mask_index": case(lambda x, y: (x * y.select(0, 2)).sum(), [uniform(999), uniform(3)], rtol=1e-5, atol=1e-4),
    "split_cumsum_index": case(lambda n, x: x[n.cumsum(0)], [full((64,), 3, dtype=i64), (999,)]),
    "searchsorted": [
        *(case(searched, [s, v]) for s, v in SORTED),
        case(lambda s, v: searched(s, v, sorter=s.argsort()), [uniform(3, 5), uniform(3, 7)]),
        case(lambda s, v: torch.searchsorted(s, v, side="right"), [lambda: torch.rand(16).sort()[0], uniform(5)]),
    ],
    "searchsorted_broadcast": case(
        lambda s, v: torch.searchsorted(s, v).unsqueeze(-1).expand(-1, 6).contiguous(), [lambda: torch.rand(32).sort()[0], uniform(24)]
    ),
    "bucketize": case(bucketed, [(16, 16), BOUNDS]),
    "bucketize_default_kwargs": case(torch.bucketize, [tensor([-1.0, -0.9, -0.8, -0.5, 0, 0.1, 0.2, 0.4, 0.5, 0.6, 0.9, 0.91]), BOUNDS]),
    "bucketize_int": [
        *(case(lambda x: [bucketed(x, (torch.arange(10) ** 2 - 50).to(d)) for d in SIGNED], [integers(-99, 99, (8, 8), d)]) for d in SIGNED),
        case(lambda x: [bucketed(x, (torch.arange(10) ** 2).to(d)) for d in (torch.uint8, *SIGNED)], [integers(0, 99, (8, 8), torch.uint8)]),
        case(torch.bucketize, [tensor([-5, 3]), tensor([0, 1, 4], dtype=torch.uint8)]),
    ],
    "bucketize_add_autotune": case(lambda x, b, y: torch.bucketize(x, b) + y, [(2, 3, 4, 5), BOUNDS, integers(0, 9, (2, 3, 4, 5))]),
    "bucketize_computed_offsets": case(lambda x, b: torch.bucketize(x, b + 0.01), [(12,), BOUNDS]),
    "bucketize_broadcast": case(lambda x, b: torch.bucketize(x, b).unsqueeze(-1).expand(-1, -1, 4).contiguous(), [(6, 6), BOUNDS]),
    "index_propagation_nested_indirect_indexing": case(
        lambda x, n: x.index_select(0, torch.arange(n.numel()).repeat_interleave(n)),
        [(32, 6), tensor([5, 10, 15])],
        alone=True,
        config={"capture_dynamic_output_shape_ops": True},
    ),
    "graph_partition_symint_from_nested_indirect_indexing": case(
        lambda x, n: x.index_select(0, torch.arange(n.numel()).repeat_interleave(n, dim=0)) * 2,
        [(8, 6), tensor([5, 1, 3])],
        alone=True,
        config={"capture_dynamic_output_shape_ops": True},
    ),
    "graph_partition_unbacked_symint_as_output": case(
        lambda x, n: torch.arange(n.numel()).repeat_interleave(n),
        [(8, 6), tensor([5, 1, 3])],
        alone=True,
        config={"capture_dynamic_output_shape_ops": True},
    ),
    "repeat_interleave_2": case(lambda n: aten.repeat_interleave.Tensor(n, output_size=12), [tensor([2, 4, 6])]),
}

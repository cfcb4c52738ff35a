"""Writes to arguments, to views and to buffers, by the names of PyTorch's tests."""

import torch
import torch.nn.functional as F

from .case import arange, bools, case, cast, integers, laid, normal, ones, strided, tensor, uniform, zeros

aten = torch.ops.aten


def chain(a):
    a += 1
    a *= 2
    a.sigmoid_()
    a = a.view(64)
    a += 3
    a *= 4
    return a.relu_()


def slices_of_new(a):
    x = torch.zeros_like(a)
    b = x + 1
    x[:, 3] = 3.0
    c = x.clone()
    x[4, :] = 4.0
    return x, b, c, x + 1


def overlapping(a):
    a[:, 20:40] = a[:, 20:40] + 1
    a[:, 2:11] = a[:, 1:10] + 2


def activations(x):
    y = x * 10
    fills = [(y + 1).masked_fill_(make(x, dtype=torch.bool), 99.0) for make in (torch.zeros_like, torch.ones_like)]
    return F.hardswish(y + 1, True), F.hardtanh_(y + 1), F.leaky_relu_(y + 1), F.silu(y + 1, True), (y.abs() + 1).log1p_(), fills


def permuted_columns(x):
    y = x.clone().reshape(-1, 4)
    y[:, [2, 0]] = y[:, [0, 2]]
    return y + x


def cache(k, x, w, start):
    """Keys are written into a cache, and read with those before."""
    key = F.linear(x, w)
    k[: x.shape[0], start : start + x.shape[1]] = key
    keys = k[: x.shape[0], : start + x.shape[1]]
    return key.transpose(1, 2) @ keys.transpose(1, 2).transpose(2, 3)


def over_diagonal(x, y, z, other):
    product = x * y
    d = torch.diagonal(product)
    d.copy_(other)
    return product @ z + d.cpu().to(x.device) + d


def const_then_write():
    a = torch.zeros(3)
    b = a[1:]
    a[1] = 5
    return b, a


def written(change, result=lambda x, out: x):
    return lambda x, *rest: result(x, change(x, *rest))


MUTATION = {
    "add_inplace_permuted": case(lambda x, y: x.add_(y), [laid((2, 12, 13, 7), lambda t: t.transpose(1, 2)), (2, 13, 1, 7)]),
    "concat_add_inplace": case(lambda x, y, z: torch.cat([x, y], 1).add_(z), [(2, 3, 4, 4), (2, 3, 4, 4), (2, 6, 4, 4)]),
    "inplace_add": case(lambda x, y: x.add_(y), [(4, 4), (4, 4)]),
    "inplace_mixed_dtype_ops": case(lambda x, y: (x + y.float()).add_(y).mul_(y), [(4, 4), normal(4, 4, dtype=torch.float64)]),
    "input_mutation1": case(lambda a: (b := a + 1, a.copy_(b), a * b / (a + 2)), [(64,)]),
    "input_mutation2": case(
        lambda a: (a + 1, a.view(64).copy_(torch.tensor([66.0])), a + 2), [(1, 64)], [lambda: torch.randn(1, 64, requires_grad=True).add(1)]
    ),
    "input_mutation3": case(chain, [(1, 64)]),
    "input_mutation4": case(torch.relu_, [(1, 64)]),
    "input_mutation5": case(lambda x: (t := x.ceil(), x.add_(10))[0], [zeros((), dtype=torch.int64)], [tensor(1.5)]),
    "slice_mutation1": case(slices_of_new, [(8, 8)]),
    "slice_mutation2": case(overlapping, [(1, 64)]),
    "slice_mutation3": case(lambda a: a[:2, :2].fill_(10), [(8, 8)]),
    "fusing_write_into_disjoint_read": case(lambda a: a.copy_(a.flip(0)), [uniform(20)]),
    "remove_noop_copy": [
        case(lambda x, y: x.cos().copy_(y).sin(), [(8, 8), (8,)]),
        case(lambda a, b: (b.__setitem__(0, a.abs().max().to(a.dtype)), b)[1], [cast((8, 8), torch.float16), (8,)]),
    ],
    "remove_noop_clone": case(permuted_columns, [(2, 4)]),
    "index_put_reinplace": case(lambda x, i: x.index_put_((i,), torch.ones(i.shape[0])).expand(2, x.shape[0]), [(24,), arange(10)]),
    "index_put_failed_reinplace": case(lambda x, i: (x, x.index_put((i,), torch.ones(i.shape[0]))), [(24,), arange(10)]),
    "slice_scatter_reinplace": case(cache, [zeros(5, 38, 2, 8), (1, 8, 2, 8), (8, 8), 1], rtol=1e-4, atol=1e-5),
    "inplace_activations": case(activations, [(64,)]),
    "zero_element_mutation": case(lambda x: F.leaky_relu(x, 5.3, inplace=True), [(0,)]),
    "inplace_where_pointwise": case(lambda a, b: (a.__setitem__(0, 2), a * b)[1], [uniform(1), uniform(2)]),
    "view_on_aliased": [
        case(lambda a, b: (m := a.max(0).values, torch.cat((m, b)).round(), b >= m[0]), [tensor([[4.0]]), tensor([5.0])]),
        case(lambda: (a := torch.tensor([[0.6324]]), torch.cat((a, a)))),
    ],
    "mutations_loop_fusion": case(
        lambda x, i, y: x.index_add(0, i, y, alpha=2.0) / 2, [lambda: torch.rand(1).double(), tensor([0]), lambda: torch.rand(1).double()]
    ),
    "inplace_resize_as": case(lambda x: (y := x + 1, y.resize_as_(torch.zeros(2, 2)))[1], [(2, 3)], alone=True),
    "slice_view_with_graph_break": case(const_then_write),
    "graph_partition_mutation_real_name": case(over_diagonal, [(3, 3), (3, 3), (3, 3), (3,)], rtol=1e-5, atol=1e-5),
    "graph_partition_symint_from_mutation_index": case(
        lambda n, a: (a.__setitem__(n, -1), a)[1], *([n, zeros(7)] for n in (2, 3, 4, -7)), alone=True
    ),
    "setitem_with_int_parameter": case(lambda n, a: (a.__setitem__(n, -1), a * 2), *([n, zeros(7)] for n in (2, 3, 6, -7)), alone=True),
    "buffer_copied_in_graph": case(lambda b, w, v, x: (b.add_(1), (w * x * v).sum() + b.sum())[1], [zeros(1), (1,), (1,), ones(1)]),
    "buffer_copied_in_graph_with_different_shapes": case(
        lambda b, w, x: (b.add_(1), (w @ x).sum() + b.sum())[1], [ones(4, 4), (4, 2), (2, 4)], rtol=1e-5, atol=1e-5
    ),
    "buffer_batch_norm": case(
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, True), [(20, 10), zeros(10), ones(10), (10,), (10,)], rtol=1e-4, atol=1e-5
    ),
    "ctr_not_moved_to_cuda_when_used_in_index_put": case(
        lambda x, m: (x.__setitem__((slice(None), m), -float("inf")), x)[1],
        [lambda: torch.randn(20, 19).permute(1, 0).reshape(-1, 5, 4)[:, :, 1:], bools(5, 3)],
    ),
    "graph_partition_foreach_op": case(lambda a, b: torch._foreach_abs([a, b])[0] * a, [(2, 3), (2, 3)]),
}

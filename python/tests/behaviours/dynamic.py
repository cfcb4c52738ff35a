"""Sizes and numbers that are symbols or depend on data, by the names of PyTorch's tests of dynamic shapes."""

import math

import torch
import torch.nn.functional as F

from .case import arange, case, full, integers, ones, tensor, uniform, zeros

aten = torch.ops.aten
BY_DATA = {"config": {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}, "alone": True}
FLOATS = {"config": {"specialize_float": False}, "alone": True}
OPERATIONS = [math.sqrt, math.sin, math.cos, math.cosh, math.sinh, math.tan, math.tanh, math.asin, math.acos, math.atan]


def uniform_values(x):
    one = torch.full(x.shape, 1, dtype=x.dtype)
    return x + (one - 1), x * (2 - one), x * torch.ones([1])[:, None], (2 - one) * x.shape[0]


def grid_of(n):
    n = n.item()
    torch._check(n >= 1)
    torch._check(n <= 10)
    return torch.ones(n, n)


def sizes_of(x):
    return x.tolist()


def of_sizes(x, w):
    a, b = x.tolist()
    return torch.cat([torch.ones(a) * w, torch.ones(b) * w])


def floats_of_sizes(x, y, z):
    n = x.size(0)
    return torch.exp(torch.tensor(z)) * (x * y), math.sqrt(n), math.floor(math.sqrt(n)), math.floor(math.sqrt(x.numel())), math.floor(math.sqrt(z))


def checked_sort(a, descending):
    torch._check(a.shape[-1] <= 256)
    return a.sort(dim=-1, stable=True, descending=descending)


def whole_quotient(x, n):
    m = x.size(-1) / n
    return m if m.is_integer() else x.size(-1)


def floordiv(x, y):
    z = y.item()
    torch._check(z // 2 == 3)
    return x + x.new_ones(z)


def refined(x):
    z = x.nonzero()
    torch._check(z.size(0) == 4)
    return z + 3


def split_sizes(n, x):
    a, b = n.tolist()
    return x.split_with_sizes([a, b])[1].sort()


def longest(a):
    return ~(torch.arange(0, a.max().item()).repeat(a.numel(), 1) < a.unsqueeze(1))


DYNAMIC = {
    "constant_fold_uniform_value_dynamic": case(uniform_values, [(2, 4)], [(3, 4)], alone=True),
    "arange_dynamic": case(longest, [lambda: torch.cat([torch.tensor([29]), torch.randint(10, 29, (9,))])], **BY_DATA),
    "shape_as_constant_reciprocal_float_exp": case(lambda x, a: (x * 2, -1 / a**1.0), [(10, 20), 10], alone=True),
    "bool_mask_nobreak": case(lambda x, b: (x[b] * 2).sum(), [(5,), tensor([True, True, False, False, True])], **BY_DATA),
    "unwrap_storage_didnt_work_repro": case(lambda: torch.full((torch.full((), 11).item(),), 0), **BY_DATA),
    "sym_sum_unbacked": case(lambda a: torch.tensor(sum(a.tolist())), [integers(0, 10, (10,))], **BY_DATA),
    "nonzero_size_factory_nobreak": case(lambda x, b: x.new_zeros(torch.nonzero(b).size(0)), [(5,), tensor([True, False, True])], **BY_DATA),
    "nonzero_no_realloc": case(lambda x, y: x.nonzero().split([y.size(0)]), [tensor([1, 0, 1, 1, 0, 1, 0]), (4,)], **BY_DATA),
    "nonzero_unbacked_refinement": case(refined, [tensor([0, 1, 3, 4, 2, 0, 0])], **BY_DATA),
    "noops_tensor_repropagate": case(
        lambda x: torch.ops.prims.convert_element_type(x, torch.int64).nonzero() * 2, [tensor([0, 4, 2, 0, 1])], **BY_DATA
    ),
    "item_nobreak": case(lambda x: torch.zeros(x.item()), [tensor([3])], **BY_DATA),
    "item_bool_nobreak": case(lambda x: x.item(), [tensor([True])], **BY_DATA),
    "item_zeros_nobreak": case(lambda x: x.new_zeros(x.item()), [tensor([3])], **BY_DATA),
    "item_return": case(lambda x: x.item() + x.item(), [tensor([3])], **BY_DATA),
    "float_item_inf": case(lambda x: x.item() == math.inf, [tensor([3.0])], [tensor([math.inf])], **BY_DATA),
    "float_item_neginf": case(lambda x: x.item() == -math.inf, [tensor([3.0])], **BY_DATA),
    "float_item_return": case(lambda x: x.item(), [tensor([3.0])], **BY_DATA),
    "graph_partition_item": case(lambda x: x * 2 + (x + 1).item(), [tensor(1)], **BY_DATA),
    "item_unbacked_stride_nobreak": case(grid_of, [tensor([5])], **BY_DATA),
    "item_materialize": case(lambda x: x.sum(0).view(4).tolist(), [ones(3, 4, dtype=torch.int64)], **BY_DATA),
    "unbacked_index_select": case(lambda x: torch.ones(x.item()).index_select(0, torch.tensor([0, 2, 1])), [tensor(5)], **BY_DATA),
    "return_unbacked_view_split": case(lambda v, n: v.split(n.tolist()), [(8,), tensor([3, 5])], **BY_DATA),
    "split_with_sizes_with_unbacked_symints": case(split_sizes, [tensor([4, 9]), (13,)], **BY_DATA),
    "split_with_unbacked_symints": case(lambda x: torch.arange(x.item()).split([5, 5, 10]), [tensor([20])], **BY_DATA),
    "unbacked_matmul": case(lambda x: torch.ones(1, x.item()) @ torch.ones(x.item(), 1), [tensor(5)], **BY_DATA),
    "unbacked_reduction": case(lambda x: torch.ones(x.item()).sum(), [tensor(5)], **BY_DATA),
    "unbacked_floordiv_simplify": case(floordiv, [(6,), tensor([6])], [(7,), tensor([7])], **BY_DATA),
    "cat_unbacked_duplicate_size": case(
        lambda x: torch.cat([torch.zeros(x.tolist()[0])] * 2 + [torch.ones(x.tolist()[1])]), [tensor([4, 6])], **BY_DATA
    ),
    "cat_unbacked_empty_1d": case(lambda x, y: torch.cat([x, x.new_ones(y.item())]), [(2,), tensor([0])], [(2,), tensor([3])], **BY_DATA),
    "cat_unbacked_2d": case(lambda x, y: torch.cat([x, x.new_ones(y.item(), x.shape[1])]), [(2, 3), tensor([0])], [(2, 3), tensor([4])], **BY_DATA),
    "unbacked_cat_backwards": case(lambda x, w: of_sizes(x, w).sum(), [tensor([4, 9]), (1,)], gradients=True, **BY_DATA),
    "unbacked_cat_backwards_save_data_dependent": case(of_sizes, [tensor([4, 9]), (1,)], gradients=True, **BY_DATA),
    "symint_sum_list": case(lambda x: torch.zeros(sum(x.tolist())), [full((32,), 5)], **BY_DATA),
    "floor": case(lambda x: x + int(x.size(-1) * 0.2) + 1, [(5,)], [(8,)], alone=True),
    "pad_dynamic": case(
        lambda x: F.pad(x, [(h := max((math.ceil(x.size(-1) / 2) - 1) * 2 + 5 - x.size(-1), 0)) // 2, h - h // 2]),
        [(2, 3, 10)],
        [(2, 3, 11)],
        alone=True,
    ),
    "slice_scatter_dynamic": case(
        lambda i: (n := i.size(0), torch.ones(6, n).slice_scatter(torch.zeros(6, n // 2), 1, n // 2, 2 * (n // 2))), [(16,)], alone=True
    ),
    "slice_index_changing_sign": case(lambda x, y: x[: y.shape[0] - y.shape[1]].clone(), [(32, 3), (16, 2)], [(32, 3), (2, 16)], alone=True),
    "abs_dynamic": case(
        lambda x, y: x[: abs(y.shape[0] - y.shape[1])] * abs(y.shape[0] - y.shape[1]), [(32, 3), (16, 2)], [(32, 3), (2, 16)], alone=True
    ),
    "float_is_integer": case(whole_quotient, [(3, 6), 2], [(3, 7), 2], alone=True),
    "arithmetic_constant_folding": case(lambda x: (x + torch.zeros(3), x * torch.ones(3), x / torch.ones(3)), [3], alone=True),
    "sub_constant_folding": case(lambda x: x - torch.zeros(3), [3], alone=True),
    "full_symbolic_value": case(lambda a: (torch.full((3,), a), torch.full((3,), torch.sym_float(a))), [5], alone=True),
    "full_recompiles": case(
        lambda x: torch.full((x.shape[1], x.shape[1]), torch.finfo(torch.float16).min), [integers(0, 9, (2, 3))], [integers(0, 9, (2, 4))], alone=True
    ),
    "math_ops": [
        case(lambda x, a, op=op: x + op(a), [uniform(10), -1 if op in (math.asin, math.acos) else 12], alone=True, static=False) for op in OPERATIONS
    ],
    "unspecialized_float_operations": case(lambda x, y: (x * y, x + y, x - y, x / y), *([arange(3), y] for y in (2.0, 3.0, 4.0)), **FLOATS),
    "unspecialized_float_fallback_specialization": case(floats_of_sizes, *([arange(3), y, 1.3] for y in (2.0, 3.0, 4.0)), **FLOATS),
    "unspecialized_float_softshrink": case(lambda x, y: F.softshrink(x, y), *([(5, 5), y] for y in (0.2, 0.3, 0.4)), **FLOATS),
    "unspecialized_float_dynamic": case(lambda x, y: x * y, *([(5, 5), y] for y in (2.0, 3.0, 4.0)), alone=True),
    "unspecialized_float_fallback_symint_specialization": case(
        lambda x, y: math.floor(x**2) * y, *([x, arange(3)] for x in (2.0, 3.0, 4.0)), **FLOATS
    ),
    "sort_dynamic_shape_with_check": case(checked_sort, *([lambda: torch.randperm(120).view(10, 12).float(), d] for d in (False, True)), alone=True),
    "dynamic_rblock_bounds": case(lambda x: x.sum(), [(31,)], [(64,)], alone=True, rtol=1e-5, atol=1e-5),
    "non_persistent_dynamic_rblock": case(
        lambda x, y: (x * y).sum(2), [lambda: torch.randn(6, 8, 9).permute(1, 2, 0), (8, 9, 6)], alone=True, rtol=1e-5, atol=1e-5
    ),
    "wrapper_codegen_statically_known_int_or_none": case(lambda x: x.sin() if x.size(0) == 5 else x.cos(), [(5, 3, 3)], [(6, 3, 3)], alone=True),
    "graph_partition_symint": case(
        lambda x, y: x + 1 + ((y + 1).cpu() + 1).to(x.device) + x @ y, [(3, 3), (3, 3)], [(4, 4), (4, 4)], alone=True, rtol=1e-5, atol=1e-5
    ),
    "graph_partition_dynamic_scalar_inputs": case(
        lambda x, y, n: x @ y + n + (y.cpu() + 1).to(x.device), *([(3, 3), (3, 3), n] for n in (5, 6)), alone=True, rtol=1e-5, atol=1e-5
    ),
    "graph_partition_symint_cat_backward": case(
        lambda x, w: (z := torch.cat((x, x)) @ w, z @ z.T)[1], [(2, 2), (2, 2)], [(3, 2), (2, 2)], gradients=True, alone=True, rtol=1e-4, atol=1e-4
    ),
    "graph_partition": case(lambda x, y: x + 1 + ((y + 1).cpu() + 1).to(x.device) + x @ y, [(2, 2), (2, 2)], rtol=1e-5, atol=1e-5),
    "graph_partition_multiple_functions": case(lambda x, y: ((y + 1).cpu() + 1).to(x.device) + x @ y + 1, [(2, 2), (2, 2)], rtol=1e-5, atol=1e-5),
    "graph_partition_buffer_reuse": case(
        lambda x, y: (x + 1) @ y + (((y + 1).cpu().to(x.device) + 2) @ y + 3).cpu().to(x.device), [(2, 2), (2, 2)], rtol=1e-5, atol=1e-5
    ),
    "graph_partition_condition_op": case(
        lambda p, b: torch.cond(p, torch.cos, torch.sin, [b]), [tensor([True]), (2, 3)], [tensor([False]), (4, 5)], alone=True
    ),
    "graph_partition_unbacked_symint_multi_output_layout": case(
        lambda p, n: sum(torch.cond(p, lambda x: (x.cos(), x.cos() + 1), lambda x: (x.sin(), x.sin() + 1), [torch.ones(n.item(), 3)])),
        [tensor([True]), tensor(2)],
        since=(2, 8),
        **BY_DATA,
    ),
    "graph_partition_fused_scheduler_node": case(lambda x: (a := x * 20, b := x * 10, a[0], a[4:], b[0], b[4:]), [uniform(20, 20)]),
}

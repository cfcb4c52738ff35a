"""Numbers, constants, factories, quotients and dtypes, by the names of PyTorch's tests."""

import math

import torch
import torch.nn.functional as F

from .case import arange, bools, case, cast, full, integers, normal, ones, tensor, uniform, zeros

aten = torch.ops.aten
f64, f16, bf16, i32, i64, u8 = torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8
NUMERIC = (torch.float32, f64, f16, bf16, u8, torch.int8, torch.int16, i32, i64)


def quotients(a, b):
    return aten.div(a, b, rounding_mode=None), aten.div(a, b, rounding_mode="floor"), aten.div(a, b, rounding_mode="trunc"), a / b, a // b


def sums(a, b):
    return aten.add(a, b), aten.add(b, a), aten.sub(a, b), aten.sub(b, a), aten.mul(a, b), aten.mul(b, a)


def several_constants(x):
    return torch.tensor([]), torch.tensor([1, 2]) + 1, torch.tensor([1, 2, 3]) + 2, torch.tensor([1, 2, 3, 4]) + x


def full_of(kind):
    value = {bool: True, int: 42, float: 42.0}[kind]
    return [torch.full((4, 6), value, dtype=d) for d in (torch.bool, i32, i64, torch.float32, f64, None)]


def sweep(kinds):
    """A sum of every two layouts and dtypes."""
    return lambda *args: [a + b for a in args for b in args][: len(kinds) ** 2]


SWEPT = [
    (10, 10),
    lambda: torch.randn(10, 10).t(),
    lambda: torch.randn(20, 30)[10:, 10::2],
    (10,),
    (1, 10, 1),
    (1,),
    normal(10, 10, dtype=f64),
    arange(10, dtype=i32),
]

SCALARS = {
    "add_const_int": case(lambda a: (a + 1, torch.add(a, 1, alpha=2)), *([arange(32, dtype=d)] for d in (torch.float32, i32, i64))),
    "add_const_float": case(lambda a: a + 1.5, [(32,)], [arange(5)]),
    "sweep_inputs": case(sweep(SWEPT), SWEPT),
    "arange1": case(lambda x: (t := x * torch.arange(64, dtype=torch.float32).view(8, 8), t + torch.arange(10, 18)), [(8, 8)]),
    "arange2": case(lambda x: x + torch.arange(8), [integers(0, 4, (8, 8))]),
    "arange3": case(lambda x: x + aten.arange.start_step(0, 53, 4, dtype=i64), [(14,)]),
    "arange4": case(lambda x: x - torch.arange(512, -512, -1.0), [(1024,)]),
    "arange5": [case(lambda step: torch.arange(512, -512, step), [step], alone=True) for step in (-1, -1.0)],
    "arange6": case(lambda x: torch.arange(0.1, 8.0001, 1, dtype=x.dtype), [(1,)], [integers(0, 2, (1,))]),
    "linspace1": case(lambda x: torch.linspace(0.125, 0.875, 7) + x, [(1, 7)]),
    "linspace2": case(lambda x: torch.linspace(0, 2, 1) + x, [(1, 1)]),
    "linspace3": case(lambda x: torch.linspace(0, 2, 0) + x, [tensor([])]),
    "cant_optimize_compute": case(
        lambda x, y: [(t.long() + 1).double() for t in (x + 2147483657, torch.where(x < 0, x, x - 2) * -(2**40), x + y, x + y.sum())], [ones(4), (4,)]
    ),
    "optimize_compute": case(lambda x: [(t.long() + 1).double() for t in (x + 500, torch.where(x < 0, x, x - 2) * -(2**20), x / 30)], [ones(4)]),
    "tensor1": case(lambda x: (torch.tensor([1]) + x, torch.tensor(5)), [(10,)]),
    "tensor2": case(lambda x: torch.tensor(list(range(2, 40, 2))) + x, [(1,)]),
    "tensor3": case(several_constants, [(4,)]),
    "long_tensor": case(lambda a: (torch.tensor([294]) - a, torch.as_tensor([295]).to(a.device) + a), [integers(0, 999, (8, 8))]),
    "div1": case(quotients, [lambda: torch.randn(8, 8) * 100, lambda: torch.randn(8, 8) * 100]),
    "div2": case(quotients, [integers(-100, 100, (8, 8)), lambda: torch.randn(8, 8) * 100]),
    "div3": case(quotients, [lambda: torch.arange(1, 65) * 2, arange(1, 65)]),
    "div4": case(quotients, [integers(-100, 0, (8, 8)), integers(1, 10, (8, 8))]),
    "div5": case(quotients, [integers(-100, 0, (8, 8)), 16]),
    "div6": case(quotients, [ones(8, 8, dtype=torch.bool), integers(-100, -1, (8, 8))]),
    "div7": case(quotients, [integers(2**32, 2**40, (10, 10)), integers(-10, -1, (10, 10))]),
    "div8": case(lambda a, b: (*quotients(a, b), aten.div(a * 0.5, b), aten.div(a, b * 1.0)), [1024, 100], alone=True),
    "div9": case(lambda x: (torch.div(42, x), aten.true_divide(42, x), aten.div.Tensor(42, x)), [(8,)]),
    "div_zero_dim": case(
        quotients,
        *(
            [a, b]
            for d in (torch.float32, i64)
            for a, b in ((integers(1, 9, (10,), d), integers(1, 9, (), d)), (integers(1, 9, (), d), integers(1, 9, (10,), d)))
        ),
    ),
    "div_prim": case(torch.ops.prims.div, *([integers(-99, 99, (100,), d), integers(1, 9, (100,), d)] for d in (torch.float32, i64))),
    "floordiv": case(lambda a, i: (a + (i * 1.234) // 8.234, a + i // 8), [(10,), 33]),
    "div_precision": case(lambda x, y: (x.div(y).softmax(-1), x.div(1e-6).softmax(-1)), [lambda: torch.randn(3, 2, 4, 4) * 100, uniform(3, 1, 1, 1)]),
    "div_softmax_symfloat": case(lambda x, y: x.div(y * x.shape[-1]).softmax(-1), [(1, 10, 2), 1e-5], [(1, 10, 2), 1e-6], alone=True),
    "mul_softmax_symfloat": case(lambda x, y: x.mul(y * x.shape[-1]).softmax(-1), [(1, 10, 2), 1e-5], [(1, 10, 2), 1e-6], alone=True),
    "both_scalars": case(sums, [4, 3.3], alone=True),
    "scalar_input": case(lambda x, y: torch.div(x, y, rounding_mode="floor"), [integers(0, 5, (1, 8)), 5400]),
    "scalar_output": case(
        lambda w, i: (torch.full([1, i.size(1)], 1.0), i.size(1), F.embedding(i.view(-1, i.size(1)), w)), [(32, 8), integers(0, 32, (1, 22))]
    ),
    "shape_prop_torch_ones": case(lambda x: x + torch.ones(8, 1, 1, 12), [(8, 3, 12, 12)]),
    "to_dtype": case(
        lambda a, b: (aten._to_copy(a, dtype=torch.float32), (b + 1).to(torch.float32), b.to(f64), b.to(torch.bool)),
        [(2, 2, 10), normal(2, 2, 10, dtype=f64)],
    ),
    "to_device": case(lambda a: (a.to("cpu", torch.float32) + 1).to(a.device), [(2, 2, 10)]),
    "to_device_constant": case(
        lambda a: (torch.arange(10, device="cpu").to(a.device) + a, (torch.arange(64, device="cpu") + 1).to(a.device)), [(10,)]
    ),
    "multi_device": case(lambda x: ((((x + 1) * 2).cpu() + 5).to(x.device) + 7).cpu() + 9, [(2, 2, 10)]),
    "move_arange": case(lambda x: torch.arange(len(x), device="cpu").to(x.device) + x, [(32,)]),
    "scalar_cpu_tensor_arg": case(
        lambda x, y: x + y.sum(), *([(20,), lambda d=d: torch.rand(4, device="cpu", dtype=d)] for d in (torch.float32, f64, f16, bf16))
    ),
    "unspec_inputs": case(
        lambda x, y: (x + y, x * y, x / y, y + x * 2),
        *([(2, 3), lambda d=d: torch.tensor(3, dtype=d, device="cpu")] for d in (*NUMERIC, torch.bool)),
    ),
    "zeros": case(
        lambda a: (a + 1, torch.zeros((1, 8, 4)), torch.zeros(1, 8, 4), torch.zeros(2, 3), a + torch.ones(8), torch.full((2, 3), 3.1416)), [(8,)]
    ),
    "new_ones": case(lambda a: (aten.new_ones(a, [], dtype=torch.float32), aten.new_zeros(a, [], dtype=torch.float32)), [(8,)]),
    "full_like": case(lambda a: torch.full_like(a, 7.777) - 1, [(8,)]),
    "full_truncation": case(lambda a: a + torch.full_like(a, 7.777), *([integers(0, 9, (8,), d)] for d in NUMERIC)),
    "full_boolean": case(lambda n: (x := torch.full((1,), n >= 1024), x + 1), [1024], [1023], alone=True),
    "full_dtype": [case(lambda kind=kind: full_of(kind)) for kind in (bool, int, float)],
    "argmax_to_float": case(lambda: torch.zeros(2, 2).argmax(0).float().mean()),
    "const_int32_to_float": case(lambda: (torch.zeros(1, 2, dtype=i32) * 2).float() * 0.8),
    "float_index_expression_type_promotion": case(lambda x: x + 1.0 / x.size(0), [arange(10)]),
    "constant_pad_fill_dtype": case(lambda a, b: (F.pad(a, (1, 1), value=1.0) & b, F.pad(a, (1, 1), value=0.0) & b), [bools(4), bools(6)]),
    "builtins_round": case(lambda x, i: x[: round(i / 2 + 1)] + round(i / 2), *([zeros(5, dtype=i32), i] for i in range(1, 6)), alone=True),
    "builtins_round_float_ndigits_pos": case(lambda x, i: x + round(i / 2 * 123.4567, 1), [zeros(2), 2], alone=True),
    "builtins_round_float_ndigits_zero": case(lambda x, i: x + round(i / 2 * 123.4567, 0), [zeros(2), 2], alone=True),
    "builtins_round_float_ndigits_neg": case(lambda x, i: x + round(i / 2 * 123.4567, -1), [zeros(2), 2], alone=True),
    "builtins_round_int_ndigits_pos": case(lambda x, i: x + round(i, 1), [zeros(2), 123], alone=True),
    "builtins_round_int_ndigits_zero": case(lambda x, i: x + round(i, 0), [zeros(2), 123], alone=True),
    "int_input_dynamic_shapes": case(lambda x, i: x * i, [(3, 1, 1), 9132], [(3, 1, 1), 4], alone=True),
    "sqrt_dynamic_shapes": case(lambda x: torch.arange(int(x.shape[1] ** 0.5)) + x.sum(), [(8, 4, 4)]),
    "rsqrt_dynamic_shapes": case(lambda a, b: torch.bmm(a, b) / (1 / math.sqrt(a.size(1))), [(2, 4, 4), (2, 4, 4)]),
    "pow_symfloat": case(lambda x: x * math.sqrt(x.size(0)) ** 10, [(16, 16)], rtol=1e-5, atol=1e-1),
    "pow_by_natural_log2_dynamic_shapes": case(lambda x: x + 2 ** math.floor(math.log2(x.shape[0]) + 1), [(5,)]),
    "no_specization_over_symbolic_value": case(lambda x: x + torch.full((1,), x.shape[0]), [(10,)], [(11,)], alone=True),
    "graph_partition_arange1": case(lambda x: torch.arange(9, -9, -1, device="cpu").to(x.device) + x, [(18,)]),
    "graph_partition_arange2": case(lambda x: torch.arange(0.1, 8.0001, 1, dtype=x.dtype) * x, [(1,)], [integers(1, 2, (1,))]),
    "graph_partition_argmax": case(lambda: torch.ones(2, 2).argmax(1).float().mean()),
    "graph_partition_both_scalars": case(sums, [7, 2.5], alone=True),
    "graph_partition_constant_tensor1": case(lambda: torch.ones(1, 2, dtype=i32).float() * 0.8),
    "graph_partition_constant_tensor2": case(lambda x: torch.tensor(list(range(2, 40, 2))) * x, [(1,)]),
    "graph_partition_scalar_inputs": case(quotients, [1000, 7], alone=True),
}

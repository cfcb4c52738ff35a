"""Models with quantised weights, whole graphs of them, and what stays eager."""
import pytest
import torch
from torch import nn

import kiln_torch

A = torch.ops.aten


def compiled(fn, *args):
    """The compiled result, and the ops that stay eager."""
    with torch.no_grad():
        have = torch.compile(fn, backend="kiln")(*args)
    return have, [op for r in kiln_torch.reports for op in r.eager]


def int8(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8)


@pytest.mark.parametrize("scheme", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig", "Float8WeightOnlyConfig", "IntxWeightOnlyConfig"])
def test_torchao(scheme):
    quantization = pytest.importorskip("torchao.quantization")
    model, x = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)).eval(), torch.randn(4, 32)
    quantization.quantize_(model, getattr(quantization, scheme)())
    with torch.no_grad():
        want = model(x)
    have, eager = compiled(model, x)
    torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-5)
    assert not eager and sum(r.programs for r in kiln_torch.reports) == 1


def test_int8_products():
    x, y = int8(17, 64), int8(64, 32)
    have, eager = compiled(lambda x, y: A._int_mm(x, y) + 1, x, y)
    assert torch.equal(have, A._int_mm(x, y) + 1)
    assert not eager


def test_products_of_8_bit_floats():
    x, y = torch.randn(16, 32).to(torch.float8_e4m3fn), torch.randn(48, 32).to(torch.float8_e4m3fn)
    scale = torch.tensor(0.5)
    multiply = lambda x, y, s: A._scaled_mm(x, y.t(), s, s, out_dtype=torch.float32)
    try:
        want = multiply(x, y, scale)
    except NotImplementedError:
        pytest.skip("this PyTorch has no such product on processors")
    have, eager = compiled(multiply, x, y, scale)
    torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-5)
    assert not eager


def test_weights_packed_before_stay_eager(device):
    if device != "cpu":
        pytest.skip("a layout of processors")
    weight = A._convert_weight_to_int4pack_for_cpu(torch.randint(0, 16, (32, 64), dtype=torch.int32), 1)
    x, scales = torch.randn(4, 64), torch.rand(2, 32, 2)
    multiply = lambda x, w, s: torch.relu(A._weight_int4pack_mm_for_cpu(x, w, 32, s)) + 1
    have, eager = compiled(multiply, x, weight, scales)
    torch.testing.assert_close(have, multiply(x, weight, scales))
    assert any("int4pack_mm" in op for op in eager), eager

"""PyTorch's operator tests through torch.compile: a few of each family. tests/opinfo/compiled.py runs all."""
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("expecttest", reason="PyTorch's operator tests need it")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "opinfo"))
from compiled import GOOD, checked  # noqa: E402
from opinfo import operators  # noqa: E402

from kiln_torch.partition import factors_transposes  # noqa: E402

FORWARD = """add addcdiv addmm cumsum einsum fft.irfft fft.fft2 gather index_fill index_put linalg.solve linalg.svd logsumexp masked_fill
nn.functional.conv2d nn.functional.cross_entropy nn.functional.interpolate.bilinear nn.functional.max_pool2d nn.functional.soft_margin_loss
scatter_reduce.amin sort split_with_sizes std_mean take_along_dim topk triu unfold var_mean view_as_complex where"""
INTEGERS = "bitwise_and cumsum floor_divide index_add matmul prod sort sum true_divide"
HALF = "addcdiv addmm nn.functional.gelu nn.functional.layer_norm nn.functional.mse_loss softmax sum"
GRADIENTS = """addcdiv cdist fft.rfft index_add linalg.cholesky linalg.solve masked_scatter matmul nn.functional.conv2d
nn.functional.embedding nn.functional.pad.replicate nn.functional.pdist sgn
nn.functional.glu nn.functional.max_pool2d nn.functional.nll_loss prod std"""
KINDS = [("float32", FORWARD, False), ("int64", INTEGERS, False), ("bfloat16", HALF, False), ("float32", GRADIENTS, True)]
CASES = [(name, dtype, gradients) for dtype, names, gradients in KINDS for name in names.split()]


@pytest.fixture(scope="module")
def known():
    return dict(operators(""))


@pytest.mark.parametrize("name, dtype, gradients", CASES)
def test_operator_as_eager(name, dtype, gradients, known, device):
    if name == "linalg.solve" and gradients and factors_transposes():
        pytest.skip("this PyTorch's derivative reads other factors than kiln's, and stays eager")
    op = known[name]
    for k, sample in enumerate(op.sample_inputs(device, getattr(torch, dtype), requires_grad=gradients)):
        if k == 2:
            break
        what, detail = checked(op, sample, gradients)
        assert what in GOOD, f"{what}: {detail}"

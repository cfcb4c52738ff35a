"""The scripts of tests/zoo, and the float64 reference that they measure models by."""
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ZOO = Path(__file__).resolve().parents[2] / "tests" / "zoo"
sys.path.insert(0, str(ZOO))
from exact import in_float64  # noqa: E402


class Narrowing(torch.nn.Module):
    """A model that computes in float32 whatever its parameters are, with experts multiplied in groups."""

    def __init__(self):
        super().__init__()
        self.experts = torch.nn.Parameter(torch.randn(2, 8, 8))

    def forward(self, x, ends):
        x = torch.softmax(x.float(), -1, dtype=torch.float32) + torch.ones(8, dtype=torch.float32) / 3
        return torch.nn.functional.grouped_mm(x.to(torch.float32), self.experts, offs=ends) + torch.full((8,), 0.1)


def test_nothing_is_rounded(device):
    model, x, ends = Narrowing(), torch.randn(6, 8), torch.tensor([4, 6], dtype=torch.int32)
    weights, wide = model.experts.detach().double(), torch.softmax(x.double(), -1) + torch.ones(8, dtype=torch.float64) / 3
    want = torch.cat([wide[:4] @ weights[0], wide[4:] @ weights[1]]) + 0.1
    with in_float64():
        got = model.double()(x.double(), ends)
        got.square().mean().backward()
    assert got.dtype == torch.float64 and (got - want).abs().max() < 1e-14
    w = weights.requires_grad_()
    (torch.cat([wide[:4] @ w[0], wide[4:] @ w[1]]) + 0.1).square().mean().backward()
    assert (model.experts.grad - w.grad).abs().max() < 1e-14
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("script", ["archives.py", "compiled.py"])
def test_scripts_start(script):
    subprocess.run([sys.executable, ZOO / script, "--help"], check=True, capture_output=True)

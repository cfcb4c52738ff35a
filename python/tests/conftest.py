import pytest
import torch

import kiln_torch


@pytest.fixture(autouse=True)
def fresh():
    """Each test compiles anew, on the same random numbers."""
    torch._dynamo.reset()
    kiln_torch.reports.clear()
    torch.manual_seed(0)

import sys
from pathlib import Path

import pytest
import torch
from torch._functorch import config

import kiln_torch

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
# Eager's products are compared in full precision.
torch.backends.cudnn.allow_tf32 = False


def pytest_addoption(parser):
    parser.addoption("--emulate", action="store_true", help="programs are for a GPU, which the emulator runs: under `./x emulate`")


def pytest_configure(config):
    if config.getoption("--emulate"):
        sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "zoo"))
        from emulated import emulate

        emulate()


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    """Each test compiles anew, on the same random numbers, for tensors of each device."""
    config.enable_autograd_cache = False
    torch._dynamo.reset()
    kiln_torch.reports.clear()
    torch.manual_seed(0)
    with torch.device(request.param):
        yield request.param

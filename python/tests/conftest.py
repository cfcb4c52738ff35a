import pytest
import torch

import kiln_torch

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
# Eager's products are compared in full precision.
torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    """Each test compiles anew, on the same random numbers, for tensors of each device."""
    torch._dynamo.reset()
    kiln_torch.reports.clear()
    torch.manual_seed(0)
    with torch.device(request.param):
        yield request.param

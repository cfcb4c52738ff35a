"""Writes NAME.other.safetensors: inputs of other sizes than NAME.pt2 was exported with, and PyTorch's results.

    python other_sizes.py
"""
import torch
from pathlib import Path
from safetensors.torch import save_file

here = Path(__file__).parent
torch.manual_seed(1)
for name, x in {"mlp": torch.randn(3, 64), "lenet": torch.randn(2, 1, 28, 28), "gpt2_tiny": torch.randint(0, 1000, (2, 7))}.items():
    with torch.no_grad():
        out = torch.export.load(here / f"{name}.pt2").module()(x)
    save_file({"input_0": x, "output_0": out.contiguous()}, str(here / f"{name}.other.safetensors"))

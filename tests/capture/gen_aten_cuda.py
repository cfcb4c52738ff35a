"""Makes aten_cuda.pt2 and .safetensors in this folder, as gen_aten.py does: cases whose ops PyTorch has for GPUs only. Needs a GPU, torch and
safetensors.

    python gen_aten_cuda.py [DIR]
"""
import sys
from pathlib import Path

import torch
from aten_support import HERE, Each, write

A = torch.ops.aten
bf16 = torch.bfloat16


def int4():
    """Products with int4 weights in CUDA's layout, packed by the program and before it."""
    for inner, group, rows, n, k in ((2, 32, 3, 16, 64), (4, 64, 5, 24, 128), (8, 128, 17, 40, 256), (8, 32, 1, 8, 128)):
        x = torch.randn(rows, k, dtype=bf16)
        weights = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8)
        scales = torch.rand(k // group, n, 2, dtype=bf16) - 0.5
        yield lambda w, i=inner: A._convert_weight_to_int4pack.default(w, i), weights
        yield lambda x, w, z, i=inner, g=group: A._weight_int4pack_mm.default(x, A._convert_weight_to_int4pack.default(w, i), g, z), x, weights, scales
        packed = A._convert_weight_to_int4pack.default(weights, inner)
        yield lambda x, w, z, g=group: A._weight_int4pack_mm.default(x, w, g, z), x, packed, scales


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_default_device("cuda")
    cases = [(fn, args, [None] * len(args)) for fn, *args in int4()]
    args = [t for _, inputs, _ in cases for t in inputs]
    write((Path(sys.argv[1]) if sys.argv[1:] else HERE) / "aten_cuda", Each(cases), args, None)

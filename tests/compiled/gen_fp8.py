"""Writes fp8.safetensors: PyTorch's conversions to and from fp8. Needs torch and safetensors.

f32, f16 and bf16 hold what is converted; <source>_<format> the bytes that `.to(format)` gives; <format>_<target> what the 256 bytes are in a target.
"""
import torch
from pathlib import Path
from safetensors.torch import save_file

FORMATS = {"f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2}
SOURCES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
inf, nan = float("inf"), float("nan")

codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
near = [torch.tensor([0.0, inf, nan, 464.0, 465.0, 479.9, 480.0, 61439.0, 61440.0, 65535.0, 65536.0, 3.4e38, 1e-45, 1.2e-38, 2.0**-11, 2.0**-18])]
for format in FORMATS.values():
    grid = codes[:128].view(format).float()
    grid = grid[grid.isfinite()]
    middle = (grid[1:] + grid[:-1]) / 2
    far = torch.tensor(inf)
    near += [grid, middle, torch.nextafter(middle, far), torch.nextafter(middle, -far)]
generator = torch.Generator().manual_seed(0)
any_exponent = torch.randint(0, 2**31 - 1, (700,), generator=generator).to(torch.int32).view(torch.float32)
positive = torch.cat([*near, any_exponent, torch.rand(301, generator=generator) * 2])
x = torch.cat([positive, -positive])
tensors = {}
for source, dtype in SOURCES.items():
    # Every ninth 16-bit number.
    own = x if source == "f32" else torch.arange(-(2**15), 2**15, 9).to(torch.int16).view(dtype)
    tensors[source] = own
    for name, format in FORMATS.items():
        tensors[f"{source}_{name}"] = own.to(format).view(torch.uint8)
        tensors[f"{name}_{source}"] = codes.view(format).to(dtype)
save_file({k: v.contiguous() for k, v in tensors.items()}, str(Path(__file__).parent / "fp8.safetensors"))

"""Writes control.pt2 and control.safetensors: control flow as torch.export saves it, and PyTorch's results for two sizes.

  python tests/capture/gen_control.py
"""
import pathlib

import torch
from safetensors.torch import save_file
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

HERE = pathlib.Path(__file__).parent


class Control(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        # Nested branches and loops that read weights and outer values.
        scale = x.abs().mean()
        y = torch.cond(x.sum() > 0, lambda x: self.linear(x).relu() * scale, lambda x: (x - 1).clone(), (x,))

        def smaller(i, z):
            return (i < 20) & (z.abs().max() < 50)

        def grow(i, z):
            return i + 1, torch.cond(i % 2 == 0, lambda z: z * 2 + scale, lambda z: torch.sin(z) + z, (z,))

        i, z = while_loop(smaller, grow, (torch.tensor(0), y))
        last, sums = scan(lambda c, r: (c + r, c * r), torch.zeros(4), z, dim=0)
        rows = torch_map(lambda r: torch.softmax(r, 0) + scale, x)
        return i, z, last, sums, rows


torch.manual_seed(0)
model = Control().eval()
inputs = {"": torch.randn(3, 4).abs(), ".other": -torch.randn(5, 4).abs()}
batch = torch.export.Dim("batch", min=2, max=64)
with torch.no_grad():
    program = torch.export.export(model, (inputs[""],), dynamic_shapes=({0: batch},))
    torch.export.save(program, HERE / "control.pt2")
    for name, x in inputs.items():
        results = {f"output_{i}": t.contiguous() for i, t in enumerate(model(x))}
        save_file({"input_0": x, **results}, HERE / f"control{name}.safetensors")

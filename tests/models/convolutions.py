"""Makes convolutions.pt2 and convolutions.dynamic.pt2 (a batch of any size): convolutions of one to three dimensions, grouped, depthwise,
strided, dilated and transposed, with norms, activations and sums around them, one result a stack, and PyTorch's results.

    python convolutions.py [DIR]
"""
import sys
from pathlib import Path

import torch
from archive import save
from safetensors.torch import save_file
from torch import nn


def block(rank, inputs, outputs, window, transposed=False, **more):
    kind = f"Conv{'Transpose' * transposed}{rank}d"
    norm = getattr(nn, f"BatchNorm{rank}d")(outputs)
    norm.running_mean.normal_(0, 0.1)
    norm.running_var.uniform_(0.5, 1.5)
    return nn.Sequential(getattr(nn, kind)(inputs, outputs, window, **more), norm, nn.ReLU())


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.sequence = nn.Sequential(
            block(1, 20, 48, 3, stride=2, padding=1), Residual(block(1, 48, 48, 5, padding=4, dilation=2, groups=4)), block(1, 48, 40, 4, groups=2), nn.GELU())
        self.image = nn.Sequential(
            block(2, 3, 48, 3, stride=2, padding=1), Residual(block(2, 48, 48, 3, padding=1, groups=4)), block(2, 48, 80, 3, stride=2, padding=1, groups=2),
            Residual(block(2, 80, 80, 3, padding=2, dilation=2, groups=20)), block(2, 80, 96, 1, groups=8), nn.MaxPool2d(2))
        self.multiplied = nn.Sequential(block(2, 3, 24, 3, padding=1, groups=3), block(2, 24, 24, 3, stride=2, groups=24), block(2, 24, 8, 1, groups=8))
        self.video = nn.Sequential(
            block(3, 3, 32, (3, 5, 5), stride=(1, 2, 2), padding=(1, 2, 2)), Residual(block(3, 32, 32, 3, padding=1, groups=2)),
            block(3, 32, 48, 3, stride=2, padding=1), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(48, 10))
        self.up = nn.Sequential(block(2, 16, 24, 2, stride=2, transposed=True, groups=2), block(2, 24, 8, 4, stride=2, padding=1, transposed=True))

    def forward(self, sequence, image, video, features):
        return self.sequence(sequence).transpose(1, 2), self.image(image), self.multiplied(image), self.video(video), self.up(features)


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    torch.manual_seed(0)
    model = Convolutions().eval()
    r = torch.randn
    args = (r(2, 20, 45), r(2, 3, 37, 32), r(2, 3, 6, 20, 18), r(2, 16, 7, 9))
    batch = torch.export.Dim("batch", min=2, max=64)
    with torch.no_grad():
        results = model(*args)
        program = torch.export.export(model, args)
        dynamic = torch.export.export(model, args, dynamic_shapes=({0: batch},) * 4)
    save(program, out / "convolutions.pt2")
    save(dynamic, out / "convolutions.dynamic.pt2")
    tensors = {f"input_{i}": a for i, a in enumerate(args)} | {f"output_{i}": x.contiguous() for i, x in enumerate(results)}
    save_file(tensors, str(out / "convolutions.safetensors"))

"""Makes nn.safetensors (the state_dict of a model with every layer of kiln's nn, as PyTorch saves it) and nn.numbers.safetensors
(input_K, output_K of the model, PyTorch's, eager on a CPU). Needs torch and safetensors.

    python nn.py
"""
import torch, torch.nn as nn
from pathlib import Path
from safetensors.torch import save_file

HERE = Path(__file__).parent


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.rms = nn.RMSNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 8, bias=False))
        self.image = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, stride=(2, 1), groups=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, (1, 2), bias=False))

    def forward(self, ids, pixels):
        x = self.embed(ids)
        n = self.norm(x)
        mask = torch.full((ids.shape[1], ids.shape[1]), float("-inf")).triu(1)
        x = x + self.attention(n, n, n, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.rms(x)), self.image(pixels)


torch.manual_seed(0)
model = Model().eval()
with torch.no_grad():
    for name, t in model.state_dict().items():
        if t.is_floating_point():
            t.add_(torch.rand_like(t) * 0.5)
    ids, pixels = torch.randint(0, 11, (2, 5)), torch.randn(3, 2, 6, 5)
    out = model(ids, pixels)
save_file(model.state_dict(), str(HERE / "nn.safetensors"))
save_file({"input_0": ids, "input_1": pixels} | {f"output_{k}": o.contiguous() for k, o in enumerate(out)}, str(HERE / "nn.numbers.safetensors"))

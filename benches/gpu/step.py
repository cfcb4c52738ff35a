"""The training step of benches/step.rs in PyTorch: eager, and TorchInductor without and with CUDA graphs, in one process.

    python benches/gpu/step.py [RUST]

RUST is the bench's binary (target/release/deps/step-*), which runs before PyTorch's modes and after them.
"""
import subprocess
import sys
import time

import torch
from torch import nn
import torch.nn.functional as F

BATCH, LENGTH, WIDTH, HEADS, LAYERS, TOKENS, ROUNDS, STEPS = 8, 256, 512, 8, 4, 8192, 5, 10


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def timed(mode):
    torch.manual_seed(0)
    torch._dynamo.reset()
    net = nn.Sequential(nn.Embedding(TOKENS, WIDTH), *[Layer() for _ in range(LAYERS)], nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS, bias=False)).cuda()
    nn.init.normal_(net[0].weight, std=0.02)
    adamw = torch.optim.AdamW(net.parameters(), lr=3e-4, fused=True)
    x = (torch.arange(BATCH * LENGTH) * 7919 % TOKENS).view(BATCH, LENGTH).cuda()

    def loss(x):
        with torch.autocast("cuda", torch.bfloat16):
            return F.cross_entropy(net(x).flatten(0, 1), x.flatten())

    forward = loss if mode == "eager" else torch.compile(loss, mode=mode, fullgraph=True)
    times = []
    for round in range(ROUNDS + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            value = forward(x)
            value.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            adamw.step()
            adamw.zero_grad()
        torch.cuda.synchronize()
        if round:
            times.append((time.perf_counter() - start) / STEPS * 1e3)
    times.sort()
    print(f"| torch {torch.__version__}, {mode} | {times[ROUNDS // 2]:.2f} | {times[0]:.2f} to {times[-1]:.2f} | {float(forward(x)):.3f} |", flush=True)


def kiln():
    if len(sys.argv) > 1:
        subprocess.run([sys.argv[1], "cuda"], check=True)


kiln()
for mode in ("eager", "default", "reduce-overhead"):
    timed(mode)
kiln()

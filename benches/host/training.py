#!/usr/bin/env python3
"""Times training steps on the host: kiln's as one program and through torch.compile, beside eager, Inductor and JAX.

    training.py [--items mlp,block] [--peers eager,inductor,jax] [--threads 2] [--rounds 9] [--seconds 0.5] [--out FILE.json]

mlp: forward and backward pass of 784-1024-1024-1024-10 with ReLU and cross entropy on 128 items, and AdamW. block: forward and backward pass of
a pre-norm transformer block of width 768 on 4x128 tokens, gradients by its input and weights. All in f32. PyTorch's optimizer is its fused one,
beside a compiled forward and backward pass; kiln's program and JAX's hold the whole step. Each worker is a process that makes the same weights
and inputs; what its first steps give is compared with float64. Rounds wake one worker after the other, as bench.py's.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench import Side, serve

BATCH, INPUTS, WIDTH, CLASSES = 128, 784, 1024, 10
BLOCK, HEADS = (4, 128, 768), 12
CHECKED = 3
TOLERANCE = 1e-4


def numbers(shape, seed, scale):
    """benches/training.rs's."""
    i = np.arange(1, math.prod(shape) + 1, dtype=np.uint64) + np.uint64(seed * 7919)
    return ((((i * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)) / 2**31 - 1) * scale).astype(np.float32).reshape(shape)


def weights(item):
    w = BLOCK[2]
    layers = [(WIDTH, INPUTS), (WIDTH, WIDTH), (WIDTH, WIDTH), (CLASSES, WIDTH)] if item == "mlp" else [(3 * w, w), (w, w), (4 * w, w), (w, 4 * w)]
    out = []
    for k, (rows, columns) in enumerate(layers):
        out += [numbers((rows, columns), 2 * k, columns**-0.5), numbers((rows,), 2 * k + 1, columns**-0.5)]
    if item == "block":
        for k in range(2):
            out += [numbers((w,), 20 + k, 0.1) + np.float32(1), numbers((w,), 30 + k, 0.1)]
    return out


def data(item):
    if item == "mlp":
        return numbers((BATCH, INPUTS), 99, 2.0), np.arange(BATCH) * 7 % CLASSES
    return numbers(BLOCK, 99, 2.0), numbers(BLOCK, 98, 1.0)


def torch_step(item, backend, dtype=None):
    """A step: the loss, or the gradient by the block's input."""
    import torch
    import torch.nn.functional as F

    as_dtype = lambda a: torch.from_numpy(a).to(dtype or torch.float32) if a.dtype == np.float32 else torch.from_numpy(a)
    w, (x, t) = [torch.nn.Parameter(as_dtype(a)) for a in weights(item)], map(as_dtype, data(item))

    def mlp(x, t):
        for k in range(0, 6, 2):
            x = F.linear(x, w[k], w[k + 1]).relu()
        return F.cross_entropy(F.linear(x, w[6], w[7]), t)

    def block(x):
        n, s, width = x.shape
        norm = lambda x, k: F.layer_norm(x, (width,), w[k], w[k + 1])
        q, k, v = F.linear(norm(x, 8), w[0], w[1]).view(n, s, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, s, width)
        x = x + F.linear(y, w[2], w[3])
        return x + F.linear(F.gelu(F.linear(norm(x, 10), w[4], w[5])), w[6], w[7])

    function = mlp if item == "mlp" else block
    if backend:
        function = torch.compile(function, backend=backend, dynamic=False)
    if item == "mlp":
        adamw = torch.optim.AdamW(w, fused=True)

        def step():
            adamw.zero_grad()
            loss = function(x, t)
            loss.backward()
            adamw.step()
            return loss.detach()
    else:
        x.requires_grad_()

        def step():
            for p in [x, *w]:
                p.grad = None
            function(x).backward(t)
            return x.grad
    return step


def jax_step(item):
    import jax
    import jax.numpy as jnp

    w, (x, t) = [jnp.asarray(a) for a in weights(item)], map(jnp.asarray, data(item))
    linear = lambda x, w, b: x @ w.T + b

    def mlp(w, x, t):
        for k in range(0, 6, 2):
            x = jax.nn.relu(linear(x, w[k], w[k + 1]))
        logits = linear(x, w[6], w[7])
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), t[:, None], 1).mean()

    def norm(x, scale, bias):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * scale + bias

    def block(given, c):
        x, w = given
        n, s, width = x.shape
        q, k, v = linear(norm(x, w[8], w[9]), w[0], w[1]).reshape(n, s, 3, HEADS, width // HEADS).transpose(2, 0, 3, 1, 4)
        p = jax.nn.softmax(q @ k.swapaxes(-1, -2) / math.sqrt(width // HEADS))
        x = x + linear((p @ v).transpose(0, 2, 1, 3).reshape(n, s, width), w[2], w[3])
        y = x + linear(jax.nn.gelu(linear(norm(x, w[10], w[11]), w[4], w[5]), approximate=False), w[6], w[7])
        return (y * c).sum()

    if item == "block":
        f = jax.jit(jax.value_and_grad(block))
        return lambda: jax.block_until_ready(f((x, w), t))[1][0]
    state = [w, [jnp.zeros_like(a) for a in w], [jnp.zeros_like(a) for a in w], jnp.zeros((), jnp.int32)]

    def update(state, x, t):
        """AdamW with PyTorch's defaults."""
        w, m, v, count = state
        loss, g = jax.value_and_grad(mlp)(w, x, t)
        count = count + 1
        m = [0.9 * a + 0.1 * b for a, b in zip(m, g)]
        v = [0.999 * a + 0.001 * b * b for a, b in zip(v, g)]
        first, second = 1 - 0.9**count, 1 - 0.999**count
        w = [a * (1 - 1e-3 * 1e-2) - 1e-3 * (b / first) / (jnp.sqrt(c / second) + 1e-8) for a, b, c in zip(w, m, v)]
        return loss, [w, m, v, count]

    f = jax.jit(update, donate_argnums=0)

    def step():
        nonlocal state
        loss, state = jax.block_until_ready(f(state, x, t))
        return loss
    return step


def worker(peer, item, threads):
    start = time.perf_counter()
    if peer == "jax":
        step = jax_step(item)
    else:
        import torch

        torch.set_num_threads(threads)
        step = torch_step(item, {"eager": None, "kiln-torch": "kiln"}.get(peer, peer))
    norm = lambda r: float(np.linalg.norm(np.asarray(r, dtype=np.float64)))
    checked = [norm(step())]
    first = time.perf_counter() - start
    checked += [norm(step()) for _ in range(1, CHECKED)]
    print(json.dumps({"first_s": first, "numbers": checked}), flush=True)
    serve(step)


def reference(item):
    import torch

    step = torch_step(item, None, torch.float64)
    return [float(np.linalg.norm(step().numpy())) for _ in range(CHECKED)]


def measure(args, item):
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), MKL_NUM_THREADS=str(args.threads))
    if args.threads == 1:
        env["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    want, row, sides = reference(item), {"item": item, "peers": {}}, {}
    own = ["kiln-torch", *(["kiln"] if args.kiln else [])]
    for peer in own + args.peers:
        python = [sys.executable, os.path.abspath(__file__), "--worker", peer, item, str(args.threads)]
        sides[peer] = Side([args.kiln, item] if peer == "kiln" else python, env)
        first = sides[peer].first
        error = max(abs(a - b) / abs(b) for a, b in zip(first["numbers"], want))
        row["peers"][peer] = {"first_s": first["first_s"], "error": error}
        if error > TOLERANCE:
            raise RuntimeError(f"{item}: {peer} gives {first['numbers']}, float64 {want}")
    samples = {s: [] for s in sides}
    for s in sides.values():
        s.burst(args.seconds)
    for r in range(args.rounds):
        for s in list(sides)[:: 1 if r % 2 == 0 else -1]:
            samples[s].append(sides[s].burst(args.seconds)["median_us"])
    for s in sides.values():
        s.close()
    for peer, entry in row["peers"].items():
        entry["us"] = statistics.median(samples[peer])
        for kiln in own:
            ratios = [k / p for k, p in zip(samples[kiln], samples[peer])]
            entry[kiln] = [statistics.median(ratios), min(ratios), max(ratios)]
    return row


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--worker":
        return worker(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kiln", help="the bench `training`, built; without it kiln's own program is left out")
    parser.add_argument("--items", default="mlp,block")
    parser.add_argument("--peers", default="eager,inductor,jax")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--out")
    args = parser.parse_args()
    args.peers = [p for p in args.peers.split(",") if p]
    rows = []
    for item in args.items.split(","):
        rows.append(measure(args, item))
        for peer, entry in rows[-1]["peers"].items():
            one = lambda r: f"{r[0]:.2f} [{r[1]:.2f}, {r[2]:.2f}]"
            ratios = " | ".join(f"{kiln} {one(entry[kiln])}" for kiln in ("kiln", "kiln-torch") if kiln in entry)
            print(f"| {item} | {peer} | {entry['us'] / 1e3:.2f} ms | {ratios} | {entry['error']:.1e} | {entry['first_s']:.1f} s |", flush=True)
    if args.out:
        with open(args.out, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Times kiln's GPU kernels against torch eager, TorchInductor and, where jax is installed, XLA.

    bench.py --kiln KILN [--items chain_f32,softmax] [--rounds 9] [--modes default,max-autotune-no-cudagraphs] [--out FILE.json]

Every item but channels_last, which moves twice as much as it, moves more than four times the L2 cache, with random inputs, so that nothing of one call is there for the next. kiln is a process of its own that
waits on a pipe; a round takes the median of kernel times by CUDA events on each side, one after the other, and the table holds the median of the ratios of
the rounds with their range. A floor is the bytes (each input read once, each output written once) over the rate of a copy in the same round. XLA is timed by the host, many calls in a row. Results are
compared with a float64 reference on rows that both sides computed.
"""
import argparse, json, os, select, statistics, subprocess, sys, tempfile, time

import torch
import torch.nn.functional as F

BF16, F32, GPU = torch.bfloat16, torch.float32, "cuda"
LIMIT = 40  # seconds that a run, or a burst of calls, of kiln may take


class Item(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


def rmsnorm(x, w):
    return (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def chain(x, a, b, c):
    return F.gelu(x * a + b) * torch.sigmoid(c)


def add_rmsnorm(x, r, w):
    h = x + r
    return rmsnorm(h, w), h


M = 2**20
# name: function, shapes and dtypes of inputs (a number: integers below it), bytes moved at least
ITEMS = {
    "chain_f32_32M": (chain, [((32 * M,), F32)] * 4, 5 * 32 * M * 4),
    "chain_bf16_64M": (chain, [((64 * M,), BF16)] * 4, 5 * 64 * M * 2),
    "softmax_f32_32k_x_1k": (lambda x: torch.softmax(x, -1), [((32768, 1024), F32)], 2 * 32768 * 1024 * 4),
    "softmax_bf16_16k_x_8k": (lambda x: torch.softmax(x, -1), [((16384, 8192), BF16)], 2 * 16384 * 8192 * 2),
    "layernorm_bf16_32k_x_4k": (lambda x, w, b: F.layer_norm(x, (4096,), w, b), [((32768, 4096), BF16), ((4096,), BF16), ((4096,), BF16)], 2 * 32768 * 4096 * 2),
    "rmsnorm_bf16_32k_x_4k": (rmsnorm, [((32768, 4096), BF16), ((4096,), BF16)], 2 * 32768 * 4096 * 2),
    "softmax_f32_8k_x_32k": (lambda x: torch.softmax(x, -1), [((8192, 32768), F32)], 2 * 8192 * 32768 * 4),
    "add_rmsnorm_bf16_32k_x_4k": (add_rmsnorm, [((32768, 4096), BF16)] * 2 + [((4096,), BF16)], 4 * 32768 * 4096 * 2),
    "cross_entropy_bf16_8k_x_128k": (lambda x, t: F.cross_entropy(x.float(), t), [((8192, 128256), BF16), ((8192,), 128256)], 8192 * 128256 * 2),
    "sum_rows_bf16_32k_x_4k": (lambda x: x.float().sum(-1), [((32768, 4096), BF16)], 32768 * 4096 * 2),
    "sum_cols_bf16_32k_x_4k": (lambda x: x.float().sum(0), [((32768, 4096), BF16)], 32768 * 4096 * 2),
    "sum_all_bf16_128M": (lambda x: (x.float() * 2 + 1).sum(), [((128 * M,), BF16)], 128 * M * 2),
    "softmax_f32_1k_x_64k": (lambda x: torch.softmax(x, -1), [((1024, 65536), F32)], 2 * 1024 * 65536 * 4),
    "softmax_bf16_2k_x_64k": (lambda x: torch.softmax(x, -1), [((2048, 65536), BF16)], 2 * 2048 * 65536 * 2),
    "log_softmax_f32_256_x_256k": (lambda x: torch.log_softmax(x, -1), [((256, 262144), F32)], 2 * 256 * 262144 * 4),
    "layernorm_bf16_2k_x_64k": (lambda x, w, b: F.layer_norm(x, (65536,), w, b), [((2048, 65536), BF16), ((65536,), BF16), ((65536,), BF16)], 2 * 2048 * 65536 * 2),
    "layernorm_f32_256_x_256k": (lambda x, w, b: F.layer_norm(x, (262144,), w, b), [((256, 262144), F32), ((262144,), F32), ((262144,), F32)], 2 * 256 * 262144 * 4),
    "logsumexp_f32_2k_x_64k": (lambda x: torch.logsumexp(x, -1), [((2048, 65536), F32)], 2048 * 65536 * 4),
    "arg_max_f32_16k_x_4k": (lambda x: x.argmax(-1), [((16384, 4096), F32)], 16384 * 4096 * 4),
    "arg_max_bf16_32k_x_4k": (lambda x: x.argmax(-1), [((32768, 4096), BF16)], 32768 * 4096 * 2),
    "arg_max_f32_8_x_50257": (lambda x: x.argmax(-1), [((8, 50257), F32)], 8 * 50257 * 4),
    "arg_max_f32_64M": (lambda x: x.argmax(), [((64 * M,), F32)], 64 * M * 4),
    "transpose_bf16_8k_x_8k": (lambda x: x.t().contiguous(), [((8192, 8192), BF16)], 2 * 8192 * 8192 * 2),
    "transpose_f32_8k_x_8k": (lambda x: x.t().contiguous(), [((8192, 8192), F32)], 2 * 8192 * 8192 * 4),
    "channels_last_bf16_32_x_256_x_56_x_56": (lambda x: x.permute(0, 2, 3, 1).contiguous(), [((32, 256, 56, 56), BF16)], 2 * 32 * 256 * 56 * 56 * 2),
    "gelu_transpose_bf16_8k_x_8k": (lambda x: F.gelu(x).t().contiguous(), [((8192, 8192), BF16)], 2 * 8192 * 8192 * 2),
    "cumsum_f32_32k_x_4k": (lambda x: x.cumsum(-1), [((32768, 4096), F32)], 2 * 32768 * 4096 * 4),
    "cumsum_bf16_32k_x_4k": (lambda x: x.cumsum(-1), [((32768, 4096), BF16)], 2 * 32768 * 4096 * 2),
    "cumsum_f32_64_x_64k": (lambda x: x.cumsum(-1), [((64, 65536), F32)], 2 * 64 * 65536 * 4),
    "cumsum_f32_64M": (lambda x: x.cumsum(-1), [((64 * M,), F32)], 2 * 64 * M * 4),
    "columns_cumsum_f32_32k_x_4k": (lambda x: x.cumsum(0), [((32768, 4096), F32)], 2 * 32768 * 4096 * 4),
    "gelu_cumsum_bf16_32k_x_4k": (lambda x: F.gelu(x).cumsum(-1), [((32768, 4096), BF16)], 2 * 32768 * 4096 * 2),
    "arg_max_bf16_16M": (lambda x: x.argmax(), [((16 * M,), BF16)], 16 * M * 2),
}


def xla_items():
    """The jax version, by name without sizes; None without jax."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return {}
    wide = lambda x: x.astype(jnp.float32)

    def norm(x, w):
        return (wide(x) * jax.lax.rsqrt(jnp.square(wide(x)).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype) * w

    def layernorm(x, w, b):
        y = wide(x) - wide(x).mean(-1, keepdims=True)
        return (y * jax.lax.rsqrt(jnp.square(y).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * w + b

    def cross_entropy(x, t):
        return -jnp.take_along_axis(jax.nn.log_softmax(wide(x), -1), t[:, None], 1).mean()

    items = {
        "chain": lambda x, a, b, c: jax.nn.gelu(x * a + b, approximate=False) * jax.nn.sigmoid(c),
        "softmax": lambda x: jax.nn.softmax(x, -1),
        "layernorm": layernorm,
        "rmsnorm": norm,
        "add_rmsnorm": lambda x, r, w: (norm(x + r, w), x + r),
        "cross_entropy": cross_entropy,
        "sum_rows": lambda x: wide(x).sum(-1),
        "sum_cols": lambda x: wide(x).sum(0),
        "transpose": lambda x: x.T,
        "channels_last": lambda x: jnp.transpose(x, (0, 2, 3, 1)),
        "gelu_transpose": lambda x: jax.nn.gelu(x, approximate=False).T,
        "cumsum": lambda x: jnp.cumsum(x, -1),
        "columns_cumsum": lambda x: jnp.cumsum(x, 0),
        "gelu_cumsum": lambda x: jnp.cumsum(jax.nn.gelu(x, approximate=False), -1),
        "sum_all": lambda x: (wide(x) * 2 + 1).sum(),
    }
    return {name: jax.jit(f) for name, f in items.items()}


def xla_us(f, inputs, calls=20):
    """Mean time of back-to-back calls, by host clock."""
    import jax

    args = [jax.dlpack.from_dlpack(x) for x in inputs]
    jax.block_until_ready(f(*args))
    start = time.perf_counter()
    for _ in range(calls):
        made = f(*args)
    jax.block_until_ready(made)
    return (time.perf_counter() - start) / calls * 1e6


class Worker:
    """`kiln bench --worker` on a file with these arguments: a process that waits on a pipe."""

    def __init__(self, kiln, path, inputs, *args, env=None):
        command = [kiln, "bench", path, "--device", "cuda", "--inputs", inputs, *args, "--worker"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        line = self.line()
        if not line:
            raise RuntimeError(self.process.stderr.read().strip()[-400:])
        said = json.loads(line)
        # On a GPU, including synchronisation, as for the peers.
        self.first = said.get("on_card_s") or said["first_s"]

    def line(self):
        """The next line, or an error after LIMIT seconds, so that a hanging kernel does not block others."""
        if not select.select([self.process.stdout], [], [], LIMIT)[0]:
            self.process.kill()
            raise TimeoutError(f"no answer within {LIMIT} s")
        return self.process.stdout.readline()

    def __call__(self, seconds):
        print(seconds, file=self.process.stdin, flush=True)
        return json.loads(self.line())["median_us"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Kiln(Worker):
    """An exported function, and its result of one run."""

    def __init__(self, binary, folder, name, f, inputs, more=()):
        import safetensors.torch

        path = os.path.join(folder, name)
        with torch.no_grad():
            torch.export.save(torch.export.export(Item(f), tuple(inputs)), path + ".pt2")
        safetensors.torch.save_file({f"input_{i}": x.cpu().contiguous().clone() for i, x in enumerate(inputs)}, path + ".safetensors")
        once = subprocess.run(
            [binary, "run", path + ".pt2", "--device", "cuda", "--inputs", path + ".safetensors", "--outputs", path + ".out", "--repeat", "1", *more],
            capture_output=True, text=True,
        )
        if once.returncode:
            raise RuntimeError((once.stderr or once.stdout).strip()[:400])
        self.result = safetensors.torch.load_file(path + ".out")["output_0"]
        super().__init__(binary, path + ".pt2", path + ".safetensors", *more)


def arguments(about, rounds=7):
    """Arguments of the kernel benches that compare results, time, or both."""
    p = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kiln", required=True)
    p.add_argument("--check", action="store_true")
    p.add_argument("--time", action="store_true")
    p.add_argument("--rounds", type=int, default=rounds)
    p.add_argument("--out", default="")
    return p


def wanted(name, only):
    """Whether a name has one of these parts, separated by commas; without parts every one does."""
    return not only or any(part in name for part in only.split(","))


def ratio_text(mine, peer):
    """A peer's time ratio over interleaved rounds: median, minimum, maximum."""
    all = sorted(a / b for a, b in zip(peer, mine))
    return f"{statistics.median(all):.2f} [{all[0]:.2f}, {all[-1]:.2f}]"


def kernel_us(f, args, calls=20):
    """Median time of back-to-back calls, by CUDA events."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
    with torch.no_grad():
        f(*args)
        events[0].record()
        for e in events[1:]:
            f(*args)
            e.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) * 1e3 for a, b in zip(events, events[1:]))


def graph_us(f, args, calls=20, rounds=5):
    """Time per call of many in a CUDA graph, without launch overhead, for small kernels."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            f(*args)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        for _ in range(calls):
            f(*args)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    graph.replay()
    events[0].record()
    for e in events[1:]:
        graph.replay()
        e.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) * 1e3 / calls for a, b in zip(events, events[1:]))


def error(name, have, f, inputs):
    """Relative error of the first result against float64, on the leading rows (not for transposes)."""
    double = lambda x: x.double() if x.is_floating_point() else x
    whole = (inputs[0].numel() <= 64 * M and inputs[0].dim() == 1) or "transpose" in name or have.dim() == 0 or have.shape[0] != inputs[0].shape[0]
    exact = f(*[double(x) if whole or x.dim() == 1 else double(x[:256]) for x in inputs])
    exact = (exact[0] if isinstance(exact, tuple) else exact).double().reshape(-1)
    have = have.to(GPU).double().reshape(-1)[: exact.numel()]
    return float((have - exact).norm() / exact.norm())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--kiln", required=True)
    p.add_argument("--items", default="")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--modes", default="default,max-autotune-no-cudagraphs")
    p.add_argument("--peers", default="xla", help="xla, or nothing")
    p.add_argument("--seconds", type=float, default=0.3)
    p.add_argument("--out", default="")
    a = p.parse_args()
    torch.manual_seed(0)
    source = torch.randn(256 * M, device=GPU)
    target = torch.empty_like(source)
    rows, xla = [], xla_items() if "xla" in a.peers.split(",") else {}
    for name, (f, shapes, moved) in ITEMS.items():
        if a.items and not any(i in name for i in a.items.split(",")):
            continue
        try:
            inputs = [torch.randint(d, s, device=GPU) if isinstance(d, int) else torch.randn(s, device=GPU, dtype=d) for s, d in shapes]
            with tempfile.TemporaryDirectory() as folder:
                kiln = Kiln(a.kiln, folder, name, f, inputs)
                sides = {"eager": f}
                for mode in filter(None, a.modes.split(",")):
                    torch._dynamo.reset()
                    sides["inductor " + mode] = torch.compile(f, mode=mode)
                    kernel_us(sides["inductor " + mode], inputs, 2)
                timers = {k: kernel_us for k in sides}
                for k, g in xla.items():
                    if name.startswith(k + "_"):
                        sides["xla"], timers["xla"] = g, xla_us
                samples = {k: [] for k in ["copy", "kiln", *sides]}
                for _ in range(a.rounds):
                    ms = kernel_us(lambda: target.copy_(source), [], 5)
                    samples["copy"].append(2 * source.numel() * 4 / ms / 1e6)
                    samples["kiln"].append(kiln(a.seconds))
                    for k, g in sides.items():
                        samples[k].append(timers[k](g, inputs))
                kiln.close()
            us = statistics.median(samples["kiln"])
            floors = [moved / c / 1e6 / t for c, t in zip(samples["copy"], samples["kiln"])]
            row = {"item": name, "kiln_us": us, "TB/s": moved / us / 1e6, "of_floor": statistics.median(floors), "copy_TB/s": statistics.median(samples["copy"]),
                   "error": error(name, kiln.result, f, inputs), "first_s": kiln.first, "samples": samples}
            text = f"{name:28} {us:9.1f} us {row['TB/s']:6.3f} TB/s, {100 * row['of_floor']:5.1f} % of a copy's rate, error {row['error']:.1e}"
            for k in sides:
                ratios = sorted(x / y for x, y in zip(samples["kiln"], samples[k]))
                row[k] = {"us": statistics.median(samples[k]), "ratio": statistics.median(ratios), "range": [ratios[0], ratios[-1]]}
                text += f"; {k} {row[k]['us']:.1f} us, ratio {row[k]['ratio']:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            print(text, flush=True)
            rows.append(row)
        except Exception as e:  # goes on with the next item
            print(f"{name:28} FAILS {type(e).__name__}: {str(e)[:400]}", flush=True)
    if a.out:
        json.dump(rows, open(a.out, "w"), indent=1)
    sys.exit(0)


if __name__ == "__main__":
    main()

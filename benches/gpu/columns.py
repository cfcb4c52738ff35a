#!/usr/bin/env python3
"""Column reductions of training steps by two builds of kiln, in turns: biases' and norms' gradients, batch norms' statistics.

    columns.py --kiln NEW [--old OLD] [--items REGEX] [--rounds 7] [--seconds 0.3] [--out FILE.json]

A round times each build for `--seconds`; the table has medians of the rounds' medians and the median of their ratios. The floor is the bytes (each input
read once) over 3.35 TB/s. Results of the two builds are compared with each other.
"""
import argparse, json, os, re, statistics, subprocess, tempfile

from bench import Worker, ratio_text

RATE = 3.35e6  # bytes per us of an H100's memory
SIZES = {"bf16": 2, "f32": 4}


def sums(*sizes, dims, dtype="bf16"):
    """The sum along dimensions, in f32."""
    t, r = (f"tensor<{'x'.join(map(str, s))}x{{}}>" for s in (sizes, [n for d, n in enumerate(sizes) if d not in dims]))
    wide = f"%0 = kiln.convert %x : {t.format(dtype)} to f32" if dtype != "f32" else ""
    x = "%0" if wide else "%x"
    return f"func.func @main(%x: {t.format(dtype)}) -> {r.format('f32')} {{\n  {wide}\n  %r = kiln.reduce sum {x} dims = {dims} : {t.format('f32')}\n  return %r : {r.format('f32')}\n}}"


def norm(batch, height, width, channels, dtype="bf16"):
    """Gradients of a layer norm's weight and bias, of images whose channels are last."""
    full, rows, r = f"tensor<{batch}x{height}x{width}x{channels}x{{}}>", f"tensor<{batch}x{height}x{width}x1xf32>", f"tensor<{channels}xf32>"
    spread = f"dims = [0, 1, 2, 3] sizes = [{batch}, {height}, {width}, {channels}] : {rows}"
    return f"""func.func @main(%g: {full.format(dtype)}, %x: {full.format(dtype)}, %mean: {rows}, %scale: {rows}) -> ({r}, {r}) {{
  %0 = kiln.convert %x : {full.format(dtype)} to f32
  %1 = kiln.convert %g : {full.format(dtype)} to f32
  %2 = kiln.broadcast_in_dim %mean {spread}
  %3 = kiln.broadcast_in_dim %scale {spread}
  %4 = kiln.sub %0, %2 : {full.format('f32')}
  %5 = kiln.mul %4, %3 : {full.format('f32')}
  %6 = kiln.mul %1, %5 : {full.format('f32')}
  %w = kiln.reduce sum %6 dims = [0, 1, 2] : {full.format('f32')}
  %b = kiln.reduce sum %1 dims = [0, 1, 2] : {full.format('f32')}
  return %w, %b : {r}, {r}
}}"""


def bias(batch, pixels, channels):
    """The gradient of a convolution's bias, of rows that the model sees as images."""
    side = round(pixels ** 0.5)
    return f"""func.func @main(%x: tensor<{batch}x{pixels}x{channels}xbf16>) -> tensor<{channels}xbf16> {{
  %0 = kiln.transpose %x permutation = [0, 2, 1] : tensor<{batch}x{pixels}x{channels}xbf16>
  %1 = kiln.reshape %0 sizes = [{batch}, {channels}, {side}, {side}] : tensor<{batch}x{channels}x{pixels}xbf16>
  %2 = kiln.reduce sum %1 dims = [0, 2, 3] : tensor<{batch}x{channels}x{side}x{side}xbf16>
  return %2 : tensor<{channels}xbf16>
}}"""


ITEMS = {
    "statistics of 8 channels": sums(128, 112, 112, 8, dims=[0, 1, 2]),
    "statistics of 16 channels": sums(128, 112, 112, 16, dims=[0, 1, 2]),
    "statistics of 24 channels": sums(128, 112, 112, 24, dims=[0, 1, 2]),
    "statistics of 48 channels": sums(128, 56, 56, 48, dims=[0, 1, 2]),
    "bias of 64": sums(200704, 64, dims=[0]),
    "bias of 96": sums(200704, 96, dims=[0]),
    "bias of 384": sums(12544, 384, dims=[0]),
    "bias of images of 512": bias(64, 3136, 512),
    "bias of images of 1024": bias(64, 784, 1024),
    "norm of 24, 112x112": norm(128, 112, 112, 24),
    "norm of 96, 56x56": norm(64, 56, 56, 96),
    "norm of 192, 28x28": norm(64, 28, 28, 192),
    "norm of 384, 14x14": norm(64, 14, 14, 384),
    "norm of 768, 7x7": norm(64, 7, 7, 768),
    "parts of 64": sums(1024, 64, dims=[0], dtype="f32"),
    "parts of 512": sums(392, 512, dims=[0], dtype="f32"),
    "columns of 4096": sums(32768, 4096, dims=[0]),
}


def floor(text):
    """The time of the arguments' bytes at the memory's rate, in us."""
    head = text[: text.index("->")]
    total = 0
    for sizes, dtype in re.findall(r"tensor<([\dx]+)x(\w+)>", head):
        count = SIZES[dtype]
        for n in sizes.split("x"):
            count *= int(n)
        total += count
    return total / RATE


def inputs(text, path):
    """Random arguments of a function, as a file."""
    import safetensors.torch, torch

    torch.manual_seed(0)
    dtypes = {"bf16": torch.bfloat16, "f32": torch.float32}
    head = re.findall(r"tensor<([\dx]+)x(\w+)>", text[: text.index("->")])
    safetensors.torch.save_file({f"input_{i}": torch.rand([int(n) for n in s.split("x")]).to(dtypes[d]) for i, (s, d) in enumerate(head)}, path)


def error(builds, path):
    """The greatest difference between two builds' results, over their norm."""
    import safetensors.torch

    made = []
    for kiln in builds:
        command = [kiln, "run", path + ".mlir", "--device", "cuda", "--inputs", path + ".safetensors", "--outputs", path + ".out", "--repeat", "1"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError((done.stderr or done.stdout).strip()[-400:])
        made.append(safetensors.torch.load_file(path + ".out"))
    pairs = [(a.float(), made[-1][n].float()) for n, a in made[0].items()]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kiln", required=True)
    p.add_argument("--old", help="another build of kiln")
    p.add_argument("--items", default="")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seconds", type=float, default=0.3)
    p.add_argument("--out", default="")
    a = p.parse_args()
    builds = [b for b in (a.old, a.kiln) if b]
    rows = []
    for name, text in ITEMS.items():
        if not re.search(a.items, name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "item")
            with open(path + ".mlir", "w") as f:
                f.write(text + "\n")
            inputs(text, path + ".safetensors")
            try:
                off = error(builds, path)
                workers = [Worker(b, path + ".mlir", path + ".safetensors") for b in builds]
                times = [[] for _ in builds]
                for _ in range(a.rounds):
                    for worker, all in zip(workers, times):
                        all.append(worker(a.seconds))
                for worker in workers:
                    worker.close()
            except (RuntimeError, TimeoutError) as e:
                print(f"{name:28} FAILS {e}", flush=True)
                continue
        rows.append({"item": name, "floor_us": floor(text), "error": off, "us": times})
        us = " ".join(f"{statistics.median(t):9.1f}" for t in times)
        ratio = f"old/new {ratio_text(times[1], times[0])}" if len(times) > 1 else ""
        print(f"{name:28} floor {floor(text):6.1f} us; {us} us; {ratio} differs by {off:.0e}", flush=True)
    if a.out:
        with open(a.out, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()

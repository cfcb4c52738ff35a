#!/usr/bin/env python3
"""bf16 and f16 matmuls on a GPU: accuracy against float64, then time against torch (cuBLAS).

    matmul.py --kiln KILN [--check] [--time] [--rounds 7] [--jobs 8] [--only TEXT,…] [--modes default] [--target cuda:sm_80] [--out FILE.json]

A case is exported, run by kiln in a process of its own, and compared with the float64 product of the same inputs: the norm of the difference over the norm
of the product, and the largest difference over the largest element. The first case runs alone, and if it hangs, no other does. Else it goes on after
failures; the exit code is 0 if all agree. Times are medians of CUDA events with random inputs, the sides taking turns, both sides' calls in CUDA graphs (XLA's in a row, by the host's clock). What
reading weights takes is timed with so many weights that the second-level cache holds none of them until its next turn, in a CUDA graph on both sides.
"""
import concurrent.futures, json, os, statistics, subprocess, sys, tempfile, threading

import safetensors.torch
import torch
import torch.nn.functional as F

from bench import Item, Kiln, arguments, graph_us, ratio_text, wanted, xla_us

BF16, F16, F32, GPU = torch.bfloat16, torch.float16, torch.float32, "cuda"
# One export at a time.
EXPORT = threading.Lock()
# Half an ulp of the result, and slack for the order of the sum.
LIMITS = {BF16: 2.5e-3, F16: 4e-4, F32: 1e-5}
# Both operands are rounded to 10 mantissa bits.
TF32 = 5e-4

nn = lambda x, w: x @ w
nt = lambda x, w: F.linear(x, w)
tn = lambda x, w: x.t() @ w
tt = lambda x, w: x.t() @ w.t()
bias = lambda x, w, b: F.linear(x, w, b)
gelu = lambda x, w, b: F.gelu(F.linear(x, w, b))
tanh_gelu = lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh")
residual = lambda x, w, b, r: F.linear(x, w, b) + r
wide = lambda x, w: torch.relu((x @ w).float())
scaled = lambda x, w, s: F.linear(x, w) * s


def pair(x, w, b):
    y = F.linear(x, w, b)
    return y, F.gelu(y)


def mixed(x, w):
    y = F.linear(x, w)
    return y, y.float().tanh()


def gated(x, v, w):
    return F.silu(F.linear(x, v)) * F.linear(x, w)


def gated_nn(x, v, w):
    return F.gelu(x @ v, approximate="tanh") * (x @ w)


def several(x, *weights):
    return tuple(F.linear(x, w) for w in weights)


def cases():
    """name, function, shapes, dtype, sizes of a dynamic first dimension"""
    for m in [1, 15, 16, 17, 64, 127, 128, 129]:
        yield f"nt {m}x128x136", nt, [(m, 136), (128, 136)], BF16, None
    for n in [1, 15, 16, 17, 64, 127, 128, 129]:
        yield f"nt 129x{n}x64 f16", nt, [(129, 64), (n, 64)], F16, None
    for k in [1, 8, 15, 16, 17, 64, 72, 127, 128, 136]:
        yield f"nt 128x128x{k}", nt, [(128, k), (128, k)], BF16, None
    for f, name in [(nn, "nn"), (tn, "tn"), (tt, "tt"), (nt, "nt")]:
        for m, n, k in [(128, 128, 128), (136, 264, 200), (1024, 1024, 1024), (2048, 2304, 520)]:
            x, w = ((k, m) if name[0] == "t" else (m, k)), ((n, k) if name[1] == "t" else (k, n))
            yield f"{name} {m}x{n}x{k}", f, [x, w], BF16, None
        yield f"{name} 512x768x3072 f16", f, [(3072, 512) if name[0] == "t" else (512, 3072), (768, 3072) if name[1] == "t" else (3072, 768)], F16, None
    for f, name in [(bias, "bias"), (gelu, "gelu"), (tanh_gelu, "tanh_gelu")]:
        for m, n, k in [(129, 130, 136), (129, 129, 136), (512, 768, 3072), (1024, 1024, 1024), (4096, 3072, 768)]:
            yield f"{name} {m}x{n}x{k}", f, [(m, k), (n, k), (n,)], BF16, None
    yield "residual 512x768x3072", residual, [(512, 3072), (768, 3072), (768,), (512, 768)], BF16, None
    for m, n, k in [(129, 136, 136), (129, 129, 136), (512, 768, 3072), (1000, 1000, 1000), (4096, 3072, 768)]:
        yield f"pair {m}x{n}x{k}", pair, [(m, k), (n, k), (n,)], BF16, None
        yield f"mixed {m}x{n}x{k}", mixed, [(m, k), (n, k)], BF16, None
        yield f"residual {m}x{n}x{k}", residual, [(m, k), (n, k), (n,), (m, n)], BF16, None
        yield f"row scale {m}x{n}x{k}", scaled, [(m, k), (n, k), (m, 1)], F16, None
    yield "wide 300x264x512", wide, [(300, 512), (512, 264)], F16, None
    yield "batched 5x129x264x136", nn, [(5, 129, 136), (5, 136, 264)], BF16, None
    yield "batched 2x3x257x136x72", nn, [(2, 3, 257, 72), (2, 3, 72, 136)], F16, None
    yield "batched transposed 12x512x512x64", lambda x, w: x @ w.transpose(1, 2), [(12, 512, 64), (12, 512, 64)], BF16, None
    yield "heads 2x128x8x64", lambda x, w: x.transpose(1, 2) @ w.permute(0, 2, 3, 1), [(2, 128, 8, 64), (2, 128, 8, 64)], BF16, None
    yield "open rows", gelu, [(64, 136), (264, 136), (264,)], BF16, [1, 2, 15, 64, 127, 128, 129, 1000, 4096]
    for m in [1, 2, 5, 8, 9, 16, 17, 32, 33, 64]:
        yield f"few {m}x1024x2048", nt, [(m, 2048), (1024, 2048)], BF16, None
    for m, n, k in [(1, 17, 40), (3, 129, 72), (16, 257, 1000), (2, 16, 32), (7, 4096, 4096), (64, 33, 136), (1, 128256, 2048)]:
        yield f"few {m}x{n}x{k}", nt, [(m, k), (n, k)], BF16, None
    for m, n in [(1, 520), (16, 513), (40, 1000)]:
        yield f"few gelu {m}x{n}x776", gelu, [(m, 776), (n, 776), (n,)], BF16, None
        yield f"few pair {m}x{n}x776", pair, [(m, 776), (n, 776), (n,)], F16, None
    yield "few columns 1000x5x512", nt, [(1000, 512), (5, 512)], BF16, None
    yield "few batched 6x3x200x64", lambda x, w: x @ w.transpose(1, 2), [(6, 3, 64), (6, 200, 64)], F16, None
    yield "few tokens 2x3x2048", nt, [(2, 3, 2048), (520, 2048)], BF16, None
    for f, name in [(nn, "nn"), (tn, "tn"), (nt, "nt")]:
        yield f"split {name} 512x512x16384", f, [(16384, 512) if name == "tn" else (512, 16384), (512, 16384) if name == "nt" else (16384, 512)], BF16, None
    yield "split gelu 200x264x8192", gelu, [(200, 8192), (264, 8192), (264,)], F16, None
    yield "split batched 3x128x128x8192", nn, [(3, 128, 8192), (3, 8192, 128)], BF16, None
    for m, n, k in [(129, 136, 136), (512, 768, 1024), (1000, 1000, 1000), (4096, 1408, 512), (128, 64, 64)]:
        yield f"gated {m}x{n}x{k}", gated, [(m, k), (n, k), (n, k)], BF16, None
        yield f"gated nn {m}x{n}x{k}", gated_nn, [(m, k), (k, n), (k, n)], F16, None
    yield "gated tokens 2x300x512", gated, [(2, 300, 512), (1024, 512), (1024, 512)], BF16, None
    yield "gated open rows", gated, [(256, 136), (264, 136), (264, 136)], BF16, [65, 128, 129, 1000]
    for m, n, k in [(129, 129, 136), (300, 1001, 512), (2048, 4097, 256), (65, 50257, 64)]:
        yield f"odd {m}x{n}x{k}", nt, [(m, k), (n, k)], BF16, None
        yield f"odd pair {m}x{n}x{k}", pair, [(m, k), (n, k), (n,)], F16, None
    yield "odd mixed 129x1001x136", mixed, [(129, 136), (1001, 136)], BF16, None
    yield "odd batched 3x129x131x72", lambda x, w: x @ w.transpose(1, 2), [(3, 129, 72), (3, 131, 72)], BF16, None
    yield "many tiles 8192x8192x64", nn, [(8192, 64), (64, 8192)], BF16, None
    yield "many odd tiles 2048x20011x64", nt, [(2048, 64), (20011, 64)], BF16, None


def rounded_cases():
    """The same for f32 matmuls that may use tf32."""
    for m, n, k in [(128, 128, 128), (129, 132, 100), (1, 64, 64), (1024, 1024, 1024), (512, 768, 3072), (100, 36, 4)]:
        yield f"tf32 nt {m}x{n}x{k}", nt, [(m, k), (n, k)], F32, None
        yield f"tf32 gelu {m}x{n}x{k}", gelu, [(m, k), (n, k), (n,)], F32, None
    yield "tf32 batched transposed 12x512x512x64", lambda x, w: x @ w.transpose(1, 2), [(12, 512, 64), (12, 512, 64)], F32, None
    yield "tf32 gated 512x768x1024", gated, [(512, 1024), (768, 1024), (768, 1024)], F32, None
    yield "tf32 open rows", gelu, [(64, 136), (264, 136), (264,)], F32, [1, 64, 129, 1000]


def run(kiln, folder, name, f, inputs, open_sizes, more):
    """The rows of the table of a case: title, norm, largest difference, verdict."""
    path, rows = os.path.join(folder, "case"), []
    shapes = ({0: torch.export.Dim("m", min=1, max=8192)},) + (None,) * (len(inputs) - 1) if open_sizes else None
    with torch.no_grad(), EXPORT:
        program = torch.export.export(Item(f), tuple(inputs), dynamic_shapes=({"args": shapes} if shapes else None))
        torch.export.save(program, path + ".pt2")
    for m in open_sizes or [None]:
        args = inputs if m is None else [torch.randn(m, *inputs[0].shape[1:], device=GPU, dtype=inputs[0].dtype), *inputs[1:]]
        safetensors.torch.save_file({f"input_{i}": x.cpu().contiguous().clone() for i, x in enumerate(args)}, path + ".safetensors")
        command = [kiln, "run", path + ".pt2", "--device", "cuda", "--inputs", path + ".safetensors", "--outputs", path + ".out", "--repeat", "3", *more]
        title = name if m is None else f"{name}, {m}"
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        except subprocess.TimeoutExpired:
            rows.append((title, None, None, "HANGS"))
            break
        if done.returncode:
            rows.append((title, None, None, f"FAILS {done.returncode}: {(done.stderr or done.stdout).strip()[:300]}"))
            continue
        made, exact = safetensors.torch.load_file(path + ".out"), getattr(f, "exact", lambda *all: f(*[x.double() for x in all]))(*args)
        for i, e in enumerate(exact if isinstance(exact, tuple) else (exact,)):
            have, e = made[f"output_{i}"].to(GPU), e.double()
            off, limit = have.double() - e, LIMITS[BF16 if have.dtype == F32 and isinstance(exact, tuple) else have.dtype]
            limit = TF32 if name.startswith("tf32") else limit
            norm, most = float(off.norm() / e.norm().clamp_min(1e-30)), float(off.abs().max() / e.abs().max().clamp_min(1e-30))
            # torch rounds between the ops of a chain, and so does kiln.
            good = have.shape == e.shape and norm <= 2 * limit and most <= 4 * limit
            rows.append((title, norm, most, "agrees" if good else "DIFFERS"))
    return rows


def check(kiln, cases, jobs, more=()):
    """Compares all cases, several at a time; returns the number of failures. `more`: further arguments of kiln."""

    def one(case):
        name, f, shapes, dtype, open_sizes = case
        try:
            inputs = [torch.randn(s, device=GPU, dtype=dtype) for s in shapes]
            with tempfile.TemporaryDirectory() as folder:
                return run(kiln, folder, name, f, inputs, open_sizes, more)
        except Exception as e:  # goes on with the next case
            return [(name, None, None, f"FAILS {type(e).__name__}: {str(e)[:300]}")]

    def show(rows):
        for title, norm, most, verdict in rows:
            print(f"{title:36} {verdict}" + (f"  {norm:.1e} {most:.1e}" if norm is not None else ""), flush=True)
        return sum(verdict != "agrees" for *_, verdict in rows), any(verdict == "HANGS" for *_, verdict in rows)

    torch.manual_seed(0)
    if not cases:
        return 0
    bad, hangs = show(one(cases[0]))
    if hangs:
        print("the first one hangs; no other is tried", flush=True)
        return bad
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        bad += sum(show(rows)[0] for rows in pool.map(one, cases[1:]))
    print(f"{bad} bad", flush=True)
    return bad


# M, N, K, and the number of weights that are read in turn.
DECODE = [(16, 4096, 4096, 8), (1, 2048, 2048, 32), (1, 512, 2048, 64), (1, 8192, 2048, 8), (1, 2048, 8192, 8), (1, 128256, 2048, 1), (4, 8192, 2048, 8), (8, 4096, 4096, 8), (32, 4096, 4096, 8), (64, 4096, 4096, 8)]


def timed_decode(kiln, rounds, only):
    """Skinny GEMMs: microseconds and weight bandwidth."""
    for m, n, k, count in DECODE:
        name = f"decode {m}x{n}x{k}"
        if not wanted(name, only):
            continue
        try:
            inputs = [torch.randn(m, k, device=GPU, dtype=BF16)] + [torch.randn(n, k, device=GPU, dtype=BF16) for _ in range(count)]
            with tempfile.TemporaryDirectory() as folder:
                mine = Kiln(kiln, folder, "case", several, inputs, ["--mode", "reduce-overhead"])
                samples = {"kiln": [], "torch": []}
                for _ in range(rounds):
                    samples["kiln"].append(mine(0.2) / count)
                    samples["torch"].append(graph_us(several, inputs, max(1, 16 // count)) / count)
                mine.close()
            exact = inputs[0].double() @ inputs[1].double().t()
            error = float((mine.result.to(GPU).double() - exact).norm() / exact.norm())
            text = ", ".join(f"{s} {statistics.median(v):.1f} us {2e-6 * n * k / statistics.median(v):.2f} TB/s" for s, v in samples.items())
            print(f"{name:24} {text}, ratio {ratio_text(samples['kiln'], samples['torch'])}, error {error:.1e}", flush=True)
        except Exception as e:  # goes on with the next item
            print(f"{name:24} FAILS {type(e).__name__}: {str(e)[:400]}", flush=True)


def xla_side(kind):
    """The same with XLA."""
    try:
        import jax
    except ImportError:
        return {}
    product = lambda x, w: jax.lax.dot_general(x, w, (((1,), (1,)), ((), ())))
    forms = {
        "gelu": lambda x, w, b: jax.nn.gelu(product(x, w) + b, approximate=False),
        "gated": lambda x, v, w: jax.nn.silu(product(x, v)) * product(x, w),
        "nt": product,
    }
    return {"xla": jax.jit(forms[kind])} if kind in forms else {}


def timed(kiln, rounds, out, only, modes, more=()):
    torch.manual_seed(0)
    rows = []
    sizes = [(f, g, n, n, n) for f, g in (("nt", nt), ("nn", nn), ("tn", tn)) for n in (2048, 4096, 8192)]
    sizes += [("nt", nt, 16384, 3072, 768), ("nt", nt, 1024, 1024, 1024), ("nt", nt, 512, 768, 3072), ("gelu", gelu, 8192, 8192, 8192), ("gelu", gelu, 16384, 3072, 768)]
    sizes += [("nt", nt, 512, 512, 16384), ("nn", nn, 512, 512, 16384), ("gated", gated, 4096, 14336, 4096), ("gated", gated, 2048, 8192, 2048)]
    sizes += [("gelu", gelu, 8192, 4096, 16384), ("residual", residual, 4096, 4096, 4096), ("nt", nt, 4096, 64, 4096), ("nt", nt, 8192, 1024, 1024), ("nt", nt, 8192, 50257, 768)]
    sizes += [("nt", nt, 4096, 28672, 4096)]
    for kind, f, m, n, k in sizes:
        name = f"{kind} {m}x{n}x{k}"
        if not wanted(name, only):
            continue
        try:
            shapes = [(k, m) if kind == "tn" else (m, k), (k, n) if kind in ("nn", "tn") else (n, k)] + ([(n,)] if kind in ("gelu", "residual") else []) + ([(m, n)] if kind == "residual" else []) + ([(n, k)] if kind == "gated" else [])
            inputs = [torch.randn(s, device=GPU, dtype=BF16) for s in shapes]
            with tempfile.TemporaryDirectory() as folder:
                mine = Kiln(kiln, folder, "case", f, inputs, [*more, "--mode", "reduce-overhead"])
                sides = {"torch": f}
                for mode in filter(None, modes.split(",")) if kind in ("gelu", "residual", "gated") else []:
                    torch._dynamo.reset()
                    sides["inductor " + mode] = torch.compile(f, mode=mode)
                    sides["inductor " + mode](*inputs)
                sides |= xla_side(kind) if m * n >= 1 << 24 else {}
                samples = {s: [] for s in ["kiln", *sides]}
                for _ in range(rounds):
                    samples["kiln"].append(mine(0.2))
                    for s, g in sides.items():
                        samples[s].append((xla_us if s == "xla" else graph_us)(g, inputs))
                mine.close()
            rate = {s: (4e-6 if kind == "gated" else 2e-6) * m * n * k / statistics.median(v) for s, v in samples.items()}
            first = lambda x: (x[:, :128] if kind == "tn" else x[:128]).double()
            exact = f(*[first(x) if i in (0, 3) else x.double() for i, x in enumerate(inputs)])
            error = float((mine.result[:128].to(GPU).double() - exact).norm() / exact.norm())
            text = ", ".join(f"{s} {statistics.median(v):.1f} us {rate[s]:.0f} TFLOP/s" for s, v in samples.items())
            ratios = "; ".join(f"{s} / kiln {ratio_text(samples['kiln'], samples[s])}" for s in sides)
            print(f"{name:24} {text}; {ratios}; error {error:.1e}", flush=True)
            rows.append({"item": name, "samples": samples, "error": error})
        except Exception as e:  # goes on with the next item
            print(f"{name:24} FAILS {type(e).__name__}: {str(e)[:400]}", flush=True)
    if out:
        json.dump(rows, open(out, "w"), indent=1)


def timed_f32(kiln, rounds, only, rounded):
    """f32 matmuls, with tf32 allowed for both frameworks or neither."""
    torch.backends.cuda.matmul.allow_tf32 = rounded
    for m, n, k in [(4096, 4096, 4096), (8192, 8192, 8192), (2048, 2048, 2048), (1024, 1024, 1024), (16384, 3072, 768)]:
        name = f"{'tf32' if rounded else 'f32'} {m}x{n}x{k}"
        if not wanted(name, only):
            continue
        try:
            inputs = [torch.randn(m, k, device=GPU), torch.randn(n, k, device=GPU)]
            with tempfile.TemporaryDirectory() as folder:
                more = ["--target", "cuda:sm_90a:+tf32"] if rounded else []
                mine = Kiln(kiln, folder, "case", nt, inputs, [*more, "--mode", "reduce-overhead"])
                samples = {"kiln": [], "torch": []}
                for _ in range(rounds):
                    samples["kiln"].append(mine(0.2))
                    samples["torch"].append(graph_us(nt, inputs))
                mine.close()
            exact = inputs[0][:128].double() @ inputs[1].double().t()
            error = lambda have: float((have[:128].to(GPU).double() - exact).norm() / exact.norm())
            text = ", ".join(f"{s} {statistics.median(v):.1f} us {2e-6 * m * n * k / statistics.median(v):.0f} TFLOP/s" for s, v in samples.items())
            ratio = ratio_text(samples["kiln"], samples["torch"])
            print(f"{name:24} {text}, ratio {ratio}, errors {error(mine.result):.1e} and torch's {error(nt(*inputs)):.1e}", flush=True)
        except Exception as e:  # goes on with the next item
            print(f"{name:24} FAILS {type(e).__name__}: {str(e)[:400]}", flush=True)
    torch.backends.cuda.matmul.allow_tf32 = False


def main():
    p = arguments(__doc__)
    p.add_argument("--jobs", type=int, default=8)
    p.add_argument("--only", default="")
    p.add_argument("--modes", default="default", help="of torch.compile, for products with something behind them")
    p.add_argument("--target", default="", help="what kiln compiles for, if not the card that is there")
    a = p.parse_args()
    more = ["--target", a.target] if a.target else []
    bad = 0
    if a.check or not a.time:
        bad = check(a.kiln, [c for c in cases() if wanted(c[0], a.only)], a.jobs, more)
        if a.target in ("", "cuda:sm_90a:+tf32"):
            bad += check(a.kiln, [c for c in rounded_cases() if wanted(c[0], a.only)], a.jobs, ["--target", "cuda:sm_90a:+tf32"])
    if a.time:
        timed_f32(a.kiln, a.rounds, a.only, True)
        timed_f32(a.kiln, a.rounds, a.only, False)
        timed_decode(a.kiln, a.rounds, a.only)
        timed(a.kiln, a.rounds, a.out, a.only, a.modes, more)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()

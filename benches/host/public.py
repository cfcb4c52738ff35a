#!/usr/bin/env python3
"""Public models on the host: torch.compile(backend="kiln") beside eager and TorchInductor, each model in a process of its own.

    public.py --out FILE.jsonl [--only REGEX] [--rounds 5] [--seconds 0.4] [--threads 2] [--frozen] [--report] [--results FILE.json]

The models are those of benches/gpu/public.py, in f32, with small batches, and random weights and inputs. Weights are inputs; with `--frozen` they are constants
on both sides (Inductor's `freezing`). The sides take turns; a round is the median of the calls of so many seconds, the ratio that of the rounds. Results are
compared with eager's. Continues FILE.jsonl.
"""
import argparse, json, math, re, statistics, subprocess, sys, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "gpu"), str(HERE.parents[1] / "tests" / "zoo")]

from forked import lines_of

TOLERANCE = 1e-4
# images of a batch, sequences of a batch, tokens
SIZES = (4, 2, 128)
MODELS = [
    "timm.resnet50", "timm.regnety_032", "timm.densenet121", "timm.efficientnet_b0", "timm.mobilenetv3_large_100", "timm.convnext_tiny", "timm.vit_small_patch16_224",
    "timm.swin_tiny_patch4_window7_224", "timm.mixer_b16_224", "timm.pvt_v2_b1", "torchvision.resnet18", "torchvision.shufflenet_v2_x1_0", "transformers.BertModel",
    "transformers.GPT2LMHeadModel", "transformers.DistilBertModel", "transformers.Qwen2ForCausalLM", "transformers.T5EncoderModel", "transformers.CLIPVisionModel",
]


def made(name):
    """The model and its inputs."""
    import public
    import torch

    images, sequences, tokens = SIZES
    for table in (public.IMAGES, public.VISION):
        table.update(dict.fromkeys(table, images))
    for key, (config, batch, length, changes) in public.TEXT.items():
        public.TEXT[key] = (config, sequences, min(length, tokens), changes)
    for key, shape in public.SHAPES.items():
        public.SHAPES[key] = (sequences, *shape[1:])
    torch.manual_seed(0)
    make, given = public.MAKERS[name]
    model, inputs = make(given)
    return model.eval(), inputs


def first(result):
    import torch

    while not isinstance(result, torch.Tensor):
        result = next(iter(result.values())) if isinstance(result, dict) else result[0]
    return result


def measure(a, name):
    import torch

    import kiln_torch  # noqa: F401, the backend

    torch.set_num_threads(a.threads)
    model, inputs = made(name)
    options = {"freezing": True} if a.frozen else {}
    kinds = {"eager": lambda: model, "Inductor": lambda: torch.compile(model, options=options or None), "kiln": lambda: torch.compile(model, backend="kiln", options=options or None)}
    row = {"model": name, "frozen": a.frozen, "sides": {}}
    with torch.no_grad():
        want = first(model(*inputs))
        calls = {}
        for side, make in kinds.items():
            torch._dynamo.reset()
            start, fn = time.perf_counter(), make()
            got = first(fn(*inputs))
            row["sides"][side] = {"first_s": time.perf_counter() - start, "error": float((got - want).norm() / max(want.norm(), torch.finfo(want.dtype).tiny)), "ms": []}
            calls[side] = fn
        for _ in range(a.rounds):
            for side, fn in calls.items():
                times, end = [], time.perf_counter() + a.seconds
                fn(*inputs)
                while time.perf_counter() < end or len(times) < 3:
                    start = time.perf_counter()
                    fn(*inputs)
                    times.append(time.perf_counter() - start)
                row["sides"][side]["ms"].append(statistics.median(times) * 1e3)
    row["agrees"] = all(s["error"] <= TOLERANCE for s in row["sides"].values())
    return row


def ratios(row, peer):
    return sorted(x / y for x, y in zip(row["sides"]["kiln"]["ms"], row["sides"][peer]["ms"]))


def report(a):
    rows = [r for r in lines_of(a.out) if r.get("sides") and r["frozen"] == a.frozen]
    for r in rows:
        ms = ", ".join(f"{side} {statistics.median(s['ms']):.1f} ms (first {s['first_s']:.1f} s, {s['error']:.0e})" for side, s in r["sides"].items())
        print(f"{r['model']:44} {statistics.median(ratios(r, 'Inductor')):.2f} of Inductor: {ms}{'' if r['agrees'] else ' DIFFERS'}")
    if rows:
        logs = [math.log(statistics.median(ratios(r, "Inductor"))) for r in rows]
        print(f"{len(rows)} models, geometric mean {math.exp(sum(logs) / len(logs)):.3f}")
    if a.results:
        suite = json.loads(Path(a.results).read_text())
        peer = lambda r, p: {"time": round(statistics.median(r["sides"][p]["ms"]), 1), "ratio": round(statistics.median(ratios(r, p)), 2), "low": round(ratios(r, p)[0], 2), "high": round(ratios(r, p)[-1], 2)}
        suite["rows"] = [
            {"name": r["model"].replace(".", " "), "shape": "", "kiln": round(statistics.median(r["sides"]["kiln"]["ms"]), 1), "peers": {p: peer(r, p) for p in ("Inductor", "eager")},
             "values": {"first": f"{r['sides']['kiln']['first_s']:.1f}, {r['sides']['Inductor']['first_s']:.1f}", "error": f"{r['sides']['kiln']['error']:.0e}"}}
            for r in rows
        ]
        Path(a.results).write_text(json.dumps(suite, indent=1) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", required=True)
    p.add_argument("--only", default="")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=0.4)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--frozen", action="store_true")
    p.add_argument("--report", action="store_true")
    p.add_argument("--results", help="a file of benches/results whose rows are replaced")
    p.add_argument("--model", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.model:
        print(json.dumps(measure(a, a.model)))
        return
    done = {(r["model"], r["frozen"]) for r in lines_of(a.out)}
    for name in MODELS:
        if a.report or (name, a.frozen) in done or not re.search(a.only, name):
            continue
        run = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--model", name], capture_output=True, text=True)
        row = {"model": name, "frozen": a.frozen, "failed": run.stderr.strip()[-400:]} if run.returncode else json.loads(run.stdout.splitlines()[-1])
        with open(a.out, "a") as file:
            file.write(json.dumps(row) + "\n")
        print(name, row.get("failed", "done"), flush=True)
    report(a)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Training on the host with kiln's own gradients and partition (`joint_graph`) beside AOTAutograd's; each model in a process.

    joint.py --out FILE.jsonl [--inductor] [--only REGEX] [--rounds 5] [--seconds 0.6] [--threads 2] [--report] [--results FILE.json]

With `--inductor` TorchInductor takes its turns, too.

Models are those of public.py that train without random numbers, in f32 and training mode, with random weights and inputs; the loss is the mean square
of the first result's distance from 1. A step is the forward and the backward pass. The sides take turns; a round is the median of the steps of so many seconds, the
ratio that of the rounds. Saved bytes are those of tensors that autograd keeps for the backward pass, without parameters, buffers and inputs. Gradients
are compared with eager's in float64. Continues FILE.jsonl.
"""
import argparse, copy, importlib.util, json, math, re, statistics, subprocess, sys, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# It takes the name `public` for that of benches/gpu.
spec = importlib.util.spec_from_file_location("host_public", HERE / "public.py")
spec.loader.exec_module(host := importlib.util.module_from_spec(spec))
first, made, lines_of = host.first, host.made, host.lines_of

MODELS = [
    "torchvision.resnet18", "timm.resnet50", "timm.mobilenetv3_large_100", "timm.convnext_tiny", "timm.mixer_b16_224",
    "timm.vit_small_patch16_224", "transformers.BertModel", "transformers.GPT2LMHeadModel", "transformers.DistilBertModel", "transformers.Qwen2ForCausalLM",
]
SIDES = {
    "AOTAutograd's": {"backend": "kiln"},
    "joint": {"backend": "kiln", "options": {"joint_graph": True}},
}
TOLERANCE = 1e-4


def without_dropout(model):
    import torch

    for m in model.modules():
        if isinstance(m, (torch.nn.Dropout, torch.nn.Dropout2d)) or type(m).__name__ == "DropPath":
            m.eval()
        for name in ("dropout", "attention_dropout", "attn_dropout_p", "dropout_prob"):
            if isinstance(getattr(m, name, None), float):
                setattr(m, name, 0.0)
    return model


def loss_of(model, inputs):
    return (first(model(*inputs)) - 1).square().mean()


def gradients(model):
    """Of all parameters; 0 of those that the loss does not depend on."""
    import torch

    return [torch.zeros_like(p, dtype=torch.float64) if p.grad is None else p.grad.double() for p in model.parameters()]


def distance(model, want):
    """Of all gradients, in units of their norm."""
    have = gradients(model)
    apart = sum((a - b).square().sum() for a, b in zip(have, want, strict=True))
    return float((apart / sum(b.square().sum() for b in want)).sqrt())


def saved_bytes(fn, model, inputs):
    """Of the tensors that one forward pass saves."""
    import torch

    kept = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers(), *(t for t in inputs if isinstance(t, torch.Tensor)))}
    saved = {}

    def pack(t):
        if t.untyped_storage().data_ptr() not in kept:
            saved[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = loss_of(fn, inputs)
    total = sum(saved.values())
    del loss
    return total


def measure(a, name):
    import torch

    import kiln_torch

    torch.set_num_threads(a.threads)
    model, inputs = made(name)
    model = without_dropout(model.train())
    exact = copy.deepcopy(model).double()
    loss_of(exact, [t.double() if torch.is_tensor(t) and t.is_floating_point() else t for t in inputs]).backward()
    want = gradients(exact)
    del exact
    # Where activations are at kinks, and behind batch norms of random weights, gradients are ill-conditioned: inputs that are off by 1e-6 tell.
    eager = []
    for off in (0, 1e-6):
        plain = copy.deepcopy(model)
        loss_of(plain, [t * (1 + off * torch.randn_like(t)) if torch.is_tensor(t) and t.is_floating_point() else t for t in inputs]).backward()
        eager.append(distance(plain, want))
    row, steps = {"model": name, "eager": eager, "sides": {}}, {}
    for side, how in (SIDES | ({"Inductor": {}} if a.inductor else {})).items():
        twin = copy.deepcopy(model)
        torch._dynamo.reset()
        kiln_torch.reports.clear()
        fn = torch.compile(twin, **how)
        start = time.perf_counter()
        loss_of(fn, inputs).backward()
        took, error = time.perf_counter() - start, distance(twin, want)
        graphs = [r for r in kiln_torch.reports if r.kind != "inference"]
        row["sides"][side] = {
            "first_s": took, "error": error, "saved": saved_bytes(fn, twin, inputs), "programs": sum(r.programs for r in graphs), "kernels": sum(r.kernels for r in graphs),
            "eager": sum(len(r.eager) for r in graphs), "gradients": sorted({r.gradients for r in graphs}), "ms": [],
        }

        def step(fn=fn, twin=twin):
            twin.zero_grad()
            loss_of(fn, inputs).backward()

        steps[side] = step
    for _ in range(a.rounds):
        for side, step in steps.items():
            times, end = [], time.perf_counter() + a.seconds
            step()
            while time.perf_counter() < end or len(times) < 3:
                start = time.perf_counter()
                step()
                times.append(time.perf_counter() - start)
            row["sides"][side]["ms"].append(statistics.median(times) * 1e3)
    allowed = max(TOLERANCE, 2 * max(eager))
    row["agrees"] = all(s["error"] <= allowed for s in row["sides"].values())
    return row


def ratios(row, peer):
    return sorted(x / y for x, y in zip(row["sides"]["joint"]["ms"], row["sides"][peer]["ms"]))


def report(a):
    rows = [r for r in lines_of(a.out) if r.get("sides")]
    for r in rows:
        sides = ", ".join(f"{side} {statistics.median(s['ms']):.1f} ms, {s['saved'] / 1e6:.1f} MB, {s['kernels']} kernels, {s['error']:.0e}, first {s['first_s']:.1f} s" for side, s in r["sides"].items())
        times = ", ".join(f"{statistics.median(ratios(r, p)):.2f} of {p}" for p in r["sides"] if p != "joint")
        print(f"{r['model']:32} {times}: {sides}{'' if r['agrees'] else ' DIFFERS'} {r['sides']['joint']['gradients']}")
    for peer in dict.fromkeys(side for r in rows for side in r["sides"] if side != "joint"):
        logs = [math.log(statistics.median(ratios(r, peer))) for r in rows if peer in r["sides"]]
        print(f"{len(logs)} models, geometric mean {math.exp(sum(logs) / len(logs)):.3f} of {peer}")
    if a.results:
        suite = json.loads(Path(a.results).read_text())
        ms = lambda r, side: round(statistics.median(r["sides"][side]["ms"]), 1)
        peer = lambda r, p: {"time": ms(r, p), "ratio": round(statistics.median(ratios(r, p)), 2), "low": round(ratios(r, p)[0], 2), "high": round(ratios(r, p)[-1], 2)}
        pair = lambda r, key, form: ", ".join(form(r["sides"][side][key]) for side in ("joint", "AOTAutograd's"))
        suite["rows"] = [
            {"name": r["model"].replace(".", " "), "shape": "", "kiln": ms(r, "joint"), "peers": {p: peer(r, p) for p in r["sides"] if p != "joint"},
             "values": {"saved": pair(r, "saved", lambda n: f"{n / 1e6:.1f}"), "kernels": pair(r, "kernels", str), "first": pair(r, "first_s", lambda s: f"{s:.1f}"), "error": pair(r, "error", lambda e: f"{e:.0e}")}}
            for r in rows
        ]
        Path(a.results).write_text(json.dumps(suite, indent=1) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", required=True)
    p.add_argument("--only", default="")
    p.add_argument("--inductor", action="store_true")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=0.6)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--report", action="store_true")
    p.add_argument("--results", help="a file of benches/results whose rows are replaced")
    p.add_argument("--model", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.model:
        print(json.dumps(measure(a, a.model)))
        return
    done = {r["model"] for r in lines_of(a.out)}
    for name in MODELS:
        if a.report or name in done or not re.search(a.only, name):
            continue
        run = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--model", name], capture_output=True, text=True)
        row = {"model": name, "failed": run.stderr.strip()[-400:]} if run.returncode else json.loads(run.stdout.splitlines()[-1])
        with open(a.out, "a") as file:
            file.write(json.dumps(row) + "\n")
        print(name, row.get("failed", "done"), flush=True)
    report(a)


if __name__ == "__main__":
    main()

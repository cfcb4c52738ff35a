#!/usr/bin/env python3
"""Public models on the host: torch.compile(backend="kiln") beside eager and TorchInductor, each model in a process of its own.

    public.py --out FILE.jsonl [--only REGEX] [--rounds 5] [--seconds 0.4] [--threads 2] [--frozen] [--report] [--results FILE.json]

The models are those of benches/gpu/public.py, in f32, with small batches, and random weights and inputs. Weights are inputs; with `--frozen` they are constants
on both sides (Inductor's `freezing`). The sides take turns; a round is the median of the calls of so many seconds, the ratio that of the rounds. Results are
compared with eager's. Continues FILE.jsonl.
"""
import functools, statistics, time

from public_models import as_peer, first, made, mean, milliseconds, parser, ratios, replace_rows, run, take_turns

TOLERANCE = 1e-4
MODELS = [
    "timm.resnet50", "timm.regnety_032", "timm.densenet121", "timm.efficientnet_b0", "timm.mobilenetv3_large_100", "timm.convnext_tiny", "timm.vit_small_patch16_224",
    "timm.swin_tiny_patch4_window7_224", "timm.mixer_b16_224", "timm.pvt_v2_b1", "torchvision.resnet18", "torchvision.shufflenet_v2_x1_0", "transformers.BertModel",
    "transformers.GPT2LMHeadModel", "transformers.DistilBertModel", "transformers.Qwen2ForCausalLM", "transformers.T5EncoderModel", "transformers.CLIPVisionModel",
]


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
        take_turns({side: functools.partial(fn, *inputs) for side, fn in calls.items()}, row["sides"], a.rounds, a.seconds)
    row["agrees"] = all(s["error"] <= TOLERANCE for s in row["sides"].values())
    return row


def report(a, rows):
    for r in rows:
        ms = ", ".join(f"{side} {milliseconds(r, side)} ms (first {s['first_s']:.1f} s, {s['error']:.0e})" for side, s in r["sides"].items())
        print(f"{r['model']:44} {statistics.median(ratios(r, 'kiln', 'Inductor')):.2f} of Inductor: {ms}{'' if r['agrees'] else ' DIFFERS'}")
    if rows:
        print(f"{len(rows)} models, geometric mean {mean(rows, 'kiln', 'Inductor'):.3f}")
    if a.results:
        both = lambda r, key, form: ", ".join(form(r["sides"][side][key]) for side in ("kiln", "Inductor"))
        replace_rows(a.results, [
            {"name": r["model"].replace(".", " "), "shape": "", "kiln": milliseconds(r, "kiln"), "peers": {p: as_peer(r, "kiln", p) for p in ("Inductor", "eager")},
             "values": {"first": both(r, "first_s", lambda s: f"{s:.1f}"), "error": f"{r['sides']['kiln']['error']:.0e}"}}
            for r in rows
        ])


def main():
    p = parser(__doc__, seconds=0.4)
    p.add_argument("--frozen", action="store_true")
    a = p.parse_args()
    run(a, MODELS, measure, report, frozen=a.frozen)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Training on the host with kiln's own gradients and partition (`joint_graph`) beside AOTAutograd's; each model in a process.

    joint.py --out FILE.jsonl [--inductor] [--only REGEX] [--rounds 5] [--seconds 0.6] [--threads 2] [--report] [--results FILE.json]

With `--inductor` TorchInductor takes its turns, too.

Models are those of public.py that train without random numbers, in f32 and training mode, with random weights and inputs; the loss is the mean square
of the first result's distance from 1. A step is the forward and the backward pass. The sides take turns; a round is the median of the steps of so many seconds, the
ratio that of the rounds. Saved bytes are those of tensors that autograd keeps for the backward pass, without parameters, buffers and inputs. Gradients
are compared with eager's in float64. Continues FILE.jsonl.
"""
import copy, statistics, time

from public_models import as_peer, first, made, mean, milliseconds, parser, ratios, replace_rows, run, take_turns

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
    take_turns(steps, row["sides"], a.rounds, a.seconds)
    allowed = max(TOLERANCE, 2 * max(eager))
    row["agrees"] = all(s["error"] <= allowed for s in row["sides"].values())
    return row


def report(a, rows):
    for r in rows:
        sides = ", ".join(f"{side} {milliseconds(r, side)} ms, {s['saved'] / 1e6:.1f} MB, {s['kernels']} kernels, {s['error']:.0e}, first {s['first_s']:.1f} s" for side, s in r["sides"].items())
        times = ", ".join(f"{statistics.median(ratios(r, 'joint', p)):.2f} of {p}" for p in r["sides"] if p != "joint")
        print(f"{r['model']:32} {times}: {sides}{'' if r['agrees'] else ' DIFFERS'} {r['sides']['joint']['gradients']}")
    for peer in dict.fromkeys(side for r in rows for side in r["sides"] if side != "joint"):
        having = [r for r in rows if peer in r["sides"]]
        print(f"{len(having)} models, geometric mean {mean(having, 'joint', peer):.3f} of {peer}")
    if a.results:
        pair = lambda r, key, form: ", ".join(form(r["sides"][side][key]) for side in ("joint", "AOTAutograd's"))
        replace_rows(a.results, [
            {"name": r["model"].replace(".", " "), "shape": "", "kiln": milliseconds(r, "joint"), "peers": {p: as_peer(r, "joint", p) for p in r["sides"] if p != "joint"},
             "values": {"saved": pair(r, "saved", lambda n: f"{n / 1e6:.1f}"), "kernels": pair(r, "kernels", str), "error": pair(r, "error", lambda e: f"{e:.0e}")}}
            for r in rows
        ])


def main():
    p = parser(__doc__, seconds=0.6)
    p.add_argument("--inductor", action="store_true")
    run(p.parse_args(), MODELS, measure, report)


if __name__ == "__main__":
    main()

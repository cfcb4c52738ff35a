"""Public models through `torch.compile(backend="kiln")`, beside eager: results, or gradients, and what stayed eager.

    python compiled.py --out FILE [--device cuda] [--train] [--jobs N] [--seconds S] [--page FILE] …

The error of a model is the largest over its tensors of |kiln - eager|_inf / |eager|_inf; of gradients, the norm is at
least 1e-3 of the largest gradient's, since that of a bias before a norm is 0 but for rounding. A model agrees up to 1e-4,
or ten times eager's own error against float64, which random weights amplify; above 1e-2 of that nothing can be said, and
the model is undecided. So it is where PyTorch's own `backend="aot_eager"` differs from eager by as much, and where eager's
results move by as much when each weight moves by half of its last bit (an element at a kink); kiln agrees where it computes
what Dynamo's graph gives in eager. In training, rates of dropout are 0.
"""
import argparse
import collections
import os
import re
import time
from pathlib import Path

import forked
from exact import in_float64
from forked import cell, say

TOLERANCE, AMPLIFIED, LEAST_GRADIENT = 1e-4, 1e-2, 1e-3


def tensors(out):
    """The floating-point tensors of a result."""
    import torch
    from torch.utils import _pytree as tree

    out = out.to_tuple() if hasattr(out, "to_tuple") else out
    return [t for t in tree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.is_floating_point()]


def norm(t):
    finite = t.detach()[t.isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0


def error(got, want, train):
    """The largest error of a tensor relative to its norm; infinite where shapes or NaNs differ."""
    import torch

    if len(got) != len(want):
        return float("inf")
    worst, least = 0.0, LEAST_GRADIENT * max(map(norm, want), default=0.0) if train else 0.0
    for g, w in zip(got, want):
        if g.shape != w.shape or not torch.equal(g.isfinite(), w.isfinite()):
            return float("inf")
        if w.numel() == 0:
            continue
        g, w = g.detach().double(), w.detach().double()
        scale, apart = max(norm(w), least), norm((g - w)[w.isfinite()])
        worst = max(worst, apart / scale if scale else apart)
    return worst


def step(run, model, inputs, train):
    """The results of a call, or, of a training step, the gradients of the parameters that have one."""
    import numpy
    import torch

    torch.manual_seed(1)
    # Masks of time steps are drawn by numpy.
    numpy.random.seed(1)
    model.zero_grad(set_to_none=True)
    with torch.set_grad_enabled(train):
        out = tensors(run(**inputs) if isinstance(inputs, dict) else run(*inputs))
    if not train:
        return out
    sum(t.float().square().mean() for t in out if t.requires_grad).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def moved(model, state, inputs, train, want, times=8):
    """The largest error of eager itself when the weights move by half of their last bits."""
    import torch

    worst = 0.0
    for k in range(times):
        model.load_state_dict(state)
        torch.manual_seed(100 + k)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + torch.finfo(torch.float32).eps / 2 * torch.randn_like(p))
        worst = max(worst, error(step(model, model, inputs, train), want, train))
    model.load_state_dict(state)
    return worst


def without_dropout(model):
    """Sets the rates of dropout to 0, in the modules that have them as attributes."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and ("drop" in name or name == "p"):
                setattr(module, name, 0.0)


def one(a, name, make, inputs):
    """Builds a model, runs it eagerly and compiled: what its line says."""
    import torch
    import kiln_torch
    from torch.utils import _pytree as tree
    from inputs import constants

    torch.set_num_threads(a.threads)
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    line = {}
    try:
        model = make().train(a.train)
        if a.train:
            without_dropout(model)
        line["parameters"] = sum(p.numel() for p in model.parameters())
        if line["parameters"] > a.most:
            return {**line, "outcome": "left out", "detail": "large"}
        given = inputs(model)
        given = constants(given) if isinstance(given, dict) else given
        if not given:
            return {**line, "outcome": "left out", "detail": "no inputs known"}
        model.to(a.device)
        given = tree.tree_map(lambda t: t.to(a.device), given)
        # Models keep counters and statistics: each run starts from the same state.
        state = {k: v.clone() for k, v in model.state_dict().items()}
        want = step(model, model, given, a.train)
        model.load_state_dict(state)
    except forked.LeftOut as e:
        return {**line, "outcome": "left out", "detail": str(e)}
    except Exception as e:
        return {**line, "outcome": "not eager", "detail": say(e)}
    try:
        start = time.time()
        # Random numbers are eager's, in its order.
        compiled = torch.compile(model, backend="kiln", options={"fallback_random": True})
        got = step(compiled, model, given, a.train)
        line["first_call_s"] = round(time.time() - start, 1)
        line["error"] = error(got, want, a.train)
    except Exception as e:
        return {**line, "outcome": "failed", "detail": say(e)}
    finally:
        for r in kiln_torch.reports:
            for key in ("nodes", "programs", "kernels"):
                line[key] = line.get(key, 0) + getattr(r, key)
            line.setdefault("eager", {}).update({str(k): str(v)[:200] for k, v in r.eager.items()})
        line["graphs"] = len(kiln_torch.reports)
    bound = TOLERANCE
    if line["error"] > bound:
        try:
            model.load_state_dict(state)
            double = lambda t: t.double() if t.is_floating_point() else t
            with in_float64():
                exact = step(model.double(), model, tree.tree_map(double, given), a.train)
            line["eager_error"] = error(want, exact, a.train)
            if line["eager_error"] > AMPLIFIED:
                return {**line, "outcome": "undecided", "detail": ""}
            bound = max(bound, 10 * line["eager_error"])
        except Exception as e:
            line["eager_error"] = say(e)
    if line["error"] > bound:
        try:
            model.load_state_dict(state)
            model.float()
            # What PyTorch itself makes of the model: Dynamo's graph in eager, and AOTAutograd's.
            traced = {}
            for backend in ("eager", "aot_eager"):
                torch._dynamo.reset()
                traced[backend] = step(torch.compile(model, backend=backend), model, given, a.train)
                line[f"{backend}_graph_error"] = error(traced[backend], want, a.train)
                model.load_state_dict(state)
            if error(got, traced["eager"], a.train) <= bound:
                return {**line, "outcome": "agrees", "detail": "with Dynamo's graph in eager, not with the model"}
            if line["aot_eager_graph_error"] > bound:
                return {**line, "outcome": "undecided", "detail": "AOTAutograd's graph differs from the model in eager"}
            line["moved_error"] = moved(model, state, given, a.train, want)
            if line["moved_error"] > AMPLIFIED:
                return {**line, "outcome": "undecided", "detail": "so do eager's results when weights move by half of their last bits"}
        except Exception as e:
            line["traced"] = say(e)
    return {**line, "outcome": "agrees" if line["error"] <= bound else "wrong", "detail": ""}


def report(path):
    """The table of outcomes, the models that do not agree, and the ops that stayed eager."""
    said = forked.lines_of(path)
    count, eager = collections.Counter(), collections.Counter()
    ran = [line for line in said if "error" in line]
    for line in said:
        count[line["model"].split(".")[0], line["outcome"]] += 1
        eager.update({reason(op, why) for op, why in line.get("eager", {}).items()})
    text = forked.outcomes(count, sorted({o for _, o in count}))
    whole = sum(not line.get("eager") for line in ran)
    text += ["", f"Of {len(ran)} models that ran, {whole} have no op that stays eager."]
    text += ["", "| model | outcome | error | eager's | reason |", "| --- | --- | --- | --- | --- |"]
    for line in sorted(said, key=lambda r: (r["outcome"], r["model"])):
        if line["outcome"] in ("wrong", "undecided", "failed", "crashed", "timeout"):
            text.append(f"| {line['model']} | {line['outcome']} | {line.get('error', '')} | {line.get('eager_error', '')} | {cell(line['detail'])} |")
    text += ["", "| what stays eager | models |", "| --- | --- |"]
    text += [f"| {why} | {n} |" for why, n in eager.most_common()]
    return "\n".join(text)


def reason(op, why):
    """Why an op stays eager, without numbers, and with the op where the reason does not say enough."""
    why = re.sub(r"[0-9]+", "N", why).replace("|", "/")[:120]
    name = op.split(" at ")[0]
    return why if name in why or why.startswith(("tensors", "kiln failed")) else f"{name}: {why}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    forked.arguments(parser)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--train", action="store_true", help="compare gradients of a training step")
    parser.add_argument("--threads", type=int, default=1, help="threads of a model's process")
    a = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    forked.run(a, one)
    text = report(a.out)
    print(text)
    if a.page:
        Path(a.page).write_text(text + "\n")


if __name__ == "__main__":
    main()

"""Public models through `torch.compile(backend="kiln")`, beside eager: results, or loss and gradients, and what stayed eager.

    python compiled.py --out FILE [--device cuda] [--mode gradients] [--jobs N] [--seconds S] [--graphs] …
    python compiled.py --out FILE --report [--csv FILE] [--page FILE]

Modes are `inference` and `gradients` in float32, and `autocast`: loss and gradients under bf16 autocast. The error of a model
is the largest over its tensors of |kiln - eager|_inf / |eager|_inf; of gradients, the norm is at least 1e-3 of the largest
gradient's, since that of a bias before a norm is 0 but for rounding. In training, rates of dropout are 0.

A model agrees in float32 up to 1e-4, or ten times eager's own error against float64, which random weights amplify. Above 1e-2
of that float32 says nothing; so it does where PyTorch's own `backend="aot_eager"` differs from eager by as much, and where
eager's results move by as much when each weight moves by half of its last bit (an element at a kink), or where each of the
model's programs agrees with its own graph in eager. Then the same graph in float64 decides, by 1e-6; where it does not, the
model is undecided. kiln also agrees where it computes what Dynamo's or AOTAutograd's graph gives in eager, or what eager gives
where `topk` takes the first of equal elements. Under autocast errors are those against eager's float32, and kiln's may be 1e-2 above twice that of eager's
autocast; above 0.5 of the latter the model is undecided, unless it agrees with the running statistics of batch norms.
"""
import argparse
import collections
import copy
import csv
import os
import re
import time
from pathlib import Path

import forked
import judge
from emulated import emulate
from forked import cell, say

MODES = ("inference", "gradients", "autocast")
COLUMNS = ("model", "mode", "device", "outcome", "error", "eager_error", "error_64", "parameters", "graphs", "programs", "kernels", "eager_ops", "first_call_s", "detail")


def without_dropout(model):
    """Sets the rates of dropout to 0, in the modules that have them as attributes."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and ("drop" in name or name == "p"):
                setattr(module, name, 0.0)


def built(a, make, inputs, line):
    """The model and its inputs on the device."""
    import torch
    from torch.utils import _pytree as tree
    from inputs import constants

    model = make().train(a.mode != "inference")
    if a.mode != "inference":
        without_dropout(model)
    line["parameters"] = sum(p.numel() for p in model.parameters())
    if line["parameters"] > a.most:
        raise forked.LeftOut("large")
    given = inputs(model)
    given = constants(given) if isinstance(given, dict) else given
    if not given:
        raise forked.LeftOut("no inputs known")
    to_device = lambda t: t.to(a.device) if isinstance(t, torch.Tensor) else t
    return model.to(a.device), tree.tree_map(to_device, given)


def one(a, name, make, inputs):
    """Builds a model, runs it eagerly and compiled: what its line says."""
    import torch
    import kiln_torch
    from torch._dynamo.utils import counters
    from torch._functorch import config

    if a.emulate:
        emulate()
    torch.set_num_threads(a.threads)
    torch.backends.cudnn.allow_tf32 = False
    # Programs of its entries have no graph to compare with.
    config.enable_autograd_cache = False
    torch.manual_seed(0)
    line = {"mode": a.mode, "device": "emulated" if a.emulate else a.device}
    try:
        model, given = built(a, make, inputs, line)
        # Models keep counters and statistics: each run starts from the same state.
        state = copy.deepcopy(model.state_dict())
        want = judge.step(model, model, given, a.mode)
        model.load_state_dict(state)
    except forked.LeftOut as e:
        return {**line, "outcome": "left out", "detail": str(e)}
    except Exception as e:
        return {**line, "outcome": "not eager", "detail": say(e)}
    # Random numbers are eager's, in its order.
    compile = lambda model: torch.compile(model, backend="kiln", options={"fallback_random": True})
    try:
        start = time.time()
        if a.mode == "autocast":
            outcome, detail = judge.under_autocast(compile, model, state, given, line)
        else:
            got = judge.step(compile(model), model, given, a.mode)
            line["first_call_s"] = round(time.time() - start, 1)
    except Exception as e:
        return {**line, "outcome": "failed", "detail": say(e)}
    finally:
        for r in kiln_torch.reports:
            for key in ("nodes", "programs", "kernels"):
                line[key] = line.get(key, 0) + getattr(r, key)
            line.setdefault("eager", {}).update({str(k): str(v)[:200] for k, v in r.eager.items()})
        line["graphs"], line["eager_ops"] = len(kiln_torch.reports), len(line.get("eager", {}))
        line["dynamo_graphs"] = counters["stats"]["unique_graphs"]
    if a.mode == "autocast" and outcome == "undecided" and judge.fix_statistics(model):
        again, _ = judge.under_autocast(compile, model, state, given, line)
        outcome, detail = (again, f"with running statistics; else: {detail}") if again != "undecided" else (outcome, detail)
    elif a.mode != "autocast":
        outcome, detail = judge.in_float32(compile, model, state, given, a.mode, got, want, line)
        if outcome == "undecided" and judge.in_wide(compile, model, state, given, a.mode, line):
            outcome, detail = "agrees", f"in float64; in float32: {detail}"
    if a.graphs:
        counters.clear()
        judge.traced(model.float(), "eager", given, a.mode)
        line["graphs_of_eager"] = counters["stats"]["unique_graphs"]
    return {**line, "outcome": outcome, "detail": detail}


def report(said):
    """The tables of outcomes, the models that do not agree, and the ops that stayed eager."""
    text = []
    for mode in [m for m in MODES if any(line["mode"] == m for line in said)]:
        of_mode = [line for line in said if line["mode"] == mode]
        count = collections.Counter((line["model"].split(".")[0], line["outcome"]) for line in of_mode)
        ran = [line for line in of_mode if "error" in line]
        whole = sum(not line["eager_ops"] for line in ran)
        wide = sum(line["detail"].startswith("in float64") for line in ran)
        text += ["", f"### {mode}", "", *forked.outcomes(count, sorted({o for _, o in count}))]
        text += ["", f"Of {len(ran)} models that ran, {whole} have no op that stays eager; {wide} agree in float64 alone."]
        more = [line for line in ran if line.get("dynamo_graphs", 0) > line.get("graphs_of_eager", float("inf"))]
        text += [f"{len(more)} have more graphs than with `backend=\"eager\"`."] if any("graphs_of_eager" in line for line in ran) else []
    text += ["", "| model | mode | outcome | error | eager's | reason |", "| --- | --- | --- | --- | --- | --- |"]
    for line in sorted(said, key=lambda r: (r["outcome"], r["model"])):
        if line["outcome"] in ("wrong", "undecided", "failed", "crashed", "timeout"):
            text.append(f"| {line['model']} | {line['mode']} | {line['outcome']} | {line.get('error', '')} | {line.get('eager_error', '')} | {cell(line['detail'])} |")
    eager = collections.Counter(why for line in said for why in {reason(op, why) for op, why in line.get("eager", {}).items()})
    text += ["", "| what stays eager | models |", "| --- | --- |"]
    text += [f"| {why} | {n} |" for why, n in eager.most_common()]
    return "\n".join(text)


def reason(op, why):
    """Why an op stays eager, without numbers, and with the op where the reason does not say enough."""
    why = re.sub(r"[0-9]+", "N", why).replace("|", "/")[:120]
    name = op.split(" at ")[0]
    return why if name in why or why.startswith(("tensors", "kiln failed")) else f"{name}: {why}"


def write_csv(path, said):
    """Writes a table with a row for each model, mode and device that ran, or failed to; rows of an earlier one that did not run again stay."""
    at = lambda row: (row["model"], MODES.index(row["mode"]), row["device"])
    rows = {}
    if Path(path).exists():
        with open(path, newline="") as file:
            rows = {at(row): row for row in csv.DictReader(file)}
    short = lambda v: f"{v:.1e}" if isinstance(v, float) and v < 0.1 else v
    for line in said:
        if line["outcome"] not in ("left out", "not eager"):
            rows[at(line)] = {k: short(line.get(k, "")) for k in COLUMNS} | {"detail": cell(line["detail"])}
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[k] for k in sorted(rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    forked.arguments(parser)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mode", default="inference", choices=MODES)
    parser.add_argument("--threads", type=int, default=1, help="threads of a model's process")
    parser.add_argument("--emulate", action="store_true", help="on the host, with programs for a GPU, which the emulator runs; under ./x emulate")
    parser.add_argument("--graphs", action="store_true", help="count Dynamo's graphs with backend=\"eager\" too")
    parser.add_argument("--csv", help="write a row of each model to this file; what it has of others stays")
    a = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    forked.run(a, one)
    # The line of a process that crashed says neither.
    said = [{"mode": a.mode, "device": a.device, **line} for line in forked.lines_of(a.out)]
    text = report(said)
    print(text)
    if a.page:
        Path(a.page).write_text(text + "\n")
    if a.csv:
        write_csv(a.csv, said)


if __name__ == "__main__":
    main()

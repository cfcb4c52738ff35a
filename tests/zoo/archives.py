"""Public models as exported programs through kiln, beside eager: exports, compiles, runs, compares, tabulates.

`./x zoo` calls this script with its options.

    python archives.py --out FILE --kiln BIN [--devices cpu,cuda] [--forms plain,core,dynamic] [--jobs N] [--seconds S] …
    python archives.py --out FILE --report --csv FILE --page FILE

Forms of an export: `plain` as it is, `core` after run_decompositions(), `dynamic` with batches, and sequences of tokens, of
any size, run at sizes that differ from those of the export; `gradients` the sum of the results' mean squares and its gradient by
every parameter, in training mode without dropout, as autograd's ops.

A result agrees within the tolerances of `kiln run --expect`. Where it does not, floating-point tensors agree by the rule of
`judge.py`, which measures eager against float64; integers have to be equal.
"""
import argparse
import collections
import contextlib
import csv
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import forked
from compiled import without_dropout
from draws import draws, without_draws
from exact import in_float64
from forked import cell, say
from judge import AMPLIFIED, LEAST_GRADIENT, TOLERANCE, first_of_equals, largest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "opinfo"))
from opinfo import BAD, run_kiln  # noqa: E402

STATES = ("agrees", "eager", "undecided", "random") + BAD + ("not exported", "not eager", "left out")
INTRODUCTION = """Exported models with random weights, run by `kiln run` and compared with eager in float32.
What a model draws from `rand` or `randn` is replaced by fixed numbers (`tests/zoo/draws.py`).
`./x zoo` runs them: `tests/zoo/archives.py`, which says what the forms are.
`./x zoo --report --csv tests/zoo/archives.csv --page docs/models.md` writes this page and the
table.
Times are of one thread, beside other models that run at the same time.

| outcome | meaning |
| --- | --- |
| agrees | within `src/tolerance.rs`, or 1e-4 of a tensor's norm, or ten times eager's own error |
| undecided | eager's own error against float64 is above 1e-2 |
| random | the program takes the state of the random number generator, though eager's results do not depend on it |
| not exported | PyTorch does not export the model, or exports another function |
| not eager | the model does not run with the small configuration of `tests/zoo/families.py` |
| left out | too large, or its inputs are not known |"""
FORMS = ("", "plain", "core", "dynamic", "gradients")
COLUMNS = ("model", "form", "parameters", "ops", "cpu", "cuda", "kernels", "gpu_kernels", "compile_s", "gpu_compile_s", "beside_eager", "detail")


def flat(model, given):
    """The model as a module of positional inputs, whose results are a flat tuple of at most four tensors; and its inputs.

    Inputs that are lists of numbers are constants of the program.
    """
    import torch
    from torch.utils import _pytree as tree

    names = [n for n, v in given.items() if isinstance(v, torch.Tensor)] if isinstance(given, dict) else []
    fixed = {n: v for n, v in given.items() if n not in names} if isinstance(given, dict) else {}

    class Flat(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *inputs):
            constants = {n: torch.tensor(v) if isinstance(v, list) else v for n, v in fixed.items()}
            out = self.model(**dict(zip(names, inputs)), **constants) if names else self.model(*inputs)
            out = out.to_tuple() if hasattr(out, "to_tuple") else out
            return tuple(t for t in tree.tree_leaves(out) if isinstance(t, torch.Tensor))[:4]

    return Flat().eval(), tuple(given[n] for n in names) if names else tuple(given)


def grown(like, batch, length):
    """Another input, of this many samples; sequences of integers become longer by ordinary tokens, or by their last value."""
    import torch

    like = torch.cat([like] * (-(-batch // like.shape[0]))).narrow(0, 0, batch)
    if like.is_floating_point():
        return torch.randn(like.shape, dtype=like.dtype)
    if like.dim() > 1 and length > like.shape[1]:
        most, more = int(like.max()), (batch, length - like.shape[1], *like.shape[2:])
        like = torch.cat([like, torch.randint(3, min(200, most), more) if most > 3 else like[:, -1:].expand(more)], 1)
    return like


class Gradients:
    """A module's loss and gradients as a function of inputs and parameters."""

    def __init__(self, module, args):
        import torch

        without_dropout(module.train())
        # Without Python that reads values, which autograd's trace cannot.
        self.module = torch.export.export(module, args, strict=False).module()
        self.names = [n for n, p in module.named_parameters() if p.requires_grad]

    def double(self):
        self.module.double()
        return self

    def float(self):
        self.module.float()

    def given(self, args):
        own = dict(self.module.named_parameters())
        return *args, *(own[n].detach() for n in self.names)

    def __call__(self, *inputs):
        import torch

        count = len(inputs) - len(self.names)
        with torch.enable_grad():
            values = [p.detach().requires_grad_() for p in inputs[count:]]
            buffers = {n: b.clone() for n, b in self.module.named_buffers()}
            results = torch.func.functional_call(self.module, {**dict(zip(self.names, values)), **buffers}, inputs[:count])
            loss = sum(r.square().mean() for r in results if r.is_floating_point() and r.requires_grad)
            found = torch.autograd.grad(loss, values, allow_unused=True, materialize_grads=True)
        return loss.detach(), *(g.detach() for g in found)


def exported(form, module, args, before):
    """The exported program and the inputs to run it with; `core` decomposes the program of `plain` where there is one."""
    import torch

    if form == "gradients":
        from torch.fx.experimental.proxy_tensor import make_fx

        # Recurrent layers as ATen's ops, not as one of oneDNN's.
        with torch.backends.mkldnn.flags(enabled=False):
            graph = make_fx(module)(*args)
        return torch.export.export(graph, args, strict=False), args
    from torch.fx.experimental.symbolic_shapes import is_concrete_int

    if form == "core" and "plain" in before:
        return before["plain"].run_decompositions(), args
    if form != "dynamic":
        before[form] = program = torch.export.export(module, args, strict=False)
        return (program.run_decompositions() if form == "core" else program), args
    # Sizes of 1 are specialised.
    args = tuple(grown(t, 2 * max(1, t.shape[0] // 2), 0) for t in args)
    free = lambda t: (0,) if t.is_floating_point() else range(t.dim())
    sizes = tuple({k: torch.export.Dim.AUTO for k in free(t)} for t in args)
    program = torch.export.export(module, args, dynamic_shapes=(sizes,), strict=False)
    placeholders = [n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"][-len(args) :]
    # What export specialised keeps its size; batches grow by 1, sequences by half.
    more = lambda k, n, was: was if is_concrete_int(n) else was + was // 2
    batch = lambda n, was: was if is_concrete_int(n) else was + 1
    return program, tuple(
        grown(t, batch(p.shape[0], t.shape[0]), more(1, p.shape[1], t.shape[1]) if p.dim() > 1 else 0) for t, p in zip(args, placeholders)
    )


def median_of(call, count=3):
    """The median time of calls, in microseconds, after one that is not timed."""
    times = []
    for _ in range(count + 1):
        start = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - start))
    return sorted(times[1:])[count // 2]


def run_on(a, device, path):
    """Runs an archive on a device: outcome, detail and the report of `kiln run`."""
    threads = str(a.threads)
    options = ("--json", "--repeat", "3", "--device", device, "--threads", threads, "--workers", threads)
    what, detail, printed = run_kiln(a, path, f"{path}.{device}", *options)
    try:
        return what, detail, json.loads(printed)
    except ValueError:
        return what, detail, {}


def second_look(program, module, args, want, path):
    """Whether a result outside the tolerances is wrong, beside eager in float64 and the exported program in eager."""
    import torch
    from safetensors.torch import load_file

    stored = load_file(path)
    got = [stored[f"output_{k}"] for k in range(len(want))]
    is_float, floor = lambda t: t.is_floating_point(), LEAST_GRADIENT if isinstance(module, Gradients) else 0.0
    floats = [list(filter(is_float, ts)) for ts in (got, want)]
    apart = largest(*floats, floor)
    if apart > TOLERANCE and any(n.target is torch.ops.aten.topk.default for n in program.graph.nodes):
        with torch.no_grad(), first_of_equals():
            ordered = module(*args)
        if all(is_float(g) or torch.equal(g, w) for g, w in zip(got, ordered)):
            own = largest(floats[0], list(filter(is_float, ordered)), floor)
            if own <= TOLERANCE:
                return "agrees", f"error {own:.1e} where topk takes the first of equal elements"
    if any(g.shape != w.shape or not is_float(w) and not torch.equal(g, w) for g, w in zip(got, want)):
        return "wrong", "integers or shapes differ"
    if apart <= TOLERANCE:
        return "agrees", f"error {apart:.1e}"
    with torch.no_grad():
        traced = largest(list(filter(is_float, program.module()(*args))), floats[1], floor)
        if traced > AMPLIFIED:
            return "not exported", f"the exported program differs from the model in eager by {traced:.1e}"
        try:
            with in_float64():
                exact = module.double()(*[t.double() if is_float(t) else t for t in args])
        finally:
            module.float()
    eager = largest(floats[1], list(filter(is_float, exact)), floor)
    detail = f"error {apart:.1e}, eager's {eager:.1e}"
    return ("undecided" if eager > AMPLIFIED else "agrees" if apart <= 10 * eager else "wrong"), detail


def eager(module, args, before):
    """The results of the model, the inputs that it writes, and the time of a call, once for all forms with the same inputs."""
    if before.get("args") is not args:
        given = [t.clone() for t in args]
        before |= {"args": args, "want": module(*given), "written": [t for t in given if t._version]}
        # Only what is written needs a copy in each timed call.
        before["eager_us"] = round(median_of(lambda: module(*([t.clone() for t in args] if before["written"] else args))))
    return before["want"], before["written"], before["eager_us"]


def one_form(a, form, module, args, folder, before):
    """Exports one form and runs it on all devices: its part of the model's line. `before` has what forms share."""
    import torch
    from safetensors.torch import save_file

    path, line = f"{folder}/{form}", {}
    start = time.time()
    try:
        with torch.no_grad():
            if form == "gradients":
                module = Gradients(module, args)
                args = module.given(args)
            program, args = exported(form, module, args, before)
            line["ops"] = sum(n.op == "call_function" for n in program.graph.nodes)
            line["export_s"] = round(time.time() - start, 1)
            torch.export.save(program, f"{path}.pt2")
            line["save_s"] = round(time.time() - start - line["export_s"], 1)
            want, written, line["eager_us"] = eager(module, args, before)
            # A functional graph returns them first.
            want = (*written, *want) if program.graph_signature.user_inputs_to_mutate else (*want, *written)
    except Exception as e:
        return line | {device: {"outcome": "not exported", "detail": say(e)} for device in a.devices.split(",")}
    plain = lambda t: t.detach().clone(memory_format=torch.contiguous_format)
    tensors = {f"input_{k}": plain(t) for k, t in enumerate(args)} | {f"output_{k}": plain(t) for k, t in enumerate(want)}
    save_file(tensors, f"{path}.safetensors")
    for device in a.devices.split(","):
        start = time.time()
        what, detail, said = run_on(a, device, path)
        if what == "refused" and form == "dynamic":
            try:
                program.module()(*args)
            except Exception as e:
                what, detail = "not exported", f"the exported program refuses these sizes: {say(e)}"
        if what == "wrong":
            try:
                what, detail = second_look(program, module, args, want, f"{path}.{device}")
            except Exception as e:
                detail += f"; {say(e)}"
        line[device] = {"outcome": what, "detail": detail[:600], "run_s": round(time.time() - start, 1)}
        if said:
            line[device] |= {"kernels": len(said["kernels"]), "us": said["median_us"], "compile_us": said["total_us"]}
    for file in () if a.keep else Path(folder).iterdir():
        file.unlink()
    return line


def one(a, name, make, inputs):
    """Builds a model and runs all of its forms: what its line says."""
    import torch

    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    line = {"devices": a.devices}
    try:
        model = make().eval()
        line["parameters"] = sum(p.numel() for p in model.parameters())
        if line["parameters"] > a.most:
            return {**line, "outcome": "left out", "detail": "large"}
        with torch.no_grad():
            given = inputs(model)
        if not given:
            return {**line, "outcome": "left out", "detail": "no inputs known"}
        module, args = flat(model, given)
        with torch.no_grad():
            if draws(module, args):
                module = without_draws(module)
    except forked.LeftOut as e:
        return {**line, "outcome": "left out", "detail": str(e)}
    except Exception as e:
        return {**line, "outcome": "not eager", "detail": say(e)}
    if a.keep:
        Path(a.keep, name).mkdir(parents=True, exist_ok=True)
    with contextlib.nullcontext(f"{a.keep}/{name}") if a.keep else tempfile.TemporaryDirectory() as folder:
        before = {}
        line["forms"] = {form: one_form(a, form, module, args, folder, before) for form in a.forms.split(",") if form != "none"}
    if not line["forms"]:
        return {**line, "outcome": "eager", "detail": ""}
    worst, detail = max(((o, d) for f in line["forms"].values() for o, d in results(f).values()), key=lambda r: STATES.index(r[0]) if r[0] in BAD else -1)
    return {**line, "outcome": worst, "detail": detail}


def results(form):
    """Device -> outcome and detail of one form."""
    return {d: (form[d]["outcome"], form[d]["detail"]) for d in ("cpu", "cuda") if d in form}


def rows(lines):
    """The rows of the table: one of each model and form."""
    for line in sorted(lines, key=lambda r: r["model"]):
        row = {"model": line["model"], "parameters": line.get("parameters", "")}
        if "forms" not in line:
            states = dict.fromkeys(line.get("devices", "cpu,cuda").split(","), line["outcome"])
            yield row | states | {"form": "", "detail": cell(line["detail"])}
        for name, form in line.get("forms", {}).items():
            found = results(form)
            cpu, gpu = form.get("cpu", {}), form.get("cuda", {})
            said = row | {"form": name, "ops": form.get("ops", ""), "kernels": cpu.get("kernels", ""), "gpu_kernels": gpu.get("kernels", "")}
            said |= {d: found[d][0] for d in found}
            said |= {k: round(v["compile_us"] / 1e6, 2) for k, v in (("compile_s", cpu), ("gpu_compile_s", gpu)) if "compile_us" in v}
            if "us" in cpu and form.get("eager_us"):
                said["beside_eager"] = round(cpu["us"] / form["eager_us"], 2)
            yield said | {"detail": cell("; ".join(dict.fromkeys(d for o, d in found.values() if d)))}


# What a table says of a form on a device, beside its outcome.
OF_DEVICE = {"cpu": ("kernels", "compile_s", "beside_eager"), "cuda": ("gpu_kernels", "gpu_compile_s")}


def merged(before, table):
    """A table with what an earlier one has beyond it: models, forms, and the columns of a device that was left out."""
    at = lambda r: (r["model"], r["form"])
    new, models = {at(r): r for r in table}, {r["model"] for r in table}
    for old in before:
        fresh = new.get(at(old))
        if fresh is None and (old["form"] or old["model"] not in models):
            new[at(old)] = old
        for device, columns in OF_DEVICE.items():
            if fresh is not None and not fresh.get(device):
                fresh |= {k: old[k] for k in (device, *columns) if old.get(k)}
    return [new[k] for k in sorted(new, key=lambda k: (k[0], FORMS.index(k[1])))]


def page(table, measured):
    """`docs/models.md`."""
    whole = [r for r in table if r["form"]]
    names = {r["model"] for r in table}
    text = ["# Public models", "", INTRODUCTION, "", f"{len(names)} models so far, in a random order.", measured, ""]
    for device, title in (("cpu", "On the host"), ("cuda", "On the GPU")):
        if not any(r.get(device) for r in whole):
            continue
        ran = [r for r in table if r.get(device)]
        count = collections.Counter((f"{r['model'].split('.')[0]}, {r['form']}" if r["form"] else r["model"].split(".")[0] + ", not run", r[device]) for r in ran)
        columns = [s for s in STATES if any(k[1] == s for k in count)]
        text += [f"## {title}", "", *forked.outcomes(count, columns), ""]
    text += ["## What does not agree", "", "| model | form | host | GPU | reason |", "| --- | --- | --- | --- | --- |"]
    states = lambda r: [r.get("cpu", ""), r.get("cuda", "")]
    text += [f"| {r['model']} | {r['form']} | {' | '.join(states(r))} | {r['detail']} |" for r in whole if any(s not in ("agrees", "") for s in states(r))]
    text += ["", "## What did not run", "", "| model | outcome | reason |", "| --- | --- | --- |"]
    text += [f"| {r['model']} | {r.get('cpu') or r.get('cuda')} | {r['detail']} |" for r in table if not r["form"]]
    text += ["", "## All that ran", "", "| model | form | ops | kernels | on a GPU | compiled in s | time beside eager |", "| --- " * 7 + "|"]
    shown = ("model", "form", "ops", "kernels", "gpu_kernels", "compile_s", "beside_eager")
    return "\n".join(text + ["| " + " | ".join(str(r.get(c, "")) for c in shown) + " |" for r in whole if "agrees" in states(r)]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    forked.arguments(parser)
    parser.add_argument("--kiln", default="target/release/kiln")
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--forms", default="plain", help="forms of an export; none: build and run in eager only")
    parser.add_argument("--threads", type=int, default=1, help="threads of eager, of kiln's calls and of its compiler")
    parser.add_argument("--keep", help="keep archives, inputs and results in a folder of each model here")
    parser.add_argument("--measured", default="", help="a sentence for the page: date, machine, versions")
    parser.add_argument("--csv", help="write the table to this file; what it has of models that did not run stays")
    a = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    forked.run(a, one)
    table = list(rows(forked.lines_of(a.out)))
    if a.csv:
        if Path(a.csv).exists():
            with open(a.csv, newline="") as file:
                table = merged(list(csv.DictReader(file)), table)
        with open(a.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
    text = page(table, a.measured)
    Path(a.page).write_text(text) if a.page else print(text)


if __name__ == "__main__":
    main()

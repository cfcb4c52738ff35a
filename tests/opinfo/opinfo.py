"""PyTorch's own operator tests (OpInfo) through kiln: exports samples, compiles and runs them, compares, tabulates.

`./x opinfo` calls this script: export, run and report in turn, or the step that it names.

    python opinfo.py export  --out DIR [--dtype float32] [--samples 3] [--ops REGEX] [--decompose] [--jobs N]
    python opinfo.py run     --out DIR --kiln BIN [--ops REGEX] [--target T] [--again] [--jobs N]
    python opinfo.py report  --out DIR [--page FILE]
    python opinfo.py bundle  --out DIR [--dtype float32] --to FOLDER

`export` needs torch and safetensors. A sample is DIR/DTYPE/OP/K.pt2 with K.safetensors beside it; `run` writes one line a
sample to DIR/DTYPE.jsonl and skips samples whose line is there already, so that both can be interrupted. All tensors of a
sample are inputs, also those in lists and keyword arguments; everything else is a constant of the exported program. `bundle`
joins one or two small samples of every operator that agrees into a few archives, which the test suite runs.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

# Outcomes, from best to worst. A sample that PyTorch does not export, or whose results it does not determine, says nothing
# about kiln. `nearer` is a result of 16-bit floats that is not PyTorch's, and nearer to that of float64: PyTorch rounds
# after each step, or gives NaN where float64 does not.
GOOD, NEARER, SILENT = "agrees", "nearer", ("not exported", "random")
BAD = ("unsupported", "refused", "failed", "timeout", "crashed", "wrong")

# Of kiln's `src/tolerance.rs`.
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2}

# Operators whose results are not unique: compared after the function that OpInfo gives with each sample, such as the
# magnitudes of eigenvectors.
UP_TO_SIGNS = ("svd", "linalg.svd", "linalg.eigh")
# Which of equal elements comes first is not determined: compared by the elements. Nor is the order of eigenvalues.
UP_TO_ORDER = {
    # Sums over eigenvalues, and what each eigenvector is scaled by.
    "linalg.eig": lambda x, found, *_, **__: ((found[0] ** 2).sum(-1), found[0].abs().sort().values, x + (x @ found[1] - found[1] * found[0].unsqueeze(-2))),
    "linalg.eigvals": lambda x, found, *_, **__: ((found**2).sum(-1), found.abs().sort().values),
    "argsort": lambda x, order, dim=-1, *_, **__: x.flatten()[order] if x.dim() == 0 else x.take_along_dim(order, dim),
    "topk": lambda x, found, *_, **__: found[0],
    "mode": lambda x, found, *_, **__: found[0],
    "kthvalue": lambda x, found, *_, **__: found[0],
    "sort": lambda x, found, *_, stable=False, **__: found if stable else found[0],
}
# Their elements are not determined.
EMPTY = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


def operators(pattern):
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        if re.search(pattern, name):
            yield name, op


def module_of(op, sample):
    """The sample as a module of its tensors, and these tensors."""
    import torch
    from torch.utils import _pytree as tree

    leaves, spec = tree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    class Sample(torch.nn.Module):
        def forward(self, *inputs):
            given = iter(inputs)
            first, args, kwargs = tree.tree_unflatten(
                [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], spec
            )
            results = op.op(first, *args, **kwargs)
            if op.name in UP_TO_ORDER:
                results = UP_TO_ORDER[op.name](first, results, *args, **kwargs)
            results = tree.tree_leaves(sample.output_process_fn_grad(results) if op.name in UP_TO_SIGNS else results)
            return tuple(r for r in results if isinstance(r, torch.Tensor))

    return Sample(), tensors


def stored(tensor):
    """A tensor as its file holds it: contiguous, and a complex one with a last dimension of two parts."""
    import torch

    plain = tensor.detach().resolve_conj().resolve_neg()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    return plain.clone(memory_format=torch.contiguous_format)


def export_one(op, sample, path, decompose):
    """Exports one sample; the reason if there is nothing to compare."""
    import torch
    from safetensors.torch import save_file

    if op.name in EMPTY:
        return "random"
    module, tensors = module_of(op, sample)
    copies = lambda: tuple(t.detach().clone() for t in tensors)
    with torch.no_grad():
        torch.manual_seed(0)
        want = module(*copies())
        torch.manual_seed(1)
        again = module(*copies())
        # Inputs that the operator writes are further results of the program, after its own.
        written = copies()
        torch.manual_seed(0)
        module(*written)
        changed = [w for w, t in zip(written, tensors) if not bool(((w == t) | (w != w) & (t != t)).all())]
        if not want:
            return "not exported: no tensor results"
        same = all(torch.equal(a, b) or bool(((a == b) | (a != a) & (b != b)).all()) for a, b in zip(want, again) if a.shape == b.shape)
        if not same or any(a.shape != b.shape for a, b in zip(want, again)):
            return "random"
        program = torch.export.export(module, copies(), strict=False)
        if decompose:
            program = program.run_decompositions()
        try:
            program.module()(*copies())
        except Exception as error:  # such as a bound of a size that PyTorch gets wrong
            return f"not exported: the exported program fails: {str(error).splitlines()[0][:200]}"
        # Functionalised programs declare what they write, in front of their own results.
        given = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
        own, ordered = iter(want), []
        for spec in program.graph_signature.output_specs:
            if spec.kind.name == "USER_INPUT_MUTATION":
                at = given.index(spec.target)
                ordered.append(written[at])
                changed = [w for w in changed if w is not written[at]]
            else:
                ordered.append(next(own))
        want = ordered
    torch.export.save(program, f"{path}.pt2")
    plain = stored
    named = {f"input_{k}": plain(t) for k, t in enumerate(tensors)} | {f"output_{k}": plain(t) for k, t in enumerate([*want, *changed])}
    save_file(named, f"{path}.safetensors")
    return None


def export_op(name, out, dtype, samples, decompose):
    import torch
    import warnings

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    folder = Path(out) / dtype / name
    if (folder / "done.json").exists():
        return name
    op = next(op for found, op in operators(f"^{re.escape(name)}$") if found == name)
    kind = getattr(torch, dtype)
    if kind not in op.supported_dtypes("cpu"):
        return name
    folder.mkdir(parents=True, exist_ok=True)
    left = {}
    torch.manual_seed(0)
    try:
        all = op.sample_inputs("cpu", kind, requires_grad=False)
        for k, sample in enumerate(all):
            if samples and k >= samples:
                break
            try:
                reason = export_one(op, sample, folder / str(k), decompose)
            except Exception as error:  # whatever export raises is a reason
                reason = f"not exported: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
            if reason:
                left[str(k)] = reason
    except Exception as error:
        left["all"] = f"not exported: {type(error).__name__}: {str(error)[:200]}"
    (folder / "done.json").write_text(json.dumps(left))
    return name


def export(a):
    names = [name for name, _ in operators(a.ops)]
    with concurrent.futures.ProcessPoolExecutor(a.jobs) as pool:
        tasks = [pool.submit(export_op, n, a.out, a.dtype, a.samples, a.decompose) for n in names]
        for k, task in enumerate(concurrent.futures.as_completed(tasks)):
            print(f"{k + 1}/{len(names)} {task.result()}", flush=True)


def is_nearer(name, k, path, outputs):
    """Whether results of 16-bit floats are as near to those of float64 as PyTorch's, or nearer."""
    import torch
    from safetensors.torch import load_file

    stored, have = load_file(f"{path}.safetensors"), load_file(outputs)
    op = next(op for found, op in operators(f"^{re.escape(name)}$") if found == name)
    kind = getattr(torch, path.parent.parent.name)
    torch.manual_seed(0)
    sample = next(s for i, s in enumerate(op.sample_inputs("cpu", kind, requires_grad=False)) if i == k)
    module, tensors = module_of(op, sample)
    wide = lambda t: t.double() if t.is_floating_point() else t
    with torch.no_grad():
        exact = module(*[wide(stored[f"input_{i}"]) for i in range(len(tensors))])
    for i, e in enumerate(exact):
        x, y = have[f"output_{i}"], stored[f"output_{i}"]
        if x.dtype != y.dtype or x.shape != y.shape or not x.is_floating_point():
            if x.dtype != y.dtype or not torch.equal(x, y):
                return False
            continue
        finite = e.to(x.dtype).isfinite()
        if not torch.equal(x.isfinite(), finite):
            return False
        error = lambda v: float((v.double() - e)[finite].norm())
        own = TOLERANCE[path.parent.parent.name] * float(e[finite].norm())
        if not error(x) <= (error(y) if y.isfinite().equal(finite) else own):
            return False
    return True


def outcome(a, path):
    """Runs one exported sample: outcome and detail."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = f"{folder}/outputs.safetensors"
        what, detail = outcome_of(a, path, outputs)
        half = path.parent.parent.name in ("float16", "bfloat16")
        if what == "wrong" and half and is_nearer(path.parent.name, int(path.name), path, outputs):
            what = NEARER
        return what, detail


def outcome_of(a, path, outputs):
    return run_kiln(a, path, outputs, "--repeat", "1", *(["--target", a.target] if a.target else []))[:2]


def run_kiln(a, path, outputs, *options):
    """Runs an exported program on its stored inputs: outcome, detail and what was printed."""
    command = [a.kiln, "run", f"{path}.pt2", "--inputs", f"{path}.safetensors", "--expect", f"{path}.safetensors"]
    command += ["--outputs", outputs, "--no-cache", *options]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=a.timeout, errors="replace")
    except subprocess.TimeoutExpired:
        return "timeout", f"{a.timeout} s", ""
    return *verdict(ended), ended.stdout


def verdict(ended):
    """Outcome and detail of a finished `kiln run --expect`."""
    text = (ended.stderr or ended.stdout).strip()
    if ended.returncode == 0:
        return GOOD, ""
    if ended.returncode == 1:
        lines = [line for line in ended.stdout.splitlines() if "output" in line and "agree" not in line]
        return "wrong", "; ".join(line.strip() for line in lines)[:300]
    if ended.returncode < 0 or ended.returncode > 5:
        return "crashed", f"exit {ended.returncode}: {text[-300:]}"
    if re.search(r"takes (\d+) inputs?, but", text):  # the state of a generator
        return "random", text[:300]
    missing = re.findall(r"^\s+(?:torch\.ops\.)?((?:aten|prims|_operator|math)[\w.]*)", text, re.M)
    if "unsupported op" in text:
        return "unsupported", " ".join(sorted(set(missing))) or text[:300]
    return {2: "refused", 3: "unsupported"}.get(ended.returncode, "failed"), text[:300]


def run(a):
    for folder in sorted(p for p in Path(a.out).iterdir() if p.is_dir()):
        log = Path(a.out) / f"{folder.name}.jsonl"
        done = {}
        if log.exists():
            done = {(r["op"], r["sample"]): r for r in map(json.loads, log.read_text().splitlines())}
        fresh = lambda op, k: a.again and done.get((op, k), {}).get("outcome") != GOOD or (op, k) not in done
        todo = [
            (path.parent.name, path.stem, path.with_suffix(""))
            for path in sorted(folder.glob("*/*.pt2"))
            if re.search(a.ops, path.parent.name) and fresh(path.parent.name, path.stem)
        ]
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool, log.open("a") as lines:
            for (op, sample, _), (what, detail) in zip(todo, pool.map(lambda t: outcome(a, t[2]), todo)):
                lines.write(json.dumps({"op": op, "sample": sample, "outcome": what, "detail": detail}) + "\n")
                lines.flush()
        print(f"{folder.name}: {len(todo)} samples run", flush=True)


def tabulate(out):
    """For each dtype, each operator's outcomes: sample -> (outcome, detail)."""
    found = {}
    for log in sorted(Path(out).glob("*.jsonl")):
        ops = collections.defaultdict(dict)
        for line in map(json.loads, log.read_text().splitlines()):
            ops[line["op"]][line["sample"]] = (line["outcome"], line["detail"])
        for done in (Path(out) / log.stem).glob("*/done.json"):
            for sample, reason in json.loads(done.read_text()).items():
                ops[done.parent.name].setdefault(sample, (reason.split(":")[0], reason))
        found[log.stem] = ops
    return found


def worst(samples):
    """The outcome of an operator: its worst sample's."""
    said = [what for what, _ in samples.values() if what not in SILENT]
    if not said:
        return next(iter(samples.values()))[0]
    return max(said, key=lambda what: BAD.index(what) if what in BAD else -1 if what == NEARER else -2)


def report(a):
    text = ["| dtype | operators | " + " | ".join((GOOD, NEARER) + BAD + SILENT) + " |", "| --- " * (4 + len(BAD) + len(SILENT)) + "|"]
    details = []
    for dtype, ops in tabulate(a.out).items():
        count = collections.Counter(worst(samples) for samples in ops.values())
        text.append(f"| {dtype} | {len(ops)} | " + " | ".join(str(count[k]) for k in (GOOD, NEARER) + BAD + SILENT) + " |")
        for op, samples in sorted(ops.items()):
            what = worst(samples)
            if what in BAD:
                first = next(detail for said, detail in samples.values() if said == what)
                details.append(f"| {dtype} | `{op}` | {what} | {' '.join(first.replace('|', '/').split())[:160]} |")
    missing = collections.Counter()
    for ops in tabulate(a.out).values():
        for samples in ops.values():
            names = {n for what, detail in samples.values() if what == "unsupported" for n in detail.split() if "." in n}
            missing.update(names)
    text += ["", "| dtype | operator | outcome | first reason |", "| --- | --- | --- | --- |", *details]
    if a.page:
        Path(a.page).write_text("\n".join(text) + "\n")
    else:
        print("\n".join(text))
    print("\nunsupported overloads, by operators that want them:")
    for name, n in missing.most_common(a.most):
        print(f"{n:4} {name}")


class Bundle:
    """Samples as one module, whose inputs and results follow each other."""

    def __new__(cls, samples):
        import torch

        class Module(torch.nn.Module):
            def forward(self, *inputs):
                results, at = [], 0
                for module, tensors in samples:
                    results += module(*inputs[at : at + len(tensors)])
                    at += len(tensors)
                return tuple(results)

        return Module()


def small_samples(op, kind, agree, most=2, elements=200):
    """The first of the samples `agree` with few elements and with results that are not empty."""
    import torch

    found = []
    torch.manual_seed(0)
    for k, sample in enumerate(op.sample_inputs("cpu", kind, requires_grad=False)):
        module, tensors = module_of(op, sample)
        if str(k) not in agree or sum(t.numel() for t in tensors) > elements:
            continue
        with torch.no_grad():
            want = module(*[t.detach().clone() for t in tensors])
            # Results that float32 cannot hold, such as products that vanish, say nothing.
            try:
                wide = module(*[t.detach().double() if t.is_floating_point() else t.detach().clone() for t in tensors])
                held = all(torch.allclose(a.double(), b.double(), rtol=1e-4, atol=0, equal_nan=True) for a, b in zip(want, wide) if a.is_floating_point())
            except Exception:  # an op that takes float32 only
                held = True
        if held and want and all(0 < t.numel() <= elements for t in want) and not any(t.is_complex() for t in want):
            found.append((module, [t.detach() for t in tensors]))
        if len(found) == most:
            break
    return found


def bundle(a):
    """Writes aten_opinfo_K.pt2 and .safetensors: deflated graphs, without paths."""
    import sys

    import torch
    from safetensors.torch import save_file

    sys.path.append(str(Path(__file__).resolve().parents[1] / "models"))
    import archive

    torch.set_num_threads(1)
    found, each, seen = tabulate(a.out)[a.dtype], [], set()
    for name, op in operators(a.ops):
        agree = {k for k, (what, _) in found.get(name, {}).items() if what == GOOD}
        if agree and name not in seen:
            seen.add(name)
            each += small_samples(op, getattr(torch, a.dtype), agree)
    for k in range(0, len(each), a.per):
        part = each[k : k + a.per]
        path = Path(a.to) / f"aten_opinfo_{k // a.per:02}"
        tensors = tuple(t for _, all in part for t in all)
        copies = lambda: tuple(t.clone() for t in tensors)
        with torch.no_grad():
            want = Bundle(part)(*copies())
            program = torch.export.export(Bundle(part), copies(), strict=False)
        archive.save(program, f"{path}.pt2")
        plain = stored
        save_file({f"input_{k}": plain(t) for k, t in enumerate(tensors)} | {f"output_{k}": plain(t) for k, t in enumerate(want)}, f"{path}.safetensors")
        print(f"{path.name}: {len(part)} samples, {len(tensors)} inputs, {len(want)} outputs", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["export", "run", "report", "bundle"])
    parser.add_argument("--out", required=True)
    parser.add_argument("--ops", default="")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=3, help="of each operator; 0: all")
    parser.add_argument("--decompose", action="store_true", help="export after run_decompositions()")
    parser.add_argument("--kiln", default="target/release/kiln")
    parser.add_argument("--target", default="")
    parser.add_argument("--again", action="store_true", help="run again what did not agree")
    parser.add_argument("--timeout", type=int, default=120)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--page", help="write the table to this file")
    parser.add_argument("--most", type=int, default=400)
    parser.add_argument("--to", default=".", help="folder of the bundles")
    parser.add_argument("--per", type=int, default=60, help="samples of a bundle")
    a = parser.parse_args()
    {"export": export, "run": run, "report": report, "bundle": bundle}[a.step](a)


if __name__ == "__main__":
    main()

"""PyTorch's operator tests (OpInfo) through torch.compile(backend="kiln") beside eager.

`./x opinfo compiled` calls this script.

    python compiled.py --out DIR [--dtype float32] [--samples 3] [--ops REGEX] [--device cpu] [--gradients] [--joint] [--dynamic] [--again] [--jobs N]
    python compiled.py --out DIR --report [--page FILE]

One line a sample goes to DIR/DTYPE.jsonl (DTYPE-gradients.jsonl, DTYPE-joint.jsonl, DTYPE-dynamic.jsonl), and operators whose lines are there are
skipped, so that a run can be interrupted. Each process takes a batch of operators; where one dies, the operator counts as crashed
and the others go on in a new one.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fuzz"))
from opinfo import EMPTY, UP_TO_ORDER, UP_TO_SIGNS, operators

# From best to worst. `nearer` and `undecided` are those of tests/fuzz/check.py; `falls back`: an op stays eager, or
# with --joint a graph has autograd's gradients.
GOOD = ("agrees", "nearer", "undecided")
# These say nothing about kiln: eager refuses the sample, its results are not determined, or PyTorch does not trace it.
SILENT = ("eager fails", "random", "not traced")
BAD = ("falls back", "strides", "failed", "timeout", "crashed", "wrong")
ORDER = SILENT + GOOD + BAD


def flat(results):
    """The tensors among results, complex ones as two parts, and the numbers as tensors."""
    import torch
    from torch.utils import _pytree as tree

    leaves = [leaf for leaf in tree.tree_leaves(results) if isinstance(leaf, (torch.Tensor, int, float, bool, complex))]
    tensors = [leaf.detach() if isinstance(leaf, torch.Tensor) else torch.tensor(leaf) for leaf in leaves]
    return [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t.resolve_neg() for t in tensors]


class Case:
    """One sample of an operator as a function of its tensors."""

    def __init__(self, op, sample, gradients):
        from torch.utils import _pytree as tree

        self.op, self.sample, self.gradients = op, sample, gradients
        self.leaves, self.spec = tree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))

    def given(self, wide=False):
        """The arguments anew: copies of the tensors, in float64 if `wide`."""
        import torch
        from torch.utils import _pytree as tree

        def copy(leaf):
            if not isinstance(leaf, torch.Tensor):
                return leaf
            t = leaf.detach().clone()
            if wide and (t.is_floating_point() or t.is_complex()):
                t = t.to(torch.complex128 if t.is_complex() else torch.float64)
            return t.requires_grad_(leaf.requires_grad)

        return tree.tree_unflatten([copy(leaf) for leaf in self.leaves], self.spec)

    def call(self, fn, wide=False):
        """Results with gradients or with what the call wrote; compared after what makes them unique."""
        import torch
        from torch.utils import _pytree as tree

        first, args, kwargs = given = self.given(wide)
        tensors = [leaf for leaf in tree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]
        torch.manual_seed(0)
        with torch.set_grad_enabled(self.gradients):
            raw = fn(first, *args, **kwargs)
            results = UP_TO_ORDER[self.op.name](first, raw, *args, **kwargs) if self.op.name in UP_TO_ORDER else raw
            if self.gradients or self.op.name in UP_TO_SIGNS:
                results = self.sample.output_process_fn_grad(results)
        if not self.gradients:
            return flat([results, *tensors]), raw
        outputs = [r for r in tree.tree_leaves(results) if isinstance(r, torch.Tensor) and r.requires_grad]
        inputs = [t for t in tensors if t.requires_grad]
        if not outputs or not inputs:
            return flat(results), raw
        draw = torch.Generator().manual_seed(1)
        # Drawn in float64, so that wide results get the same projection.
        along = [torch.randn(o.shape, generator=draw, dtype=torch.complex128 if o.is_complex() else torch.float64).to(o) for o in outputs]
        found = torch.autograd.grad(outputs, inputs, along, allow_unused=True)
        return flat([results, [torch.zeros_like(i) if g is None else g for g, i in zip(found, inputs)]]), raw


def say(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' | '.join(lines[:2])[:300]}"


def same(a, b):
    import torch

    return len(a) == len(b) and all(x.shape == y.shape and x.dtype == y.dtype and torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(a, b))


def strides(raw):
    """The strides of results as far as they address elements."""
    import torch
    from torch.utils import _pytree as tree

    each = [t for t in tree.tree_leaves(raw) if isinstance(t, torch.Tensor) and t.layout is torch.strided]
    return [[s for s, n in zip(t.stride(), t.shape) if n > 1] if t.numel() else [] for t in each]


def is_random(case):
    import torch

    once = case.call(case.op.op)[0]
    seed, torch.manual_seed = torch.manual_seed, lambda _: torch.random.manual_seed(17)
    try:
        return not same(once, case.call(case.op.op)[0])
    finally:
        torch.manual_seed = seed


def by_pytorch(case, dynamic):
    """What PyTorch gives without a compiler; None if it fails."""
    import torch

    torch._dynamo.reset()
    try:
        return case.call(torch.compile(case.op.op, backend="aot_eager", dynamic=dynamic))
    except Exception:
        return None


def faked(case):
    """The results on fake tensors; None if there are none."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils import _pytree as tree

    try:
        with FakeTensorMode() as mode, torch.set_grad_enabled(case.gradients):
            first, args, kwargs = tree.tree_map(lambda leaf: mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf, case.given())
            return case.op.op(first, *args, **kwargs)
    except Exception:
        return None


def checked(op, sample, gradients=False, dynamic=False, joint=False):
    """Outcome and detail of one sample."""
    import kiln_torch
    import torch
    from check import compared, is_within

    case = Case(op, sample, gradients)
    try:
        want, raw = case.call(op.op)
    except Exception as error:
        return "eager fails", say(error)
    if op.name in EMPTY or is_random(case):
        return "random", ""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    kiln_torch.reports.clear()
    try:
        have, mine = case.call(torch.compile(op.op, backend="kiln", dynamic=dynamic, options={"joint_graph": joint}))
    except Exception as error:
        return ("not traced" if by_pytorch(case, dynamic) is None else "failed"), say(error)
    reports, breaks = list(kiln_torch.reports), dict(torch._dynamo.utils.counters["graph_break"])
    try:
        exact = case.call(op.op, wide=True)[0]
        assert [e.shape for e in exact] == [w.shape for w in want]
    except Exception:  # an operator that does not take float64
        exact = [w.double() if w.is_floating_point() else w for w in want]
    if len(have) != len(want):
        return "wrong", f"{len(have)} results, but {len(want)} are expected"
    judged = [compared(h.cpu(), w.cpu(), e.cpu()) for h, w, e in zip(have, want, exact)]
    worst = max(range(len(judged)), key=lambda k: ORDER.index(judged[k][0]), default=None)
    if worst is None:
        return "random", "no results"
    what, detail = judged[worst]
    if what == "wrong":
        # Dynamo rewrites some ops to others, which give other results.
        traced = by_pytorch(case, dynamic)
        if traced is None or len(traced[0]) == len(have) and all(is_within(h, t) for h, t in zip(have, traced[0])):
            return "not traced", f"PyTorch traces other results: {detail}"
        return what, f"result {worst}: {detail}"
    eager = {op.split(" at ")[0]: why for r in reports for op, why in r.eager.items()}
    if joint:
        eager |= {"gradients": r.gradients for r in reports if r.gradients.startswith("autograd")}
    if eager:
        return "falls back", "; ".join(f"{op}: {why}" for op, why in eager.items())[:500]
    if strides(mine) != strides(raw) and not dynamic:
        # A compiler knows the strides that the operator has on fake tensors, which are not always eager's.
        stated = faked(case)
        if stated and strides(stated) == strides(raw):
            return "strides", f"{strides(mine)}, but {strides(raw)} are expected"
    if breaks:
        return "not traced", f"a graph break: {' '.join(next(iter(breaks)).split())[:200]}"
    return what, detail


def work(a):
    """Runs the operators that are named, one JSON line for each beginning and each sample."""
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    say_line = lambda **line: print(json.dumps(line), flush=True)
    kind, known = getattr(torch, a.dtype), dict(operators(""))
    for name in a.names.split(","):
        op = known[name]
        torch.manual_seed(0)
        try:
            for k, sample in enumerate(op.sample_inputs(a.device, kind, requires_grad=a.gradients)):
                if a.samples and k >= a.samples:
                    break
                say_line(op=name, begins=k)
                state = torch.get_rng_state()
                what, detail = checked(op, sample, a.gradients, a.dynamic, a.joint)
                torch.set_rng_state(state)
                say_line(op=name, sample=k, outcome=what, detail=detail)
        except Exception as error:
            say_line(op=name, sample=-1, outcome="eager fails", detail=say(error))
        say_line(op=name, ends=True)


def batch(names, a, record):
    """Runs operators in one process after another until each has ended, crashed or run out of time."""
    left = list(names)
    while left:
        flags = ["--gradients"] * a.gradients + ["--joint"] * a.joint + ["--dynamic"] * a.dynamic
        command = [sys.executable, __file__, "--names", ",".join(left), "--dtype", a.dtype, "--samples", str(a.samples), "--device", a.device, *flags]
        child = subprocess.Popen([*command, "--out", a.out], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
        last, late, tail = {}, [], collections.deque(maxlen=5)
        drain = threading.Thread(target=lambda: tail.extend(child.stderr))
        drain.start()
        stop = lambda: (late.append(True), child.kill())
        timer = threading.Timer(a.timeout, stop)
        timer.start()
        for line in child.stdout:
            timer.cancel()
            timer = threading.Timer(a.timeout, stop)
            timer.start()
            if not line.startswith("{"):
                continue
            line = json.loads(line)
            if "begins" in line:
                last = line
            elif "ends" in line:
                left.remove(line["op"])
                record(line)
            else:
                record(line)
        timer.cancel()
        child.wait()
        drain.join()
        if not left:
            return
        name = last.get("op") if last.get("op") in left else left[0]
        left.remove(name)
        said = " ".join(" ".join(tail).split())[-300:]
        record({"op": name, "sample": last.get("begins", -1), "outcome": "timeout" if late else "crashed", "detail": f"exit {child.returncode}: {said}"})
        record({"op": name, "ends": True})


def log_of(a):
    return Path(a.out) / f"{a.dtype}{'-joint' if a.joint else '-gradients' * a.gradients}{'-dynamic' * a.dynamic}.jsonl"


def read(log):
    """The samples' outcomes of each operator, the newest of each, and the operators that have ended."""
    ops, ended = collections.defaultdict(dict), set()
    for line in map(json.loads, log.read_text().splitlines()) if log.exists() else ():
        if "ends" in line:
            ended.add(line["op"])
        else:
            ops[line["op"]][line["sample"]] = (line["outcome"], line["detail"])
    return ops, ended


def run(a):
    import torch

    Path(a.out).mkdir(parents=True, exist_ok=True)
    log, kind = log_of(a), getattr(torch, a.dtype)
    ops, ended = read(log)
    takes = lambda op: kind in (op.supported_backward_dtypes(a.device) if a.gradients else op.supported_dtypes(a.device))
    fits = lambda op: takes(op) and (op.supports_autograd or not a.gradients)
    fresh = lambda name: name not in ended or a.again and worst(ops[name])[0] in BAD
    todo = [name for name, op in operators(a.ops) if fits(op) and fresh(name)]
    batches = [todo[k : k + a.per] for k in range(0, len(todo), a.per)]
    lock, count = threading.Lock(), 0
    with log.open("a") as file, concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:

        def record(line):
            with lock:
                file.write(json.dumps(line) + "\n")
                file.flush()

        for done in concurrent.futures.as_completed([pool.submit(batch, names, a, record) for names in batches]):
            done.result()
            count += 1
            print(f"{count}/{len(batches)} batches of {a.per}", flush=True)


def worst(samples):
    """The outcome of an operator: its worst sample's, with the detail."""
    return max(samples.values(), key=lambda one: ORDER.index(one[0]), default=("eager fails", "no samples"))


def report(a):
    head = ("kind", "operators", *GOOD, *BAD, *SILENT)
    text, details = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"], []
    for log in sorted(Path(a.out).glob("*.jsonl")):
        ops = read(log)[0]
        found = {name: worst(samples) for name, samples in ops.items() if re.search(a.ops, name)}
        count = collections.Counter(what for what, _ in found.values())
        text.append(f"| {log.stem} | {len(found)} | " + " | ".join(str(count[k]) for k in (*GOOD, *BAD, *SILENT)) + " |")
        shown = BAD + ("undecided", "not traced") if a.all else BAD
        details += [f"| {log.stem} | `{n}` | {what} | {' '.join(d.replace('|', '/').split())[:300]} |" for n, (what, d) in sorted(found.items()) if what in shown]
    text += ["", "| kind | operator | outcome | first reason |", "| --- | --- | --- | --- |", *details]
    Path(a.page).write_text("\n".join(text) + "\n") if a.page else print("\n".join(text))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--ops", default="")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=3, help="of each operator; 0: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gradients", action="store_true", help="of a random projection of the results")
    parser.add_argument("--joint", action="store_true", help="gradients by kiln's passes instead of autograd")
    parser.add_argument("--dynamic", action="store_true", help="torch.compile(dynamic=True)")
    parser.add_argument("--again", action="store_true", help="run again what did not agree")
    parser.add_argument("--timeout", type=int, default=120, help="seconds of a sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--per", type=int, default=20, help="operators of a process")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--all", action="store_true", help="list what PyTorch does not trace, too")
    parser.add_argument("--page", help="write the table to this file")
    parser.add_argument("--names", help=argparse.SUPPRESS)
    a = parser.parse_args()
    a.gradients |= a.joint
    if a.names:
        work(a)
    elif a.report:
        report(a)
    else:
        run(a)
        report(a)


if __name__ == "__main__":
    main()

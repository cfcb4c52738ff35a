"""Exports a random function, runs it with `kiln run` and compares with eager."""
import itertools
import random
import subprocess

import torch
from program import Unfit
from values import name_of

# Of kiln's `src/tolerance.rs`.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
# Above this error of eager against float64, nothing can be said.
AMPLIFIED = 1e-2
MODES = ("static", "core", "dynamic")
GOOD, SILENT = ("agrees", "nearer", "undecided"), ("not exported", "not generated")


def stored(tensor):
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def is_within(have, want):
    """The rule of `kiln run --expect`."""
    if have.dtype != want.dtype or have.shape != want.shape:
        return False
    if not want.dtype.is_floating_point:
        return torch.equal(have, want)
    tolerance, x, y = TOLERANCE[name_of(want.dtype)], have.double(), want.double()
    off = torch.where((x == y) | (x.isnan() & y.isnan()), 0.0, (x - y).abs()).nan_to_num(float("inf"))
    finite = y[y.isfinite()]
    greatest = finite.abs().max().item() if finite.numel() else 0.0
    most = off.max().item() if off.numel() else 0.0
    return most == 0 or off.norm().item() <= tolerance * finite.norm().item() and most <= tolerance * (1 + greatest)


def error(a, b):
    """The norm of a difference relative to the exact `b`, over what is finite there."""
    finite = b.isfinite()
    x, y = a.double()[finite], b.double()[finite]
    size = y.norm().item()
    # Float64 leaves such remainders where the exact result is 0.
    off = torch.where((x - y).abs() < 1e-12, 0.0, x - y)
    return off.norm().item() / (size or 1.0) if y.numel() else 0.0


def coarsest(function, state):
    """The tolerance of each value: that of the narrowest floating-point dtype that was rounded to on the way to it."""
    own = lambda name: TOLERANCE.get(name_of(state.values[name].tensor.dtype), 0.0)
    rounded = lambda name: 0.0 if state.values[name].exact else own(name)
    found = {i.name: rounded(i.name) for i in function.inputs}
    for line in function.lines:
        # A line may call a method of an operand first: `F.kl_div(x0, x1.sigmoid())`.
        inner = [own(n) for n in line.operands if f"{n}." in line.text and not line.text.startswith(f"{n}.")]
        widest = max([found[n] for n in line.operands] + inner, default=0.0)
        # A line without names writes to its operands.
        found |= {n: max(widest, rounded(n)) for n in line.names or line.operands}
    return found


def compared(have, want, exact, tolerance=0.0):
    """Outcome and detail of one result, which may have been computed from values of this tolerance."""
    if is_within(have, want):
        return "agrees", ""
    if have.dtype != want.dtype or have.shape != want.shape:
        return "wrong", f"{name_of(have.dtype)} {list(have.shape)}, but {name_of(want.dtype)} {list(want.shape)} is expected"
    if not want.dtype.is_floating_point:
        where = (have != want).nonzero()[:3].tolist()
        return "wrong", f"integers differ at {where}: {[have[tuple(w)].item() for w in where]}, eager {[want[tuple(w)].item() for w in where]}"
    own, eagers = error(have, exact), error(want, exact)
    detail = f"{name_of(want.dtype)}: error {own:.1e}, eager's {eagers:.1e}"
    finite = exact.to(want.dtype).isfinite()
    if not torch.equal(have.isfinite(), finite) or not torch.equal(have.isnan(), exact.isnan()):
        half = want.dtype in (torch.float16, torch.bfloat16) and not torch.equal(want.isfinite(), finite)
        return ("nearer" if half else "wrong"), f"{detail}; other elements are finite"
    if eagers > AMPLIFIED:
        return "undecided", detail
    # Eager may be NaN, which `max` ignores as its second argument.
    return ("nearer" if own <= max(TOLERANCE[name_of(want.dtype)], tolerance, 10 * eagers) else "wrong"), detail


def sizes_of(program):
    """The symbols of an exported program with their ranges, and the shapes of its inputs."""
    shapes = [n.meta["val"].shape for n in program.graph.nodes if n.op == "placeholder" and "val" in n.meta]
    users = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    shapes = [n.meta["val"].shape for n in program.graph.nodes if n.op == "placeholder" and n.name in users]
    return dict(program.range_constraints), shapes


def other_shapes(program, seed):
    """Shapes that the program admits, small sizes first."""
    ranges, shapes = sizes_of(program)
    used = {s for shape in shapes for n in shape if not isinstance(n, int) for s in n.node.expr.free_symbols}
    symbols = sorted(used, key=str)
    draw = random.Random(seed)
    options = []
    for symbol in symbols:
        low = max(0, int(ranges[symbol].lower)) if symbol in ranges else 0
        high = int(ranges[symbol].upper) if symbol in ranges and ranges[symbol].upper < 10**6 else 20
        near = [n for n in (0, 1, 2, 3, 5, 6, 7, 10, 11) if low <= n <= high]
        draw.shuffle(near)
        # A size of 1 or 0 in most runs.
        options.append(sorted(near, key=lambda n: n > 1) if draw.random() < 0.4 else near)
    size = lambda n, at: n if isinstance(n, int) else int(n.node.expr.subs(at))
    for chosen in itertools.islice(itertools.zip_longest(*options), 9) if options else ():
        at = {s: c if c is not None else o[-1] for s, c, o in zip(symbols, chosen, options) if c is not None or o}
        yield [tuple(size(n, at) for n in shape) for shape in shapes]


class Exported:
    """An exported function with the inputs, results and results in float64 of the run it is checked by."""

    def __init__(self, function, mode):
        module, inputs = function.module(), function.given()
        self.shapes, self.eager, sizes = None, None, None
        if mode == "dynamic":
            sizes = tuple({d: torch.export.Dim.AUTO for d, n in enumerate(t.shape) if n > 1} for t in inputs)
        with torch.no_grad():
            program = torch.export.export(module, tuple(inputs), dynamic_shapes=sizes, strict=False)
            self.program = program.run_decompositions() if mode == "core" else program
            if mode == "dynamic":
                self.choose(function)
            else:
                self.fill(function)

    def choose(self, function):
        """Takes the first shapes at which the function is fit and the exported program is faithful."""
        for shapes in other_shapes(self.program, function.seed):
            if all(s == i.shape for s, i in zip(shapes, function.inputs)):
                continue
            try:
                self.fill(function, shapes)
                self.is_faithful()
                return
            except Exception:  # other sizes than the function or the export admit
                continue
        self.fill(function)
        self.is_faithful()

    def fill(self, function, shapes=None):
        state = function.evaluated(shapes)
        self.shapes, self.inputs = shapes, function.given(shapes)
        written, names = state.written(), function.results
        # Functionalised programs declare what they write, in front of their own results.
        users = [s.arg.name for s in self.program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
        own, front = iter(names), []
        for spec in self.program.graph_signature.output_specs:
            if spec.kind.name == "USER_INPUT_MUTATION":
                front.append(function.inputs[users.index(spec.target)].name)
        rest = [function.inputs[k].name for k in written if function.inputs[k].name not in front]
        names = [*front, *own, *rest]
        self.want = [state.narrow_space[n] for n in names]
        self.exact = [state.wide_space[n] for n in names]
        tolerances = coarsest(function, state)
        self.tolerances = [tolerances[n] for n in names]
        self.own = slice(len(front), len(front) + len(function.results))

    def is_faithful(self):
        """Raises Unfit if the exported program does not give the function's results in eager."""
        self.eager = self.eager or self.program.module()
        found = self.eager(*[t.clone() for t in self.inputs])
        for f, w in zip(found, self.want[self.own]):
            same = f.shape == w.shape and f.dtype == w.dtype and bool(((f == w) | f.isnan() & w.isnan()).all() if not f.is_floating_point() else is_within(f, w))
            if not same:
                raise Unfit("the exported program gives other results in eager")

    def save(self, path):
        from safetensors.torch import save_file

        torch.export.save(self.program, f"{path}.pt2")
        named = {f"input_{k}": stored(t) for k, t in enumerate(self.inputs)} | {f"output_{k}": stored(t) for k, t in enumerate(self.want)}
        save_file(named, f"{path}.safetensors")


def say(e):
    lines = [t.strip() for t in str(e).splitlines() if t.strip()]
    return f"{type(e).__name__}: {' | '.join(lines[:3])[:300]}"


def run(kiln, path, timeout):
    """Runs a saved function: outcome, detail and the file of results."""
    outputs = f"{path}.outputs"
    command = [kiln, "run", f"{path}.pt2", "--inputs", f"{path}.safetensors", "--outputs", outputs, "--no-cache", "--repeat", "1", "--threads", "1", "--workers", "1"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout, errors="replace")
    except subprocess.TimeoutExpired:
        return "timeout", f"{timeout} s", None
    text = " ".join((ended.stderr or ended.stdout).split())[:400]
    if ended.returncode == 0:
        return "agrees", "", outputs
    if ended.returncode < 0 or ended.returncode > 5 or "panicked" in text:
        return "crashed", f"exit {ended.returncode}: {text}", None
    return {2: "refused", 3: "unsupported"}.get(ended.returncode, "failed"), text, None


def check(function, mode, kiln, path, timeout=60):
    """Outcome and detail of a function in a mode."""
    from safetensors.torch import load_file

    try:
        exported = Exported(function, mode)
        exported.save(path)
    except Exception as e:  # whatever export raises is a reason
        return "not exported", say(e)
    at = f" at {[list(s) for s in exported.shapes]}" if exported.shapes else ""
    what, detail, outputs = run(kiln, path, timeout)
    if outputs is None:
        detail += at
    else:
        what, detail = judged(load_file(outputs), exported, at)
    if what in ("wrong", "refused"):
        try:
            exported.is_faithful()
        except Exception as e:
            return "not exported", say(e)
    return what, detail


def judged(found, exported, at):
    """Outcome and detail of all results."""
    # Without elements there is nothing to write where PyTorch gives a view and kiln a copy.
    while len(found) < len(exported.want) and not exported.want[-1].numel():
        exported.want.pop(), exported.exact.pop(), exported.tolerances.pop()
    if len(found) != len(exported.want):
        return "wrong", f"{len(found)} results, but {len(exported.want)} are expected{at}"
    worst = ("agrees", "")
    order = ("agrees", "nearer", "undecided", "wrong")
    for k, (want, exact, tolerance) in enumerate(zip(exported.want, exported.exact, exported.tolerances)):
        what, detail = compared(found[f"output_{k}"], want, exact, tolerance)
        if order.index(what) > order.index(worst[0]):
            worst = (what, f"output {k}: {detail}")
    return worst[0], worst[1] + at if worst[1] else at.strip()

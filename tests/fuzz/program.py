"""A random function: inputs, lines of PyTorch, results; its text, its evaluation and what its lines have to satisfy."""
import functools
from dataclasses import dataclass, field

import torch
from values import Value, in_float64, same, widened

LARGEST, ELEMENTS = 1e4, 4096


class Unfit(Exception):
    """A line whose results eager does not determine, or that it refuses."""


@dataclass
class Line:
    """A statement. `names` are new values; a line without names writes to its operands."""

    names: tuple
    text: str
    operands: tuple
    row: str
    exact: bool
    jumps: bool

    @property
    def statement(self):
        return f"{', '.join(self.names)} = {self.text}" if self.names else self.text


@functools.lru_cache(maxsize=4096)
def code(text):
    return compile(text, "<line>", "exec")


@dataclass
class Function:
    seed: int
    inputs: list
    lines: list = field(default_factory=list)
    results: list = field(default_factory=list)

    def text(self, name="f", first=""):
        arguments = ", ".join([*([first] if first else []), *(i.name for i in self.inputs)])
        body = "".join(f"    {line.statement}\n" for line in self.lines)
        return f"def {name}({arguments}):\n{body}    return {', '.join(self.results)},\n"

    def module(self):
        """The function as a module."""
        space = {"torch": torch, "F": torch.nn.functional}
        exec(self.text("forward", "self"), space)
        return type("Fuzzed", (torch.nn.Module,), {"forward": space["forward"]})()

    def given(self, shapes=None):
        return [i.make(s) for i, s in zip(self.inputs, shapes or [None] * len(self.inputs))]

    def evaluated(self, shapes=None):
        """The state after all lines at these shapes; raises Unfit if a line is unfit there."""
        state = State(self, shapes)
        for line in self.lines:
            state.step(line)
        return state


def overlaps(tensor):
    """Whether elements may share memory, as windows do: writes to these have no order."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1 and stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


class State:
    """The values of a function line by line, in eager and in float64."""

    def __init__(self, function, shapes=None):
        self.given = function.given(shapes)
        wide = [widened(t) for t in self.given]
        self.narrow_space = {"torch": torch, "F": torch.nn.functional}
        self.wide_space = dict(self.narrow_space)
        self.versions = [t._version for t in self.given]
        self.values = {}
        for i, tensor, other in zip(function.inputs, self.given, wide):
            self.add(i.name, tensor, other, same(tensor, other))

    def add(self, name, tensor, wide, exact):
        self.narrow_space[name], self.wide_space[name] = tensor, wide
        self.values[name] = Value(name, tensor, wide, exact)

    def written(self):
        """The inputs that lines wrote, by their positions."""
        return [k for k, (t, v) in enumerate(zip(self.given, self.versions)) if t._version != v]

    def step(self, line):
        """Evaluates a line. Raises Unfit, after which the state is of no use if the line writes."""
        operands = [self.values[n] for n in line.operands]
        determined = all(v.determined for v in operands)
        if line.jumps and not determined:
            raise Unfit("a jump of what is rounded")
        if not line.names and any(overlaps(v.tensor) for v in operands):
            raise Unfit("a write to elements that may share memory")
        statement = f"_ = {line.text}" if line.names else line.text
        try:
            exec(code(statement), self.narrow_space)
            with in_float64():
                exec(code(statement), self.wide_space)
        except Exception as e:
            raise Unfit(f"{type(e).__name__}: {e}") from None
        if line.names:
            self.name_results(line, determined)
            return
        # A caller's archive holds inputs row by row: a write to one element of an expanded input is a write to one element.
        if any(0 in self.given[k].stride() for k in self.written()):
            raise Unfit("a write to an expanded input")
        storages = {v.tensor.untyped_storage().data_ptr() for v in operands if v.tensor.numel()}
        for name, value in list(self.values.items()):
            if value.tensor.untyped_storage().data_ptr() in storages or value in operands:
                exact = line.exact and determined and value.exact and same(value.tensor, value.wide)
                self.add(name, value.tensor, value.wide, exact)
                self.check(self.values[name], determined or value.kind == "float")

    def name_results(self, line, determined):
        found, wide = self.narrow_space.pop("_"), self.wide_space.pop("_")
        if len(line.names) == 1 and not isinstance(found, torch.Tensor):
            raise Unfit("another number of results")
        found, wide = ([found], [wide]) if isinstance(found, torch.Tensor) else (list(found), list(wide))
        if len(found) != len(line.names) or not all(isinstance(t, torch.Tensor) for t in found):
            raise Unfit("another number of results")
        for name, tensor, other in zip(line.names, found, wide):
            self.add(name, tensor, other, False)
            value = self.values[name]
            self.check(value, determined)
            value.exact = value.kind != "float" or line.exact and determined and same(tensor, other)

    def check(self, value, determined):
        """Raises Unfit if a value is large, not of a known dtype, or not determined."""
        tensor, wide = value.tensor, value.wide
        if tensor.numel() > ELEMENTS or tensor.is_complex() or tensor.dtype in (torch.int16, torch.uint16):
            raise Unfit("large or of another dtype")
        if tensor.shape != wide.shape:
            raise Unfit("another shape in float64")
        if value.kind != "float":
            if not determined or not torch.equal(tensor, wide):
                raise Unfit("an integer that rounding decides")
            return
        if not torch.equal(tensor.isfinite(), wide.isfinite()):
            raise Unfit("an overflow that rounding decides")
        finite = tensor[tensor.isfinite()]
        if finite.numel() and finite.abs().max() > LARGEST:
            raise Unfit("large elements")

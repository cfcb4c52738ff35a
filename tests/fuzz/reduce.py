"""Shrinks a function that does not agree: drops results, lines and dimensions, and makes inputs of computed values."""
import copy
import tempfile
import time

import torch
from check import check
from generate import generate
from program import Line
from values import Input, name_of


def outcome(function, mode, kiln, timeout):
    with tempfile.TemporaryDirectory() as folder:
        return check(function, mode, kiln, f"{folder}/x", timeout)


def alike(first, second):
    """Whether a smaller function fails as the first did, so that one fault does not turn into another."""
    kind = lambda r: (r[0], r[1].split(" at ")[0][:60] if r[0] not in ("wrong",) else "integers" if "integers" in r[1] else "expected" if "expected" in r[1] else "")
    return kind(first) == kind(second)


def pruned(function):
    """Without lines that no result reads, and without unused inputs. Lines that write stay."""
    needed, kept = set(function.results), []
    for line in reversed(function.lines):
        if not line.names or needed & set(line.names):
            needed |= set(line.operands)
            kept.append(line)
    small = copy.copy(function)
    small.lines = kept[::-1]
    small.inputs = [i for i in function.inputs if i.name in needed] or function.inputs[:1]
    return small


def with_input(function, at):
    """The line's first value as an input, or None."""
    line = function.lines[at]
    if len(line.names) != 1:
        return None
    small = copy.copy(function)
    try:
        state = copy.copy(function)
        state.lines = function.lines[: at + 1]
        value = state.evaluated().values[line.names[0]].tensor
    except Exception:
        return None
    small.inputs = [*function.inputs, Input(line.names[0], value.dtype, tuple(value.shape), given=value.clone())]
    small.lines = function.lines[:at] + function.lines[at + 1 :]
    return pruned(small)


def candidates(function, mode):
    """Smaller functions, those that drop most first."""
    for k, name in enumerate(function.results if len(function.results) > 1 else ()):
        small = copy.copy(function)
        small.results = [name]
        yield pruned(small)
    for k in range(len(function.results) if len(function.results) > 1 else 0):
        small = copy.copy(function)
        small.results = function.results[:k] + function.results[k + 1 :]
        yield pruned(small)
    for at in reversed(range(len(function.lines))):
        line = function.lines[at]
        small = copy.copy(function)
        if not line.names:
            small.lines = function.lines[:at] + function.lines[at + 1 :]
            yield pruned(small)
            continue
        if mode != "dynamic" and (made := with_input(function, at)):
            yield made
        # A value in place of the one that the line makes of it.
        for operand in line.operands:
            small = copy.copy(function)
            same = Line(line.names, f"{operand}.detach()" if len(line.names) == 1 else f"{operand}, {operand}", (operand,), "detach", True, False)
            if line.row != "detach":
                small.lines = function.lines[:at] + [same] + function.lines[at + 1 :]
                yield small
    for k, given in enumerate(function.inputs):
        changes = [{"layout": "contiguous"}] if given.layout != "contiguous" else []
        if given.dtype not in (torch.float32, torch.int64, torch.bool):
            changes.append({"dtype": torch.float32 if given.dtype.is_floating_point else torch.int64})
        for d, n in enumerate(given.shape):
            shape = lambda m, d=d: {"shape": (*given.shape[:d], m, *given.shape[d + 1 :])}
            changes += [shape(m) for m in (1, 2, n // 2) if m < n and (m > 1 or mode != "dynamic")]
        for change in changes if given.given is None else ():
            small = copy.copy(function)
            fresh = copy.copy(given)
            for name, value in change.items():
                setattr(fresh, name, value)
            small.inputs = function.inputs[:k] + [fresh] + function.inputs[k + 1 :]
            yield small


def reduced(function, mode, kiln, timeout=60, seconds=90):
    """The smallest function found, with its outcome."""
    first = outcome(function, mode, kiln, timeout)
    end, best, last = time.time() + seconds, function, first
    progress = first[0] not in ("agrees", "nearer", "undecided", "not exported")
    while progress and time.time() < end:
        progress = False
        for small in candidates(best, mode):
            if time.time() > end:
                break
            try:
                small.evaluated()
                found = outcome(small, mode, kiln, timeout)
            except Exception:  # a line no longer fits
                continue
            if alike(first, found):
                best, last, progress = small, found, True
                break
    return best, last


def described(given):
    """An input as Python code."""
    tensor = given.make()
    dtype = f"torch.{name_of(tensor.dtype)}"
    if tensor.numel() > 64:
        return f"torch.randint(0, 9, {list(tensor.shape)}).to({dtype})  # {given.layout}, seed {given.seed}"
    return f"torch.tensor({tensor.tolist()}, dtype={dtype}){f'.view({list(tensor.shape)})' if not tensor.numel() else ''}" + (f"  # {given.layout}" if given.layout != "contiguous" else "")


def report_reduced(seed, mode, kiln, timeout):
    function = generate(seed, mode == "dynamic")
    if function is None:
        print(f"# seed {seed}: not generated")
        return
    best, (what, detail) = reduced(function, mode, kiln, timeout)
    print(f"# seed {seed}, {mode}: {what}: {detail}")
    print(*(f"{i.name} = {described(i)}" for i in best.inputs), best.text(), sep="\n", flush=True)

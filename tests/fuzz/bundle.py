"""Joins functions that agree into a few archives, which the test suite runs without PyTorch."""
import sys
from pathlib import Path

import torch
from check import TOLERANCE, error, stored
from generate import generate
from safetensors.torch import save_file
from values import name_of

sys.path.append(str(Path(__file__).resolve().parents[1] / "models"))
import archive

ELEMENTS = 160


def fits(function):
    """Whether the interpreter, which rounds nothing, has to give eager's results, and these are small."""
    state = function.evaluated()
    for value in state.values.values():
        if value.tensor.dtype in (torch.float16, torch.bfloat16) or value.tensor.numel() > ELEMENTS:
            return False
        if value.kind == "float" and error(value.tensor, value.wide) > TOLERANCE[name_of(value.tensor.dtype)] / 4:
            return False
    return sum(i.make().numel() for i in function.inputs) <= ELEMENTS


class Joined(torch.nn.Module):
    """Functions as one module, whose inputs and results follow each other; inputs that are written become results."""

    def __init__(self, functions):
        super().__init__()
        self.functions = [(f.module(), len(f.inputs), f.evaluated().written()) for f in functions]

    def forward(self, *inputs):
        results, at = [], 0
        for module, count, written in self.functions:
            own = inputs[at : at + count]
            # Layouts of inputs are those of the archive: row-major. Inputs themselves stay as they are.
            own = [t.clone() if k in written else t for k, t in enumerate(own)]
            results += [*module(*own), *(own[k] for k in written)]
            at += count
        # One name for one result.
        return tuple(results)


def plain(function):
    """The function with row-major inputs."""
    for given in function.inputs:
        given.layout = "contiguous"
    return function


def exports(function):
    """Whether the function runs and exports with row-major inputs."""
    try:
        function.evaluated()
        torch.export.export(Joined([function]), tuple(function.given()), strict=False)
        return fits(function)
    except Exception:
        return False


def write(path, functions):
    module = Joined(functions)
    inputs = [t for f in functions for t in f.given()]
    copies = lambda: tuple(t.clone() for t in inputs)
    want = module(*copies())
    program = torch.export.export(module, copies(), strict=False)
    archive.save(program, f"{path}.pt2")
    named = {f"input_{k}": stored(t) for k, t in enumerate(inputs)} | {f"output_{k}": stored(t) for k, t in enumerate(want)}
    save_file(named, f"{path}.safetensors")
    print(f"{Path(path).name}: {len(functions)} functions, {len(inputs)} inputs, {len(want)} outputs", flush=True)


def write_bundles(lines, folder, most, per=50):
    """Writes aten_fuzz_K.pt2 and .safetensors of the first static functions that agree."""
    seeds = sorted({r["seed"] for r in lines if r["mode"] == "static" and r["outcome"] == "agrees"})
    chosen = []
    for seed in seeds:
        function = plain(generate(seed))
        if exports(function):
            chosen.append(function)
        if len(chosen) == most:
            break
    for k in range(0, len(chosen), per):
        write(Path(folder) / f"aten_fuzz_{k // per:02}", chosen[k : k + per])

"""Support of gen_aten.py and gen_aten_cuda.py: random inputs, families of cases, archives of several cases."""
import re
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "models"))
import archive

A, F, Dim = torch.ops.aten, torch.nn.functional, torch.export.Dim
inf, nan = float("inf"), float("nan")
gen = torch.Generator().manual_seed(0)
HALF = (torch.float16, torch.bfloat16)


def f(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=gen).to(dtype)


def p(*shape, dtype=torch.float32):
    return (torch.rand(shape, generator=gen) * 1.5 + 0.2).to(dtype)


def u(*shape):
    return torch.rand(shape, generator=gen) * 1.8 - 0.9


def i(lo, hi, *shape, dtype=torch.int64):
    return torch.randint(lo, hi, shape, generator=gen).to(dtype)


def b(*shape):
    return torch.rand(shape, generator=gen) > 0.5


def special():
    return torch.tensor([inf, -inf, nan, 0.0, -0.0, 1.5, -2.5, 0.5, 2.5])


def nc(*shape):
    """A non-contiguous tensor."""
    return f(*reversed(shape)).permute(*reversed(range(len(shape))))


families = {}


def case(family, fn, *inputs, dyn=None):
    """`dyn` has one dict of dynamic dimensions (or None) per input, renamed to be unique to the case."""
    k = len(families.setdefault(family, []))
    named = lambda dim: Dim(f"{dim.__name__}{k}", min=dim.min, max=64) if isinstance(dim, Dim) else dim
    own = lambda d: d and {axis: named(dim) for axis, dim in d.items()}
    families[family].append((fn, inputs, [own(d) for d in dyn or [None] * len(inputs)]))


class Each(torch.nn.Module):
    def __init__(self, cases):
        super().__init__()
        self.cases = cases

    def forward(self, *args):
        out, at = [], 0
        for fn, inputs, _ in self.cases:
            r = fn(*args[at : at + len(inputs)])
            at += len(inputs)
            out += list(r) if isinstance(r, (tuple, list)) else [r]
        return tuple(out)


def strip(ep):
    """Keeps only file names in stack traces, and only user frames."""
    for node in ep.graph.nodes:
        trace = node.meta.get("stack_trace") or ""
        last = re.findall(r'File "[^"]*?((?:gen_aten|aten_\w+)\.py)", line (\d+)', trace)
        node.meta["stack_trace"] = f'  File "{last[-1][0]}", line {last[-1][1]}, in forward' if last else None
        node.meta.pop("nn_module_stack", None), node.meta.pop("source_fn_stack", None)
    return ep


def save(ep, path):
    archive.write(strip(ep), path)


def write(path, module, args, dyn, outputs=None):
    args = tuple(args)
    want = module(*[a.clone() for a in args]) if outputs is None else outputs
    ep = torch.export.export(module, args, dynamic_shapes=dyn)
    save(ep, f"{path}.pt2")
    real = lambda t: torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
    plain = lambda t: real(t.detach()).clone(memory_format=torch.contiguous_format)
    save_file({f"input_{k}": plain(t) for k, t in enumerate(args)} | {f"output_{k}": plain(t) for k, t in enumerate(want)}, f"{path}.safetensors")
    return ep

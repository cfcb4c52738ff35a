"""Runs cases through torch.compile beside eager."""

import dataclasses
import itertools

import torch
from torch.utils import _pytree as tree

import kiln_torch

from .case import VERSION, Case, arguments


@dataclasses.dataclass
class Call:
    """A case with one of its sets of arguments, or with all of them if it is compiled by itself."""

    name: str
    case: Case
    sets: tuple

    @property
    def kind(self):
        """Calls of one kind share a graph."""
        return self.case.gradients, self.case.eager_random, tuple(self.case.config.items())


def calls(table: dict, dynamic: bool, wide: bool = True):
    """The calls of a table: those that share graphs, and those alone."""
    shared, alone = [], []
    for name, cases in table.items():
        for case in cases if isinstance(cases, list) else [cases]:
            if not (case.dynamic if dynamic else case.static) or case.wide and not wide or case.since > VERSION:
                continue
            if case.alone:
                alone.append(Call(name, case, case.sets))
            else:
                shared += [Call(name, case, (given,)) for given in case.sets]
    return shared, alone


def bundles(table: dict, dynamic: bool, size: int, wide: bool) -> list[list[Call]]:
    shared, alone = calls(table, dynamic, wide)
    kinds = itertools.groupby(sorted(shared, key=lambda c: str(c.kind)), key=lambda c: c.kind)
    chunks = []
    for kind, group in kinds:
        group = list(group)
        # What to save for a backward graph is found by cuts of the whole graph.
        each = size // 4 if kind[0] else size
        chunks += [group[k : k + each] for k in range(0, len(group), each)]
    return chunks + [[c] for c in alone]


def copied(t):
    """The same tensor in a storage of its own."""
    if not isinstance(t, torch.Tensor):
        return t
    with torch.no_grad():
        copy = torch.empty(0, dtype=t.dtype, device=t.device).set_(t.untyped_storage().clone(), t.storage_offset(), t.shape, t.stride())
    if not t.requires_grad:
        return copy
    copy.requires_grad_()
    return copy if t.is_leaf else copy.clone()


def significant(t):
    return [s for s, n in zip(t.stride(), t.shape) if n > 1] if t.numel() else []


def dense(t):
    """Whether the elements fill their part of memory, in any order."""
    expected = 1
    for stride, size in sorted(p for p in zip(t.stride(), t.shape) if p[1] > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def sharing(tensors):
    """Which tensors share memory, as the first one that each shares with."""
    owners = [t.untyped_storage().data_ptr() if t.numel() and t.device.type != "meta" else k for k, t in enumerate(tensors)]
    return [owners.index(o) for o in owners]


def compare(case: Case, have, want, mine, theirs, dynamic):
    """Results and arguments of the compiled and the eager call."""
    (a, spec), (b, other) = tree.tree_flatten((have, mine)), tree.tree_flatten((want, theirs))
    assert spec == other, f"{spec}, but eager has {other}"
    for k, (x, y) in enumerate(zip(a, b)):
        if not isinstance(y, torch.Tensor):
            assert type(x) is type(y) and (x == y or x != x and y != y or abs(x - y) < 1e-6 * abs(y)), f"value {k}: {x}, but eager has {y}"
            continue
        assert (x.dtype, x.shape, x.device) == (y.dtype, y.shape, y.device), (
            f"value {k}: {x.dtype} {x.shape} {x.device}, but eager has {y.dtype} {y.shape} {y.device}"
        )
        # A result whose memory has gaps of dynamic sizes becomes dense.
        if not dynamic or dense(y):
            assert significant(x) == significant(y), f"value {k}: strides {x.stride()}, but eager has {y.stride()}"
        assert x.requires_grad == y.requires_grad, f"value {k}: requires_grad {x.requires_grad}"
        if case.values:
            x, y = (t.detach().resolve_conj() for t in (x, y))
            torch.testing.assert_close(x, y, **tolerances(case), equal_nan=True, msg=lambda m: f"value {k}: {m}")
    shares = [sharing([t for t in each if isinstance(t, torch.Tensor)]) for each in (a, b)]
    assert shares[0] == shares[1], f"memory is shared as {shares[0]}, but as {shares[1]} in eager"


def tolerances(case: Case) -> dict:
    """As PyTorch's, which depend on the dtype, where a case states none."""
    return {} if case.rtol is None else {"rtol": case.rtol, "atol": 1e-5 if case.atol is None else case.atol}


def gradients(results, given):
    outputs = [t for t in tree.tree_leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad]
    inputs = [t for t in tree.tree_leaves(given) if isinstance(t, torch.Tensor) and t.requires_grad]
    draw = torch.Generator(inputs[0].device).manual_seed(1)
    along = [torch.randn(o.shape, generator=draw, dtype=o.dtype, device=o.device) for o in outputs]
    return torch.autograd.grad(outputs, inputs, along, allow_unused=True)


def differing(call: Call, dynamic, backend="kiln") -> str:
    """What differs between a call and eager; empty if nothing does."""
    try:
        check([call], dynamic, backend)
    except Exception as error:
        return f"{call.name}: {type(error).__name__}: {error}"
    return ""


def check(bundle: list[Call], dynamic: bool, backend="kiln"):
    """Compiles the functions of the calls as one, and compares each with eager."""
    torch._dynamo.reset()
    case = bundle[0].case
    functions = [c.case.fn for c in bundle]

    def run(*each):
        return [fn(*args) for fn, args in zip(functions, each)]

    options = {"fallback_random": True} if case.eager_random and backend == "kiln" else None
    compiled = torch.compile(run, backend=backend, dynamic=dynamic, options=options)
    for row in zip(*(c.sets for c in bundle)):
        torch.manual_seed(0)
        given = [arguments(one) for one in row]
        if case.gradients:
            given = tree.tree_map(lambda t: t.requires_grad_() if isinstance(t, torch.Tensor) and t.is_floating_point() else t, given)
        mine, theirs = tree.tree_map(copied, given), tree.tree_map(copied, given)
        with torch._dynamo.config.patch(**case.config), torch.fx.experimental._config.patch(use_duck_shape=len(bundle) == 1):
            torch.manual_seed(0)
            want = run(*theirs)
            torch.manual_seed(0)
            have = compiled(*mine)
        for c, *each in zip(bundle, have, want, mine, theirs):
            try:
                compare(c.case, *each, dynamic)
            except AssertionError as error:
                raise AssertionError(f"{c.name}: {error}") from error
        if case.gradients:
            # Of all calls at once, since they share a backward graph; each is compared by the widest tolerance.
            widest = max((tolerances(c.case) for c in bundle), key=lambda t: t.get("rtol", 0))
            torch.testing.assert_close(gradients(have, mine), gradients(want, theirs), **widest, msg=lambda m: f"gradients: {m}")


def fell_back() -> list[str]:
    return [f"{op}: {why}" for r in kiln_torch.reports for op, why in r.eager.items()]

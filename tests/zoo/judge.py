"""Whether a compiled model computes what eager does: errors, tolerances, and what is asked where rounding alone could explain a difference.

PyTorch is imported late, as in the scripts.
"""
from exact import in_float64
from forked import say

# The tolerance of float32, and the error of eager itself beyond which float32 says nothing.
TOLERANCE, AMPLIFIED = 1e-4, 1e-2
# The tolerance of float64, which decides where float32 says nothing.
TOLERANCE_64 = 1e-6
# How much further from float32 than eager's autocast results may be: a factor, and an addend; beyond the last nothing can be said.
FACTOR_16, ADDEND_16, AMPLIFIED_16 = 2, 1e-2, 0.5
LEAST_GRADIENT = 1e-3


def tensors(out):
    """The floating-point tensors of a result."""
    import torch
    from torch.utils import _pytree as tree

    out = out.to_tuple() if hasattr(out, "to_tuple") else out
    return [t for t in tree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.is_floating_point()]


def norm(t):
    finite = t.detach()[t.isfinite()]
    return finite.abs().max().item() if finite.numel() else 0.0


def largest(got, want, floor=0.0):
    """The largest error of a tensor relative to its norm, which is at least `floor` of the largest norm; infinite where shapes or NaNs differ."""
    import torch

    if len(got) != len(want):
        return float("inf")
    worst, least = 0.0, floor * max(map(norm, want), default=0.0)
    for g, w in zip(got, want):
        if g.shape != w.shape or not torch.equal(g.isfinite(), w.isfinite()):
            return float("inf")
        if w.numel() == 0:
            continue
        g, w = g.detach().double(), w.detach().double()
        scale, apart = max(norm(w), least), norm((g - w)[w.isfinite()])
        worst = max(worst, apart / scale if scale else apart)
    return worst


def error(got, want):
    """The error of what `step` returns: the larger one of the results and of the gradients."""
    return max(largest(got[0], want[0]), largest(got[1], want[1], LEAST_GRADIENT))


def step(run, model, inputs, mode):
    """The results of a call; or, of a training step, the loss, and the gradients of the parameters that have one."""
    import contextlib
    import numpy
    import torch

    torch.manual_seed(1)
    # Masks of time steps are drawn by numpy.
    numpy.random.seed(1)
    model.zero_grad(set_to_none=True)
    device = next((p.device.type for p in model.parameters()), "cpu")
    low = torch.autocast(device, torch.bfloat16) if mode == "autocast" else contextlib.nullcontext()
    with torch.set_grad_enabled(mode != "inference"), low:
        out = tensors(run(**inputs) if isinstance(inputs, dict) else run(*inputs))
    if mode == "inference":
        return out, []
    loss = sum(t.float().square().mean() for t in out if t.requires_grad)
    loss.backward()
    return [loss.detach()], [p.grad.clone() for p in model.parameters() if p.grad is not None]


def moved(model, state, inputs, mode, want, times=8):
    """The largest error of eager itself when the weights move by half of their last bits."""
    import torch

    worst = 0.0
    for k in range(times):
        model.load_state_dict(state)
        torch.manual_seed(100 + k)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + torch.finfo(torch.float32).eps / 2 * torch.randn_like(p))
        worst = max(worst, error(step(model, model, inputs, mode), want))
    model.load_state_dict(state)
    return worst


def widened(inputs):
    from torch.utils import _pytree as tree

    return tree.tree_map(lambda t: t.double() if hasattr(t, "is_floating_point") and t.is_floating_point() else t, inputs)


def traced(model, backend, inputs, mode):
    """What PyTorch's own backend makes of the model."""
    import torch

    torch._dynamo.reset()
    return step(torch.compile(model, backend=backend), model, inputs, mode)


def first_of_equals():
    """A mode in which `topk` takes the first of equal elements, as kiln's does: PyTorch's order of them is open."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Ordered(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, given=(), named=None):
            if op is not torch.ops.aten.topk.default:
                return op(*given, **named or {})
            x, k, dim, largest, *_ = *given, *(-1, True, True)[len(given) - 2 :]
            found = torch.sort(x, stable=True, dim=dim, descending=largest)
            return tuple(t.narrow(dim, 0, k) for t in found)

    return Ordered()


class Apart:
    """While it is entered each program's results are compared with those of its graph in eager, of the same inputs."""

    def __enter__(self):
        import torch
        from kiln_torch.program import Program

        self.worst, self.call = 0.0, Program.__call__

        def checked(program, values):
            given = [v.clone() if isinstance(v, torch.Tensor) else v for v in values]
            results = self.call(program, values)
            if program.eager is None:
                self.worst = float("inf")
                return results
            want = program.eager(*given)
            want = list(want) if isinstance(want, (tuple, list)) else [want]
            floats = [(r, w) for r, w in zip(results, want) if isinstance(w, torch.Tensor) and w.is_floating_point()]
            self.worst = max(self.worst, largest(*zip(*floats), LEAST_GRADIENT)) if floats else self.worst
            return results

        Program.__call__ = checked
        return self

    def __exit__(self, *exception):
        from kiln_torch.program import Program

        Program.__call__ = self.call


def in_parts(compile, model, state, inputs, mode, line):
    """The largest error of a program beside its own graph in eager."""
    import torch

    torch._dynamo.reset()
    model.load_state_dict(state)
    with Apart() as apart:
        step(compile(model), model, inputs, mode)
    line["error_of_programs"] = apart.worst
    return apart.worst


def in_float32(compile, model, state, inputs, mode, got, want, line):
    """Outcome and detail of results in float32; `line` takes the errors that decide."""
    line["error"] = error(got, want)
    if line["error"] <= TOLERANCE:
        return "agrees", ""
    bound = TOLERANCE
    try:
        model.load_state_dict(state)
        with in_float64():
            exact = step(model.double(), model, widened(inputs), mode)
        line["eager_error"] = error(want, exact)
        # Results of other sizes or with NaNs, as of masks that are drawn otherwise in float64, are no error of rounding.
        if AMPLIFIED < line["eager_error"] < float("inf"):
            return "undecided", "eager's own error"
        bound = max(bound, 10 * line["eager_error"]) if line["eager_error"] < float("inf") else bound
    except Exception as e:
        line["reference"] = say(e)
    if line["error"] <= bound:
        return "agrees", ""
    try:
        # What PyTorch itself makes of the model: Dynamo's graph in eager, and AOTAutograd's.
        model.float().load_state_dict(state)
        if error(got, traced(model, "eager", inputs, mode)) <= bound:
            return "agrees", "with Dynamo's graph in eager, not with the model"
        model.load_state_dict(state)
        whole = traced(model, "aot_eager", inputs, mode)
        if error(got, whole) <= bound:
            return "agrees", "with AOTAutograd's graph in eager, not with the model"
        if error(whole, want) > bound:
            return "undecided", "AOTAutograd's graph differs from the model in eager"
        line["moved_error"] = moved(model, state, inputs, mode, want)
        if line["moved_error"] > AMPLIFIED:
            return "undecided", "so do eager's results when weights move by half of their last bits"
        model.load_state_dict(state)
        with first_of_equals():
            ordered = step(model, model, inputs, mode)
        if error(got, ordered) <= bound:
            return "agrees", "where topk takes the first of equal elements"
        if in_parts(compile, model, state, inputs, mode, line) <= bound:
            return "undecided", "each program agrees with its own graph in eager"
    except Exception as e:
        line["traced"] = say(e)
    return "wrong", ""


def in_wide(compile, model, state, inputs, mode, line):
    """Whether the same graph in float64 gives eager's results; for models whose float32 says nothing."""
    import torch

    torch._dynamo.reset()
    torch.set_default_dtype(torch.float64)
    try:
        wide, given = model.double(), widened(inputs)
        wide.load_state_dict(state)
        want = step(wide, wide, given, mode)
        wide.load_state_dict(state)
        line["error_64"] = error(step(compile(wide), wide, given, mode), want)
        return line["error_64"] <= TOLERANCE_64
    except Exception as e:
        line["wide"] = say(e)
        return False
    finally:
        torch.set_default_dtype(torch.float32)


def under_autocast(compile, model, state, inputs, line):
    """Outcome and detail of results under autocast, whose distance from float32 is compared with eager's; `line` takes both."""
    import torch

    found = []
    for run, mode in ((model, "gradients"), (model, "autocast"), (compile(model), "autocast")):
        torch._dynamo.reset()
        model.load_state_dict(state)
        found.append(step(run, model, inputs, mode))
    line["error"], line["eager_error"] = error(found[2], found[0]), error(found[1], found[0])
    if line["eager_error"] > AMPLIFIED_16:
        return "undecided", "eager's own error"
    if line["error"] <= FACTOR_16 * line["eager_error"] + ADDEND_16:
        return "agrees", ""
    # Masks that are drawn while PyTorch traces, and gradients of 0 where eager has none, are no matter of the backend.
    whole = []
    for mode in ("gradients", "autocast"):
        model.load_state_dict(state)
        whole.append(traced(model, "aot_eager", inputs, mode))
    if error(found[2], whole[0]) <= FACTOR_16 * error(whole[1], whole[0]) + ADDEND_16:
        return "agrees", "with AOTAutograd's graph in eager, not with the model"
    return "wrong", ""


def fix_statistics(model):
    """Lets batch norms use their running statistics, since those of one small image amplify rounding. Returns whether there are any."""
    import torch

    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    for m in norms:
        m.eval()
    return bool(norms)

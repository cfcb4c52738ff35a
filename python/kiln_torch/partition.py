"""Splits a graph where an op is not in kiln's ATen table: supported runs become programs, the rest stays eager."""
from __future__ import annotations

import collections
import heapq

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from . import _kiln
from .convolutions import are_computed
from .decompositions import draws
from .graph import DTYPES, SYMBOLIC, is_item, overload
from .views import addresses_storage


def factors_transposes() -> bool:
    """Whether this PyTorch's solver gives the factors of the transposed matrix, as it did before 2.11; derivatives read them so."""
    with torch.utils._python_dispatch._disable_current_modes():
        upper = torch.tensor([[1.0, 1.0], [0.0, 1.0]], device="cpu")
        return bool(torch.ops.aten._linalg_solve_ex(upper, upper)[1][1, 0] != 0)


# Of some ops the results that kiln computes. Of attention ops for GPUs the output, and not the log-sum-exp and the generator's state.
COMPUTED = {
    "aten._scaled_dot_product_flash_attention.default": {0},
    "aten._scaled_dot_product_efficient_attention.default": {0},
    "aten._scaled_dot_product_cudnn_attention.default": {0},
    **({"aten._linalg_solve_ex.default": {0, 3}} if factors_transposes() else {}),
}


# On GPUs kiln has no tensor-core kernels for these.
FASTER_IN_EAGER = (
    "aten.convolution_backward.default",
    "aten._scaled_dot_product_flash_attention_backward.default",
    "aten._scaled_dot_product_cudnn_attention_backward.default",
    "aten._scaled_dot_product_efficient_attention_backward.default",
    "aten._weight_int4pack_mm.default",
)

# Where PyTorch's libraries compute gradients of convolutions and of its attention.
DEVICES = {"cuda"}


def faster_in_eager(graph: torch.fx.Graph, device: torch.device) -> dict[str, str]:
    """The nodes that PyTorch's libraries compute faster than kiln would, with the reason."""
    if device.type not in DEVICES:
        return {}
    calls = [n for n in graph.nodes if n.op == "call_function" and overload(n) in FASTER_IN_EAGER and not are_computed(n)]
    return dict.fromkeys((n.name for n in calls), "PyTorch's libraries compute it faster")


def values_of(node: torch.fx.Node) -> list:
    """The values of a node; of several results those that are used."""
    val = node.meta.get("val")
    if not isinstance(val, (tuple, list)):
        return [val]
    used = {n.args[1] for n in node.users if is_item(n)}
    return [v for k, v in enumerate(val) if k in used]


def device_of(module: torch.fx.GraphModule) -> torch.device:
    """The device that most results of a graph lie on. Its programs run there."""
    results = [v for n in module.graph.nodes if n.op == "call_function" for v in values_of(n)]
    count = collections.Counter(v.device for v in results if isinstance(v, torch.Tensor) and v.device.type in ("cpu", "cuda"))
    return max(count, key=count.get, default=torch.device("cpu"))


def is_moved(node: torch.fx.Node) -> bool:
    """Whether a node is a scalar of the processor's from outside of the graph, which a call moves to the GPU."""
    val = node.meta.get("val")
    return node.op != "call_function" and isinstance(val, torch.Tensor) and val.dim() == 0 and val.device.type == "cpu" and val.dtype in DTYPES


def has_generator(node: torch.fx.Node) -> bool:
    """Whether an op is given a generator of its own."""
    return any(isinstance(a, torch.Generator) for a in (*node.args, *node.kwargs.values()))


def makes_sizes(node: torch.fx.Node) -> bool:
    """Whether a result has a size that depends on data and that no argument has."""
    tags = getattr(node.target, "tags", ())
    if torch.Tag.dynamic_output_shape not in tags and torch.Tag.data_dependent_output not in tags:
        return False
    symbols = lambda nodes: {s for n in nodes for v in values_of(n) for s in free_unbacked_symbols(v)}
    if symbols([node]) - symbols(node.all_input_nodes):
        return True
    # A size of data that PyTorch has found equal to an argument's: the program would return it too.
    tensors = [v for v in values_of(node) if isinstance(v, torch.Tensor)]
    return bool(node.meta.get("unbacked_bindings")) and any(isinstance(size, torch.SymInt) for v in tensors for size in v.shape)


def reason_against(node: torch.fx.Node, device: torch.device, refused: dict[str, str]) -> str | None:
    """Why a node stays eager; None if a program can have it."""
    if node.op != "call_function":
        return f"{node.op} is no call"
    flat = [v for n in (node, *node.all_input_nodes) for v in ([] if is_moved(n) else values_of(n))]
    for v in flat:
        if isinstance(v, torch.Tensor):
            if v.dtype not in DTYPES:
                return f"tensors of {v.dtype}"
            if v.device != device:
                return f"tensors on {v.device} in a graph on {device}"
            if v.layout is not torch.strided:
                return f"tensors of layout {v.layout}"
        elif not isinstance(v, (int, float, type(None), *SYMBOLIC)):
            return f"values of type {type(v).__name__}"
    if isinstance(node.meta.get("val"), (int, *SYMBOLIC)) or node.target is torch.ops.aten._assert_scalar.default:
        return "computes sizes, which Python does"
    if is_item(node):
        return reason_against(node.args[0], device, refused)
    if makes_sizes(node):
        return "has a result whose size depends on data"
    if has_generator(node):
        return "draws from a generator of its own"
    if addresses_storage(node):
        return "takes an offset in the storage of an argument"
    name = overload(node)
    if name in COMPUTED and any(n.args[1] not in COMPUTED[name] for n in node.users if is_item(n)):
        return f"{name} whose other results are used, as a backward pass does"
    if node.name in refused:
        return refused[node.name]
    if not _kiln.supports(name):
        return f"{name} is not in the ATen table"
    return None


def draws_before(graph: torch.fx.Graph) -> dict[torch.fx.Node, torch.fx.Node]:
    """For each node that draws random numbers the one that draws before it."""
    drawing = [n for n in graph.nodes if n.op == "call_function" and draws(n)]
    return dict(zip(drawing[1:], drawing))


def stages_of(graph: torch.fx.Graph, left: dict[str, str], draws_in_order: bool = False) -> dict[torch.fx.Node, int]:
    """For each call the number of times that a path to it goes from a program to an eager op (`left`) and back: calls of one stage
    can be one program.

    A call is in the earliest stage that has its inputs, so that activations are freed early; but what follows from the graph's inputs
    alone, such as a weight's conversion, is in the stage of its first user, instead of waiting in memory. Gradients do not wait,
    since what they are computed of would. The results of one op are in its stage. With `draws_in_order` a draw follows the one before it as
    if it read it."""
    stages, free = {}, set()
    before = draws_before(graph) if draws_in_order else {}
    drawing = {*before, *before.values()}
    for n in graph.nodes:
        if n.op != "call_function":
            if not n.name.startswith("tangents"):
                free.add(n)
            continue
        inputs = [i for i in (*n.all_input_nodes, before.get(n)) if i in stages]
        eager = n.name in left
        stages[n] = max((stages[i] + (eager and i.name not in left) for i in inputs), default=0)
        if not eager and n not in drawing and all(i in free for i in n.all_input_nodes):
            free.add(n)
    for n in reversed(graph.nodes):
        if n not in stages or n not in free or is_item(n):
            continue
        readers = [user for direct in n.users for user in (direct.users if is_item(direct) else (direct,))]
        if readers and all(user in stages for user in readers):
            # An eager user runs before the program of its stage.
            stages[n] = max(stages[n], min(stages[user] - (user.name in left) for user in readers))
            stages.update((item, stages[n]) for item in n.users if is_item(item))
    return stages


def runs_of(module: torch.fx.GraphModule, device: torch.device, refused: dict[str, str], draws_in_order: bool = False) -> tuple[list[list[torch.fx.Node]], dict[str, str]]:
    """The runs of supported nodes, each in topological order, and why the other nodes stay eager, by name."""
    reasons = {n.name: reason_against(n, device, refused) for n in module.graph.nodes if n.op == "call_function"}
    left = {name: why for name, why in reasons.items() if why}
    runs = collections.defaultdict(list)
    for n, stage in stages_of(module.graph, left, draws_in_order).items():
        if n.name not in left:
            runs[stage].append(n)
    return [runs[stage] for stage in sorted(runs)], left


def restore_order(fused: torch.fx.GraphModule, positions: dict[str, int], draws_in_order: bool = False):
    """Sorts nodes topologically, and where that leaves a choice as before fusion: ops that draw from a generator keep their order. With
    `draws_in_order` programs that draw keep theirs, too.

    `positions`: those of the nodes before, by the name that `meta["kiln_origin"]` has."""
    output = next(n for n in fused.graph.nodes if n.op == "output")
    place = lambda n: positions.get(n.meta.get("kiln_origin"), -1)
    # A program is where its last op was.
    members = lambda n: getattr(fused, n.target).graph.nodes if n.op == "call_module" else [n]
    keys = {n: (max(map(place, members(n)), default=-1), k) for k, n in enumerate(fused.graph.nodes)}
    users = {n: [*n.users] for n in fused.graph.nodes}
    waiting = {n: len(n.all_input_nodes) for n in fused.graph.nodes}
    if draws_in_order:
        first = {n: min((place(m) for m in members(n) if m.op == "call_function" and draws(m)), default=None) for n in users if n.op.startswith("call_")}
        drawing = sorted((n for n, at in first.items() if at is not None), key=first.get)
        for earlier, later in zip(drawing, drawing[1:]):
            users[earlier].append(later)
            waiting[later] += 1
    ready = [(keys[n], n) for n, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    while ready:
        _, node = heapq.heappop(ready)
        for user in users[node]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, (keys[user], user))
        if node is not output:
            output.prepend(node)

"""Training graphs that kiln differentiates and partitions itself: of AOTAutograd's joint graph only the part before the gradients is used.

`kiln-differentiate` makes the gradients of that part, and `kiln-partition` a forward and a backward program. Autograd's gradients are those of
ATen ops one by one; kiln's are those of softmax, norms and losses as wholes. Static sizes alone.
"""
from __future__ import annotations

import dataclasses
import logging
import operator

import torch
from torch.fx.graph_module import GraphModule

from . import _kiln
from .canonical import canonicalise
from .decompositions import decompose
from .graph import Unserialisable, serialise
from .partition import device_of, runs_of
from .program import DTYPES, NAMES
from .views import return_views
from .writes import COPY

log = logging.getLogger("kiln_torch")

# With an index twice PyTorch gives both elements the gradient, though one of them is overwritten.
OTHER_GRADIENTS = (torch.ops.aten.max_unpool2d.default, torch.ops.aten.max_unpool3d.default)

STATE = "has gradients that need the state of its random numbers"
"""The program gets it from PyTorch's generator, which AOTAutograd does not save."""


class Refused(Exception):
    """Why autograd's gradients are used."""


@torch.library.custom_op("kiln::stop_gradient", mutates_args=())
def stop_gradient(x: torch.Tensor) -> torch.Tensor:
    """The same elements, as a constant to differentiation. Its result must alias no input."""
    return x.clone()


@stop_gradient.register_fake
def _(x):
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


def tensors_in(value) -> list[torch.Tensor]:
    """The tensors in the example value of a node of Dynamo's."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (tuple, list)) else []


def example(node: torch.fx.Node):
    return node.meta.get("example_value")


def needs_gradient(node: torch.fx.Node) -> bool:
    return any(t.requires_grad for t in tensors_in(example(node)))


def loses_gradient(node: torch.fx.Node) -> bool:
    """Whether a node has a result of floats without gradient, of inputs with one: `detach`, or what runs under `no_grad`."""
    value = example(node)
    if not isinstance(value, torch.Tensor) or value.requires_grad or not value.is_floating_point():
        return False
    return any(map(needs_gradient, node.all_input_nodes))


def is_written(node: torch.fx.Node) -> bool:
    """Whether an op writes to a tensor that the graph makes, or to an argument with a gradient."""
    value = example(node)
    return isinstance(value, torch.Tensor) and value._version != 0 and (node.op != "placeholder" or value.requires_grad)


def state_stops(module: GraphModule) -> str | None:
    """Writes into Dynamo's graph where gradients stop, which AOTAutograd's graph does not say. Returns why kiln cannot differentiate it; the
    graph is unchanged then."""
    graph, enabled = module.graph, True
    for n in graph.nodes:
        if isinstance(n.target, torch._ops.HigherOrderOperator):
            return f"has {n.target.name()}, which has a derivative of its own"
        if str(getattr(n.target, "__module__", "")).startswith("torch.autograd") or n.op == "call_method" and n.target in ("register_hook", "requires_grad_"):
            return f"has {getattr(n.target, '__name__', n.target)}"
        if n.target is torch._C._set_grad_enabled:
            enabled = n.args[0]
        elif not enabled and (needs_gradient(n) or n.target is operator.setitem and needs_gradient(n.args[0])):
            # What is computed here has no gradient; what is written to keeps its.
            return f"writes to {n.name} without gradient"
    stops = [n for n in graph.nodes if n.op != "placeholder" and loses_gradient(n)]
    written = [n for n in graph.nodes if is_written(n)]
    if stops and written:
        return f"has gradients that stop at {stops[0].name} and writes to {written[0].name}"
    for n in stops:
        with graph.inserting_after(n):
            stop = graph.call_function(torch.ops.kiln.stop_gradient.default, (n,))
        stop.meta["example_value"] = example(n)
        n.replace_all_uses_with(stop, delete_user_cb=lambda user: user is not stop and user.op != "output")
        if not stop.users:
            graph.erase_node(stop)
    if stops:
        module.recompile()
    return None


class Unbuilt(torch.nn.Module):
    """A part of a joint graph, before it is compiled."""

    def __init__(self, part: _kiln.Part, ops: int):
        super().__init__()
        self.part, self.ops = part, ops
        self.program = None
        """Its program, once it is compiled."""

    def __deepcopy__(self, memo):
        return self

    def __getstate__(self):
        return {**vars(self), "program": None}


def unbuilt_call(module: GraphModule) -> torch.fx.Node | None:
    """The call of a part of a joint graph, if the graph is one."""
    calls = module.graph.find_nodes(op="call_module")
    return next((n for n in calls if isinstance(module.get_submodule(n.target), Unbuilt)), None)


def is_static(val) -> bool:
    return isinstance(val, torch.Tensor) and all(isinstance(n, int) for n in (*val.shape, *val.stride()))


@dataclasses.dataclass
class Signature:
    """What a joint graph computes, by nodes."""

    primals: list[torch.fx.Node]
    tangents: list[torch.fx.Node]
    results: list
    """Of the forward pass: tensors, numbers or None."""
    descriptions: list
    """Of these results, by AOTAutograd."""
    copies: list[torch.fx.Node]
    """Writes to primals."""
    gradients: list
    """One for each primal, or None."""
    gradient_descriptions: list

    @staticmethod
    def of(joint: GraphModule, returned: int) -> Signature:
        output = next(iter(joint.graph.find_nodes(op="output")))
        results, descriptions = list(output.args[0]), output.meta.get("desc")
        if descriptions is None:
            raise Refused("this version of PyTorch does not say which result a cotangent belongs to")
        given = joint.graph.find_nodes(op="placeholder")
        for n in given:
            val = n.meta["val"]
            if not is_static(val):
                raise Refused(f"has sizes that are dynamic, at {n.name}")
            if val.dtype not in NAMES or val.is_neg():
                raise Refused(f"has an argument of {val.dtype}, {n.name}")
        tangents = [n for n in given if "tangents" in n.target]
        primals = [n for n in given if n not in tangents]
        copies = joint.graph.find_nodes(op="call_function", target=COPY)
        if any(n.args[0] not in primals for n in copies):
            raise Refused("writes to what is no argument")
        return Signature(primals, tangents, results[:returned], descriptions[:returned], copies, results[returned:], descriptions[returned:])

    def wanted(self) -> list[torch.fx.Node]:
        """The values that the forward pass computes for its results and writes."""
        values = [n.args[1] if n in self.copies else n for n in (*self.results, *self.copies) if isinstance(n, torch.fx.Node)]
        return [n for n in dict.fromkeys(values) if n.op == "call_function"]

    def places(self, wanted: list[torch.fx.Node]) -> list[int]:
        """For each tangent its result's place among `wanted`."""
        found = []
        for t in self.tangents:
            of = getattr(t.meta.get("desc"), "output", None)
            place = next((k for k, d in enumerate(self.descriptions) if d == of), None)
            if place is None or self.results[place] not in wanted:
                raise Refused(f"has a cotangent, {t.name}, of no result that it computes")
            found.append(wanted.index(self.results[place]))
        return found


class Forward:
    """The nodes that values depend on, as a graph of their own, in the form that kiln reads."""

    def __init__(self, joint: GraphModule, wanted: list[torch.fx.Node]):
        needed, waiting = set(), list(wanted)
        while waiting:
            n = waiting.pop()
            if n not in needed:
                needed.add(n)
                waiting += n.all_input_nodes
        graph, copies = torch.fx.Graph(), {}
        for n in joint.graph.nodes:
            if n not in needed:
                continue
            if n.op == "placeholder" and "tangents" in n.target:
                raise Refused(f"has results of its gradients, by {n.name}")
            if n.target in OTHER_GRADIENTS:
                raise Refused(f"has {n.target}, whose derivative is not that of what it computes")
            copies[n] = graph.node_copy(n, copies.__getitem__)
            if n.op == "get_attr":
                copies[n].meta.setdefault("val", getattr(joint, n.target))
        graph.output(tuple(copies[n] for n in wanted))
        self.module = GraphModule(joint, graph)
        self.inputs = {copies[n]: n for n in joint.graph.nodes if n in needed and n.op in ("placeholder", "get_attr")}
        """Of the joint graph, by their copies."""
        canonicalise(graph)

    @property
    def outputs(self) -> list[torch.fx.Node]:
        return list(next(iter(self.module.graph.find_nodes(op="output"))).args[0])

    def joint(self, wrt: list[torch.fx.Node], results: list[int], budget: float, autocast: str) -> dict:
        """kiln's joint graph, partitioned. `wrt` are nodes of AOTAutograd's joint graph."""
        graph, device = self.module.graph, device_of(self.module)
        if return_views(graph):
            raise Refused("returns views of its arguments or of other results")
        given = [*self.inputs.values()]
        places = [given.index(n) if n in given else None for n in wrt]
        if None in places:
            raise Refused("has a gradient by an argument that it does not read")
        while True:
            _, left = runs_of(self.module, device, {})
            if left:
                name, why = next(iter(left.items()))
                raise Refused(f"has {name}, which {why}")
            calls = [n for n in graph.nodes if n.op == "call_function"]
            outputs = self.outputs
            try:
                json = serialise([*self.inputs], calls, outputs, [None] * len(outputs), frozen={})
                return {**_kiln.joint(json, places, results, budget, autocast), "ops": len(calls)}
            except _kiln.UnsupportedError as error:
                message, unsupported, _ = error.args
                found = [n for n in calls if n.name in unsupported]
                if not found or not all([decompose(n) for n in found]):
                    raise Refused(message) from error
            except (_kiln.CompileError, Unserialisable) as error:
                raise Refused("; ".join(str(error).splitlines())) from error


class Builder:
    """A graph that calls one part of a joint graph."""

    def __init__(self, joint: GraphModule):
        self.joint, self.graph, self.copies = joint, torch.fx.Graph(), {}

    def copy(self, node: torch.fx.Node) -> torch.fx.Node:
        """An argument of the graph, or a constant."""
        if node not in self.copies:
            self.copies[node] = copy = self.graph.node_copy(node)
            if node.op == "get_attr":
                copy.meta.setdefault("val", getattr(self.joint, node.target))
        return self.copies[node]

    def call(self, made: dict, part: str, inputs: list[torch.fx.Node], values: list[torch.Tensor]) -> list[torch.fx.Node]:
        """The results of the part."""
        self.part = Unbuilt(made[part], made["ops"])
        call = self.graph.call_module("kiln_0", tuple(inputs))
        if len(values) == 1:
            call.meta["val"] = values[0]
            return [call]
        call.meta["val"] = tuple(values)
        items = [self.graph.call_function(operator.getitem, (call, k)) for k in range(len(values))]
        for item, val in zip(items, values):
            item.meta["val"] = val
        return items

    def module(self, results: list, descriptions: list) -> GraphModule:
        output = self.graph.output(tuple(results))
        output.meta["desc"] = descriptions
        used = {n.target for n in self.graph.nodes if n.op == "get_attr"}
        attributes = {name: getattr(self.joint, name) for name in used}
        return GraphModule({**attributes, "kiln_0": self.part}, self.graph)


def split(joint: GraphModule, returned: int, budget: float, autocast: str = "off") -> tuple[GraphModule, GraphModule]:
    """The forward and the backward graph, each a call of one program of kiln's, of a joint graph whose first `returned` results are the forward
    pass's. Raises [`Refused`]."""
    from torch._functorch._aot_autograd.descriptors import SavedForBackwardsAOTOutput

    signature = Signature.of(joint, returned)
    wanted = signature.wanted()
    forward = Forward(joint, wanted)
    wrt = [n for n, g in zip(signature.primals, signature.gradients) if g is not None]
    if not wrt or not wanted:
        raise Refused("computes no gradient")
    made = forward.joint(wrt, signature.places(wanted), budget, autocast)
    given = [*forward.inputs.values()]

    like = next(n.meta["val"] for n in wanted)
    saved_values = [s for s in made["saved"] if s[0] == "value"]
    if any(None in shape for _, _, shape in saved_values):
        raise Refused("saves a tensor whose size depends on data")
    with like.fake_mode:
        fakes = [torch.empty(shape, dtype=DTYPES[dtype], device=like.device) for _, dtype, shape in saved_values]

    front = Builder(joint)
    for n in signature.primals:
        front.copy(n)
    results = front.call(made, "forward", [front.copy(n) for n in given], [n.meta["val"] for n in wanted] + fakes)
    value_of = dict(zip(wanted, results))
    copied = {}
    for n in signature.copies:
        target, value = n.args[:2]
        copied[n] = front.graph.call_function(COPY, (front.copy(target), value_of.get(value) or front.copy(value)))
        copied[n].meta = {**n.meta}
    outputs = []
    for n in signature.results:
        outputs.append(n if not isinstance(n, torch.fx.Node) else copied[n] if n in copied else value_of.get(n) or front.copy(n))

    back, saved, takes = Builder(joint), [], []
    values = iter(results[len(wanted) :])
    for kind, *what in made["saved"]:
        if kind == "argument" and what[0] >= len(given):
            raise Refused(STATE)
        if kind == "argument" and given[what[0]].op == "get_attr":
            takes.append(back.copy(given[what[0]]))
            continue
        node = front.copy(given[what[0]]) if kind == "argument" else results[what[0]] if kind == "result" else next(values)
        if node not in saved:
            saved.append(node)
        takes.append(node)
    placeholders = {}
    for node in saved:
        placeholders[node] = back.graph.placeholder(node.name)
        placeholders[node].meta["val"] = node.meta["val"]
    takes = [placeholders.get(n, n) for n in takes] + [back.copy(n) for n in signature.tangents]
    gradients = iter(back.call(made, "backward", takes, [n.meta["val"] for n in signature.gradients if n is not None]))
    first = front.module([*outputs, *saved], [*signature.descriptions, *map(SavedForBackwardsAOTOutput, range(len(saved)))])
    second = back.module([None if n is None else next(gradients) for n in signature.gradients], signature.gradient_descriptions)
    return first, second


class JointGraph:
    """What kiln makes of one frame's joint graph."""

    def __init__(self, module: GraphModule, autocast: str, eager_random: bool):
        self.autocast = autocast
        self.refused = "draws eager's random numbers" if eager_random else state_stops(module)
        """Why autograd's gradients are used."""
        self.backward: GraphModule | None = None
        self.failed: str | None = None
        """Why a part did not compile."""

    def split(self, joint: GraphModule, returned: int) -> tuple[GraphModule, GraphModule] | None:
        """The forward and the backward graph; None where autograd's gradients are used."""
        if self.refused is None:
            try:
                forward, self.backward = split(joint, returned, torch._functorch.config.activation_memory_budget, self.autocast)
                return forward, self.backward
            except Refused as refused:
                self.refused = str(refused)
        log.info("gradients are autograd's: %s", self.refused)
        return None

    @property
    def report(self) -> str:
        """For [`Report.gradients`] of a graph that is none of kiln's parts."""
        return f"autograd's, since the graph {self.refused}" if self.refused else ""

"""The backend: graphs of Dynamo through AOTAutograd, then kiln programs."""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import weakref

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import dynamo_timed
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import _kiln
from . import cache
from . import freezing
from . import channels_last
from . import convolutions
from . import loss_heads
from . import random_order
from .attention import keep_whole
from .canonical import canonicalise
from .cudagraphs import CudaGraphs
from .decompositions import decompose, is_random, table
from .direct import direct, is_whole
from .donation import Donation, allow_kept_graphs
from .graph import Unserialisable, is_item
from .joint import JointGraph, unbuilt_call
from .memory import partition, shorter
from .package import as_text
from .partition import device_of, faster_in_eager, restore_order, runs_of
from .program import Program
from .runner import Code, Direct, Piece, runner
from .sizes import supply
from .threads import share_by_default
from .views import RETURNED, return_views
from .writes import Writes, writes_in_graph

log = logging.getLogger("kiln_torch")
TORCH = os.path.join(os.path.dirname(torch.__file__), "")


@dataclasses.dataclass
class Report:
    """What became of one graph."""

    kind: str
    nodes: int = 0
    programs: int = 0
    kernels: int = 0
    eager: dict[str, str] = dataclasses.field(default_factory=dict)
    """Nodes that stay eager: overload and source line, with the reason."""
    compiled: list[weakref.ref] = dataclasses.field(default_factory=list, repr=False)
    """The programs; a report keeps none alive."""
    gradients: str = ""
    """With `joint_graph`: `kiln's`, or why they are autograd's."""

    def launches(self) -> list[list[tuple[str, str, list[str]]]]:
        """For each program that lives, the kernels that it launches: name, strategy, ops."""
        return [program.launches() for ref in self.compiled if (program := ref())]

    def remarks(self) -> list[str]:
        """What passes did or missed, such as casts, and what does not run on the GPU as planned, each once."""
        return list(dict.fromkeys(text for ref in self.compiled if (program := ref()) for text in program.remarks()))

    @property
    def pictures(self) -> list[str]:
        """For each program that lives, its launches as SVG."""
        return [program.svg() for ref in self.compiled if (program := ref())]


reports: list[Report] = []
"""Of the graphs compiled in this process, the newest last; `explain` reads them."""


def note(report: Report, programs: list[Program]):
    """Adds what became of a graph of these programs."""
    reports.append(report)
    report.compiled = [weakref.ref(program.compiled) for program in programs]


def source(node: torch.fx.Node) -> str:
    """The last line of the user's code that a node comes from, not one of PyTorch's own."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip().startswith("File ")]
    lines = [line for line in lines if not line.startswith(f'File "{TORCH}')] or lines
    return lines[-1] if lines else "unknown place"


def compile_graph(kind: str, chosen: Settings, module: torch.fx.GraphModule, frozen, written: list[int], donation: Donation, gradients: str = ""):
    """Compiles one graph of AOTAutograd: how it is called, and its report. `frozen`: the values of its inputs that are constants. `written`: the
    arguments whose values its last results are. `gradients`: as in its report."""
    if (call := unbuilt_call(module)) is not None:
        return compile_part(kind, chosen, module, call, written, donation)
    if not any(n.op == "call_function" for n in module.graph.nodes):
        return Code(module), None
    names = [getattr(n, "name", "") for n in next(n for n in module.graph.nodes if n.op == "output").args[0]]
    canonicalise(module.graph)
    device = device_of(module)
    if device.type in convolutions.DEVICES:
        convolutions.sum_biases(module.graph)
        convolutions.split_computed(module.graph)
    if kind == "backward":
        loss_heads.scale_in_place(module.graph, donation.saved)
    refused = dict.fromkeys(return_views(module.graph, saved_only(kind, module.graph, len(written))), RETURNED)
    refused |= dict.fromkeys((n.name for n in module.graph.find_nodes(op="call_function", target=loss_heads.scaled)), loss_heads.IN_PLACE)
    if not chosen.strict:
        refused |= faster_in_eager(module.graph, device)
    aligned = chosen.align_random and device.type in random_order.DEVICES
    if aligned:
        chosen = dataclasses.replace(chosen, options=[*chosen.options, ("align_random_eager", random_order.gpu_threads(device))])
        refused |= random_order.out_of_order(module.graph)
    if chosen.fallback_random or chosen.align_random and not aligned:
        option = "fallback_random" if chosen.fallback_random else "align_random_eager"
        refused |= {n.name: f"draws from PyTorch's generator ({option})" for n in module.graph.nodes if is_random(n.target)}
    while True:
        try:
            return compile_runs(kind, chosen, module, refused, frozen, written, donation, names, gradients)
        except _kiln.UnsupportedError as error:
            message, unsupported, reason = error.args
            log.info("not supported: %s", message)
            found = [n for n in module.graph.nodes if n.op == "call_function" and n.name in unsupported]
            # PyTorch's decomposition of a call that a row refuses is better than eager.
            refused |= {n.name: reason for n in found if not decompose(n)}


# Ops of PyTorch that take tensors of any strides, and whose results' strides are those of the graph whatever they are.
ANY_STRIDES = (
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_backward.default,
)


# Why nodes stay eager that compute nothing, or only write to memory that PyTorch keeps.
NO_OPS = (RETURNED, loss_heads.IN_PLACE)


def saved_only(kind: str, graph: torch.fx.Graph, written: int) -> set[torch.fx.Node]:
    """The results that a forward graph saves for the backward one, and does not give the user or write to an argument."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if kind == "forward" and context is not None else None
    if metadata is None or any(type(m).__name__ == "SubclassCreationMeta" for m in metadata.subclass_fw_graph_out_meta):
        return set()
    results = list(next(n for n in graph.nodes if n.op == "output").args[0])
    first, last = len(metadata.tokens) + metadata.num_forward_returns, len(results) - written
    nodes = lambda some: {n for n in some if isinstance(n, torch.fx.Node)}
    return nodes(results[first:last]) - nodes(results[:first]) - nodes(results[last:])


def dense_results(call: torch.fx.Node, count: int, saved: set[torch.fx.Node]) -> set[int]:
    """Which results of a program need not have the gaps in memory that a graph states: those that only attention of PyTorch's reads,
    now or in the backward graph. These are the queries, keys and values that models slice out of one product."""
    values = {user.args[1]: user for user in call.users} if count > 1 else {0: call}

    def only_attention(value: torch.fx.Node) -> bool:
        ops = [user for user in value.users if user.op != "output"]
        leaves = len(ops) < len(value.users)
        return bool(ops) and all(user.target in ANY_STRIDES for user in ops) and (not leaves or value in saved)

    return {k for k, v in values.items() if only_attention(v)}


def private_results(call: torch.fx.Node, outputs: list[torch.fx.Node], saved: set[torch.fx.Node]) -> set[torch.fx.Node]:
    """The results of a program that no user sees: other programs and ops of PyTorch read them, or a forward graph saves them."""
    values = {user.args[1]: user for user in call.users} if len(outputs) > 1 else {0: call}
    seen = set(next(n for n in call.graph.nodes if n.op == "output").all_input_nodes) - saved
    return {o for k, o in enumerate(outputs) if k in values and values[k] not in seen}


def compile_runs(kind, chosen, module, refused, frozen, written, donation, names, gradients):
    nodes = {n.name: n for n in module.graph.nodes}
    device = device_of(module)
    runs, left = runs_of(module, device, refused, chosen.align_random)
    if kind == "backward":
        runs = shorter(runs)
    counted = [n for n in module.graph.nodes if n.op == "call_function" and refused.get(n.name) not in NO_OPS]
    report = Report(kind, nodes=len(counted), programs=len(runs), gradients=gradients)
    for name, why in left.items():
        if "computes sizes" in why or why in NO_OPS:
            continue
        report.eager[f"{nodes[name].target} at {source(nodes[name])}"] = why
        log.info("eager: %s: %s: %s", nodes[name].target, source(nodes[name]), why)
    if chosen.strict and report.eager:
        listed = "\n".join(f"  {op}: {why}" for op, why in report.eager.items())
        raise RuntimeError(f"kiln.strict: these ops would run in eager:\n{listed}")
    graph, mapping = torch.fx.Graph(), {}
    graph.output(graph.graph_copy(module.graph, mapping))
    for n, copy in mapping.items():
        copy.meta["kiln_origin"] = n.name
    for n in graph.nodes:
        if n.op == "get_attr":
            n.meta.setdefault("val", getattr(module, n.target))
    programs = {mapping[n] for run in runs for n in run}
    if device.type in channels_last.DEVICES:
        channels_last.relay(graph, programs, saved_only(kind, graph, len(written)))
    fused = fuse_by_partitions(torch.fx.GraphModule(module, graph), [dict.fromkeys(mapping[n] for n in run) for run in runs], prefix="kiln_")
    places = {name: k for k, name in enumerate(nodes)}
    restore_order(fused, places, chosen.align_random)
    values, saved = {n.name: t for n, t in frozen.items()}, saved_only(kind, fused.graph, len(written))
    for call in [n for n in fused.graph.nodes if n.op == "call_module" and n.target.startswith("kiln_")]:
        part = getattr(fused, call.target)
        supply(call, part)
        inputs = [n for n in part.graph.nodes if n.op == "placeholder"]
        constants = {n: values[g.name] for n, g in zip(inputs, call.args) if g.name in values}
        calls = [n for n in part.graph.nodes if n.op == "call_function"]
        if chosen.align_random:
            # The fuser sorts topologically, which does not keep the order of draws.
            calls.sort(key=lambda n: places.get(n.meta.get("kiln_origin"), -1))
        outputs = next(n for n in part.graph.nodes if n.op == "output").args[0]
        outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
        try:
            dense, private = dense_results(call, len(outputs), saved), private_results(call, outputs, saved)
            last, of_forward = donation.of(call, kind)
            donated = {n for n, given in zip(inputs, call.args) if given in last}
            new = donation.updates(call, written)
            updates = {n: outputs[new[given].args[1] if new[given] is not call else 0] for n, given in zip(inputs, call.args) if given in new}
            aligned = chosen.align_random and device.type in random_order.DEVICES
            program = Program(inputs, calls, outputs, chosen.options, device, constants, part.forward, dense, private, donated, of_forward, updates, aligned)
        except (_kiln.CompileError, Unserialisable) as error:
            message, named, reason = error.args if isinstance(error, _kiln.UnsupportedError) else (str(error), [getattr(error, "node", "")], str(error))
            unsupported = [n.meta["kiln_origin"] for n in calls if n.name in named]
            if unsupported:
                raise _kiln.UnsupportedError(message, unsupported, reason) from error
            # A defect of the compiler costs speed, not the call.
            log.warning("%d ops stay eager, since kiln failed: %s", len(calls), message)
            for n in calls:
                report.eager[f"{n.target} at {source(n)}"] = f"kiln failed: {message.splitlines()[0]}"
            report.programs -= 1
            if chosen.strict or chosen.debugged:
                raise
            continue
        report.kernels += program.kernels
        setattr(fused, call.target, Piece(program))
    fused.recompile()
    channels_last.tell_backward(fused.graph, saved, len(written))
    return called(kind, fused, names, saved, donation, report)


def called(kind: str, fused: torch.fx.GraphModule, names: list[str], saved: set[torch.fx.Node], donation: Donation, report: Report) -> tuple[Direct | Code, Report]:
    """How a graph is called whose programs are compiled. `names` and `saved` are of its results."""
    if kind == "forward":
        donation.tell(names, fused.graph, saved)
    found = runner(fused)
    note(report, found.programs)
    return found, report


def program_of_part(kind: str, chosen: Settings, module: torch.fx.GraphModule, donation: Donation) -> Program:
    """The program of the part of a joint graph that a graph calls."""
    call = unbuilt_call(module)
    unbuilt = module.get_submodule(call.target)
    if unbuilt.program is None:
        items = {user.args[1]: user for user in call.users if is_item(user)}
        outputs = [items[k] for k in sorted(items)] or [call]
        last, of_forward = donation.of(call, kind)
        unbuilt.program = Program(list(call.args), unbuilt.part, outputs, chosen.options, outputs[0].meta["val"].device, {}, None, donated=last, saved=of_forward)
    return unbuilt.program


def compile_part(kind: str, chosen: Settings, module: torch.fx.GraphModule, call: torch.fx.Node, written: list[int], donation: Donation):
    """Compiles a graph that calls one part of a joint graph."""
    unbuilt = module.get_submodule(call.target)
    results = next(n for n in module.graph.nodes if n.op == "output").args[0]
    names = [getattr(n, "name", "") for n in results]
    program = program_of_part(kind, chosen, module, donation)
    setattr(module, call.target, Piece(program))
    report = Report(kind, unbuilt.ops, 1, program.kernels, gradients="kiln's")
    return called(kind, module, names, saved_only(kind, module.graph, len(written)), donation, report)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options of one call of `torch.compile`."""

    options: list[tuple[str, str]]
    """kiln's, by name, as text."""
    strict: bool
    """Ops that would stay eager are an error."""
    freezing: bool
    cudagraphs: bool
    fallback_random: bool
    """Random numbers are eager's, since eager draws them."""
    align_random: bool
    """Random numbers on GPUs are eager's, drawn by programs where they can."""
    train_attention: bool
    """Attention with gradients is kiln's where it has kernels for these."""
    debugged: bool = False
    """A failure of the compiler is an error, for PyTorch's minifier."""
    chunk_bytes: int = loss_heads.LIMIT
    """Bytes of a product that is stored as a whole."""
    joint_graph: bool | None = None
    """Gradients and the partition of training graphs are kiln's; None: of networks of convolutions on Hopper."""


def settings(options: dict | None, mode: str | None, debugged: bool = False) -> Settings:
    """The options of a call, with the defaults of its mode."""
    given = {name.removeprefix("kiln."): value for name, value in (options or {}).items()}
    switches = {"strict": False, "freezing": False, "fallback_random": False, "align_random_eager": False, "train_attention": True}
    strict, frozen, fallback, align, attention = (bool(given.pop(name, default)) for name, default in switches.items())
    joint = given.pop("joint_graph", None)
    mode = given.setdefault("mode", mode or "default")
    graphs = bool(given.pop("cudagraphs", mode in ("reduce-overhead", "max-autotune")))
    given.setdefault("threads", torch.get_num_threads())
    # A graph is captured as a whole, programs and eager ops, by PyTorch.
    given["cudagraphs"] = False
    limit = loss_heads.parse_bytes(given.get("chunk_bytes", loss_heads.LIMIT))
    return Settings(as_text(given), strict, frozen, graphs, fallback, align, attention, debugged, limit, joint)


def kiln(module: torch.fx.GraphModule, example_inputs, *, options: dict | None = None, mode: str | None = None):
    """`torch.compile(model, backend="kiln")`.

    Options are those of `kiln options` by name, `kiln.strict`: ops that would run in eager are an error, and `freezing`: parameters and
    buffers are constants of graphs without gradients, so that later changes of them are not seen, `fallback_random`: random
    numbers are drawn by PyTorch, in eager's order, and `align_random_eager`: programs on GPUs draw eager's random numbers, and
    `train_attention`, which is true by default: attention with gradients is kiln's where it has kernels for these, else PyTorch's, and
    `joint_graph`: kiln differentiates and partitions training graphs; by default networks of convolutions, or of linear layers, on Hopper GPUs. With
    `mode="reduce-overhead"` and `mode="max-autotune"` graphs on GPUs are captured as CUDA graphs.
    """
    share_by_default()
    debugged = torch._dynamo.config.repro_after is not None
    chosen = settings(options, mode, debugged)
    parameters = freezing.parameters(module, example_inputs) if chosen.freezing else {}
    captured = CudaGraphs(example_inputs) if chosen.cudagraphs else None
    own = None
    trains = torch.is_grad_enabled() and not debugged
    if trains and (chosen.joint_graph or chosen.joint_graph is None and captured is None and convolutions.are_whole(module)):
        own = JointGraph(module, dict(chosen.options).get("autocast", "off"), chosen.fallback_random or chosen.align_random)
    compiled = functools.partial(compile_frame, module, example_inputs, chosen, {**(options or {}), **({"mode": mode} if mode else {})}, parameters, captured)
    if own is None or chosen.joint_graph or chosen.strict:
        return compiled(own)
    # Nobody asked for kiln's gradients: where they do not compile, autograd's are used.
    before = len(reports)
    try:
        fn = compiled(own)
    except Exception:
        if own.failed is None:
            raise
    if own.failed is None:
        return fn
    log.warning("gradients are autograd's, since kiln failed: %s", own.failed)
    del reports[before:]
    return compiled(None)


def compile_frame(module: torch.fx.GraphModule, example_inputs, chosen: Settings, given: dict, parameters: dict, captured: CudaGraphs | None, own: JointGraph | None):
    """Compiles a frame of Dynamo's through AOTAutograd. `given` are the options as the user wrote them; with `own` gradients are kiln's."""
    # What a CUDA graph saves is not written from outside of it; the minifier calls a graph several times.
    donation = Donation(captured is None and not chosen.debugged)

    def compiler(kind):
        def compiled(gm, inputs):
            if kind == "backward":
                channels_last.listen(gm.graph, inputs)
                allow_kept_graphs()
            constants = freezing.of_graph(gm, parameters, len(example_inputs)) if parameters and kind == "inference" else {}
            writes = Writes(gm)
            part = own is not None and unbuilt_call(gm) is not None
            try:
                # PyTorch's table of compile times has it under this name.
                with dynamo_timed("kiln_compile"):
                    found, report = compile_graph(kind, chosen, gm, constants, writes.targets, donation, own.report if own else "")
                    if part and kind == "forward" and not chosen.joint_graph:
                        # AOTAutograd asks for it in the backward pass, when it is too late for other gradients.
                        program_of_part("backward", chosen, own.backward, donation)
            except _kiln.CompileError as error:
                if part:
                    own.failed = str(error).splitlines()[0]
                raise
            gpu = captured and device_of(gm).type == "cuda"
            capture = captured.of(kind, gm, inputs, found.programs) if gpu else None
            whole = is_whole(kind, found, gm.graph.find_nodes(op="placeholder"), example_inputs)
            return cache.CompiledGraph(found, writes, capture, report, whole).build()

        if torch._dynamo.config.repro_after == "aot":
            from . import repro

            return repro.debugged(compiled, given)
        return cache.kept(compiled) if keep else compiled

    keep = cache.is_possible() and not parameters and not chosen.debugged
    whole = own is not None and own.refused is None
    attention = sdpa_kernel(SDPBackend.MATH) if whole else contextlib.nullcontext()
    with attention, cache.keyed((chosen, whole)) if keep else contextlib.nullcontext():
        fn = aot_autograd(
            fw_compiler=compiler("forward"),
            bw_compiler=compiler("backward"),
            inference_compiler=compiler("inference"),
            decompositions=table(chosen.fallback_random or chosen.align_random, whole_norms=whole),
            partition_fn=functools.partial(partition, limit=chosen.chunk_bytes, own=own.split if own else None),
            keep_inference_input_mutations=writes_in_graph(example_inputs),
        )(keep_whole(module, chosen.train_attention), example_inputs)
    return fn if chosen.debugged else direct(fn)


# By which scripts of PyTorch's minifier find the backend, also where it was given as a function.
kiln.compiler_name = "kiln"

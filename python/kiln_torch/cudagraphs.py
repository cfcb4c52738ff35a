"""`mode="reduce-overhead"` on GPUs: CUDA graphs of whole compiled graphs, in PyTorch's CUDA graph trees.

The trees keep one memory pool for all graphs of the process and track which outputs are alive. kiln's programs take part
since all memory of a call is PyTorch's, and nothing in it waits for the GPU. Graphs with factorizations on the host do wait, and are not
captured; nor are those whose random numbers are eager's, since PyTorch shows no kernel but its own the state of a captured generator.
"""
from __future__ import annotations

import dataclasses
import logging

import torch

from .runner import as_boxed

log = logging.getLogger("kiln_torch")


@dataclasses.dataclass
class Captured:
    """How one graph is captured. It can be pickled."""

    kind: str
    device: int
    arguments: list[int | None]
    """None for tensors, a number for sizes, for each of which another graph is captured."""
    static_inputs: list[int]
    """The inputs whose memory the CUDA graph reads, instead of a copy of them."""
    stack_traces: list
    placeholders: list
    mutated_inputs: list[int]

    def wrap(self, fn):
        """`fn`, a compiled graph, captured at its second call."""
        from torch._inductor.cudagraph_trees import cudagraphify_impl

        run = cudagraphify_impl(
            fn,
            self.arguments,
            self.static_inputs,
            device_index=self.device,
            is_backward=self.kind == "backward",
            is_inference=self.kind == "inference",
            stack_traces=self.stack_traces,
            placeholders=self.placeholders,
            mutated_input_idxs=self.mutated_inputs,
        )
        return as_boxed(run)


@dataclasses.dataclass
class AfterCaptured:
    """A backward graph that is not captured, of a forward graph that is, whose memory may be used again after it."""

    device: int

    def wrap(self, fn):
        from torch._inductor.cudagraph_trees import get_manager

        def run(inputs):
            manager = get_manager(self.device, create_if_none_exists=False)
            if manager is not None:
                manager.set_to_running_backward()
            return fn(inputs)

        return as_boxed(run)


class CudaGraphs:
    """The forward and backward graph of one compiled frame."""

    def __init__(self, dynamo_inputs):
        self.dynamo_inputs = len(dynamo_inputs)
        self.device = None
        """The GPU of the forward graph, if it is captured."""

    def of(self, kind: str, module: torch.fx.GraphModule, inputs, programs) -> Captured | AfterCaptured | None:
        """How the compiled `module` of these programs is captured."""
        from torch._dynamo.backends.cudagraphs import check_for_skip, find_input_mutations, get_device_index, get_stack_traces
        from torch._inductor.cudagraph_utils import get_placeholder_info
        from torch._inductor.utils import count_tangents, num_fw_fixed_arguments

        backward = kind == "backward"
        fixed = count_tangents(module) if backward else num_fw_fixed_arguments(self.dynamo_inputs, len(inputs))
        skipped = self.uncapturable(programs) or check_for_skip(module, fixed)
        if skipped or backward and self.device is None:
            log.info("no CUDA graph of a %s graph: %s", kind, skipped or "its forward graph has none")
            return AfterCaptured(self.device) if backward and self.device is not None else None
        device = get_device_index(module)
        if not backward:
            self.device = device
        return Captured(
            kind,
            device,
            [None if isinstance(x, torch.Tensor) else 0 for x in inputs],
            [*self.static_inputs(backward, fixed)],
            [*get_stack_traces(module)],
            [*get_placeholder_info(module.graph)],
            [*find_input_mutations(module.graph)],
        )

    @staticmethod
    def static_inputs(backward: bool, fixed: int):
        """The first `fixed` inputs, and parameters and buffers, which are inputs of Dynamo's graphs. Where one has moved since, the graph is
        captured again."""
        context = torch._guards.TracingContext.try_get()
        if backward or context is None or context.fw_metadata is None:
            return range(fixed)
        return sorted({*range(fixed), *context.fw_metadata.static_input_indices})

    def uncapturable(self, programs) -> str | None:
        """Why a CUDA graph of these programs would be wrong."""
        if any(program.compiled.calls_host() for program in programs):
            return "it calls functions of the host"
        if any(program.moves_generator for program in programs):
            return "it draws eager's random numbers (align_random_eager), from a state that the host reads"
        return None

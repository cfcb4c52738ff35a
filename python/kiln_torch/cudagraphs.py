"""`mode="reduce-overhead"` on GPUs: CUDA graphs of whole compiled graphs, in PyTorch's CUDA graph trees.

The trees keep one memory pool for all graphs of the process and track which outputs are alive. kiln's programs take part
since all memory of a call is PyTorch's, and nothing in it waits for the GPU. Graphs with factorizations on the host do wait, and are not
captured; nor are those whose random numbers are eager's, since PyTorch shows no kernel but its own the state of a captured generator.
"""
from __future__ import annotations

import logging

import torch

log = logging.getLogger("kiln_torch")


class CudaGraphs:
    """The forward and backward graph of one compiled frame."""

    def __init__(self, dynamo_inputs):
        self.dynamo_inputs = len(dynamo_inputs)
        self.device = None
        """The GPU of the forward graph, if it is captured."""

    def wrap(self, kind: str, module: torch.fx.GraphModule, inputs, fn):
        """`fn`, the compiled `module`, captured at its second call; `fn` itself with a remark if it cannot be captured."""
        from torch._dynamo.backends.cudagraphs import check_for_skip, find_input_mutations, get_device_index, get_stack_traces
        from torch._inductor.cudagraph_trees import cudagraphify_impl
        from torch._inductor.cudagraph_utils import get_placeholder_info
        from torch._inductor.utils import count_tangents, num_fw_fixed_arguments

        backward = kind == "backward"
        fixed = count_tangents(module) if backward else num_fw_fixed_arguments(self.dynamo_inputs, len(inputs))
        skipped = self.uncapturable(fn) or check_for_skip(module, fixed)
        if skipped or backward and self.device is None:
            log.info("no CUDA graph of a %s graph: %s", kind, skipped or "its forward graph has none")
            return self.without(fn) if backward and self.device is not None else fn
        device = get_device_index(module)
        if not backward:
            self.device = device
        out = cudagraphify_impl(
            fn,
            inputs,
            self.static_inputs(backward, fixed),
            device_index=device,
            is_backward=backward,
            is_inference=kind == "inference",
            stack_traces=get_stack_traces(module),
            placeholders=get_placeholder_info(module.graph),
            mutated_input_idxs=find_input_mutations(module.graph),
        )
        out._boxed_call = True
        return out

    @staticmethod
    def static_inputs(backward: bool, fixed: int):
        """The inputs whose memory a CUDA graph reads, instead of a copy of them: the first `fixed` ones, and parameters and buffers, which are
        inputs of Dynamo's graphs. Where one has moved since, the graph is captured again."""
        context = torch._guards.TracingContext.try_get()
        if backward or context is None or context.fw_metadata is None:
            return range(fixed)
        return sorted({*range(fixed), *context.fw_metadata.static_input_indices})

    def uncapturable(self, fn) -> str | None:
        """Why a CUDA graph of a compiled function would be wrong."""
        if getattr(fn, "calls_host", False):
            return "it calls functions of the host"
        if getattr(fn, "moves_generator", False):
            return "it draws eager's random numbers (align_random_eager), from a state that the host reads"
        return None

    def without(self, fn):
        """`fn` as the backward graph of a captured forward graph, whose memory may be used again after it."""
        from torch._inductor.cudagraph_trees import get_manager

        manager = get_manager(self.device, create_if_none_exists=False)

        def run(inputs):
            if manager is not None:
                manager.set_to_running_backward()
            return fn(inputs)

        run._boxed_call = True
        return run

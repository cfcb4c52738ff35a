"""Random numbers of programs in the order of PyTorch's CUDA kernels (`align_random_eager`)."""
from __future__ import annotations

import torch

from .decompositions import is_random
from .layout import empty, is_dense

DEVICES = {"cuda"}
"""Where programs draw eager's numbers."""

CTA = 256
"""Threads of a CTA of PyTorch's kernels."""
ALIGNMENT = 16
"""Bytes that dropout's kernel loads at once; of memory elsewhere it draws in another order."""
DROPOUT = torch.ops.aten.native_dropout.default


def gpu_threads(device: torch.device) -> str:
    """The threads that a GPU runs at once in CTAs of PyTorch's, as kiln's option has it."""
    gpu = torch.cuda.get_device_properties(device)
    return str(gpu.multi_processor_count * (gpu.max_threads_per_multi_processor // CTA) * CTA)


def generator(device: torch.device) -> torch.Generator:
    """PyTorch's default generator of a GPU."""
    torch.cuda.init()
    return torch.cuda.default_generators[device.index]


def is_row_major(t: torch.Tensor) -> bool:
    return empty(t) or is_dense(t, [*range(t.dim())])


def is_aligned(t: torch.Tensor) -> bool:
    """Whether a tensor begins where a vector may, in memory that begins so."""
    offset = t.storage_offset()
    return isinstance(offset, int) and offset * t.element_size() % ALIGNMENT == 0


def out_of_order(graph: torch.fx.Graph) -> dict[str, str]:
    """The nodes whose draws programs cannot repeat, with the reason: kernels go through memory, programs through indices."""
    found = {}
    for node in graph.nodes:
        if node.op != "call_function" or not is_random(node.target):
            continue
        val = node.meta.get("val")
        results = [v for v in (val if isinstance(val, (tuple, list)) else [val]) if isinstance(v, torch.Tensor)]
        operands = [n.meta["val"] for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
        if not all(map(is_row_major, results + operands)):
            found[node.name] = "draws in the order of memory, which is not row-major (align_random_eager)"
        elif node.target is DROPOUT and not all(map(is_aligned, operands)):
            found[node.name] = "draws in an order that the address of its operand gives (align_random_eager)"
    return found

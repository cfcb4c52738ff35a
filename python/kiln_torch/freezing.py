"""`options={"freezing": True}`: parameters and buffers as constants of inference graphs, packed and folded when the graph is compiled."""
from __future__ import annotations

import logging

import torch

log = logging.getLogger("kiln_torch")


def parameters(module: torch.fx.GraphModule, example_inputs) -> dict[int, torch.Tensor]:
    """The parameters and buffers of modules among the inputs of Dynamo's graph, by their index. None where gradients are recorded."""
    if torch.is_grad_enabled():
        log.info("freezing: gradients are recorded, so parameters stay inputs")
        return {}
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    known = lambda n, t: isinstance(t, torch.Tensor) and "_dynamo_static_input_type" in n.meta.get("tensor_dict", {})
    return {k: t for k, (n, t) in enumerate(zip(placeholders, example_inputs)) if known(n, t)}


def of_graph(module: torch.fx.GraphModule, parameters: dict[int, torch.Tensor], count: int) -> dict[torch.fx.Node, torch.Tensor]:
    """The parameters among the inputs of AOTAutograd's graph, where it kept Dynamo's `count` inputs and changes none of them."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    if len(placeholders) != count:
        log.info("freezing: AOTAutograd changed the inputs, so parameters stay inputs")
        return {}
    written = {a for n in module.graph.nodes if n.target is torch.ops.aten.copy_.default for a in n.args[:1]}
    chosen = {placeholders[k]: t for k, t in parameters.items()}
    same = lambda n, t: isinstance(n.meta["val"], torch.Tensor) and n.meta["val"].shape == t.shape and n.meta["val"].dtype == t.dtype and not t.is_complex()
    return {n: t for n, t in chosen.items() if same(n, t) and n not in written}

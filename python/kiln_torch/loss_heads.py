"""Losses over large products, such as logits of a vocabulary: the forward graph computes their gradients too.

What a forward graph saves for a backward graph is stored as a whole. Where both are in one graph, `kiln-chunk-rows` computes the product, the
loss and the gradients in chunks of rows, so that neither the logits nor their derivative are stored. The gradients are linear in the tangent of
a scalar loss: the forward graph computes them for a tangent of one and saves them, and the backward graph multiplies them by the tangent."""
from __future__ import annotations

import logging
import math
import re

import torch

from .donation import keeps_graph
from .views import is_view

log = logging.getLogger("kiln_torch")
aten = torch.ops.aten

LIMIT = 1 << 30
"""Bytes of a product that are stored as a whole: the default of the option `chunk_bytes`."""
IN_PLACE = "is a gradient that was computed ahead, scaled in place"
DTYPES = (torch.bfloat16, torch.float32, torch.float64)
"""Those in which a gradient for a tangent of one does not underflow where that for a scaled loss does not."""

PRODUCTS = {aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default, aten.convolution.default}
MOVES = {
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.t.default, aten.transpose.int, aten.permute.default, aten.alias.default,
    aten.detach.default, aten.clone.default, aten._to_copy.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default,
    torch.ops.prims.convert_element_type.default,
}
FIRST = MOVES | {
    aten.expand.default, aten.neg.default, aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.slice.Tensor, aten.select.int,
    aten.slice_backward.default, aten.select_backward.default, aten.gather.default, aten.div.Tensor, aten.div.Scalar, aten.mul.Scalar,
    aten._log_softmax_backward_data.default, aten._softmax_backward_data.default, aten.nll_loss_backward.default, aten.nll_loss2d_backward.default,
    aten.tanh_backward.default, aten.sigmoid_backward.default,
}
"""Ops that are linear in their first argument."""
EITHER = {aten.mul.Tensor, aten.mm.default, aten.bmm.default}
"""Ops that are linear in each of two arguments."""
SUMS = {aten.add.Tensor, aten.sub.Tensor}
ZEROS = {aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default}
FULL = {aten.full.default: 1, aten.full_like.default: 1, aten.scalar_tensor.default: 0, aten.new_full.default: 2}


def parse_bytes(text) -> int:
    """The bytes that an option states, such as `64M`."""
    found = re.fullmatch(r"\s*(\d+)\s*([KMGT]?)(?:I?B)?\s*", str(text).upper())
    # What is no number of bytes, the compiler refuses with a message.
    return int(found[1]) << 10 * " KMGT".index(found[2] or " ") if found else LIMIT


def elements(node: torch.fx.Node) -> int:
    """The number of elements, if it is static."""
    val = node.meta.get("val")
    known = isinstance(val, torch.Tensor) and all(isinstance(n, int) for n in val.shape)
    return math.prod(val.shape) if known else 0


def is_zero(value) -> bool:
    if not isinstance(value, torch.fx.Node):
        return value == 0
    at = FULL.get(value.target)
    return value.target in ZEROS or at is not None and len(value.args) > at and value.args[at] == 0


def is_linear(node: torch.fx.Node, depends: set[torch.fx.Node]) -> bool:
    """Whether a node is linear in those of its arguments that depend on the tangent."""
    own = [k for k, a in enumerate(node.args) if isinstance(a, torch.fx.Node) and a in depends]
    # None in a list or by name.
    if not own or {node.args[k] for k in own} != depends.intersection(node.all_input_nodes):
        return False
    target = node.target
    if target in FIRST:
        return own == [0]
    if target in EITHER:
        return len(own) == 1
    if target in SUMS:
        return own == [0, 1]
    if target is aten.where.self:
        return 0 not in own and all(k in own or is_zero(node.args[k]) for k in (1, 2))
    if target is aten.masked_fill.Scalar:
        return own == [0] and is_zero(node.args[2])
    if target is aten.constant_pad_nd.default:
        return own == [0] and (len(node.args) < 3 or is_zero(node.args[2]))
    if target in (aten.scatter.src, aten.scatter_add.default):
        return own in ([3], [0, 3]) and (0 in own or is_zero(node.args[0]))
    return False


def following(start: list[torch.fx.Node]) -> set[torch.fx.Node]:
    """The nodes that depend on some, these among them."""
    found, stack = set(start), list(start)
    while stack:
        new = set(stack.pop().users) - found
        found |= new
        stack.extend(new)
    return found


def reduces_rows(node: torch.fx.Node, most: int) -> bool:
    """Whether a node reduces rows of a tensor of so many elements: not each of its elements alone, nor all of them to one."""
    if node.target in (aten._log_softmax.default, aten._softmax.default):
        return True
    return 1 < elements(node) < most and not is_view(node) and any(elements(n) >= most for n in node.all_input_nodes)


def head(joint: torch.fx.Graph, returned: int, limit: int):
    """The tangent of a loss, the nodes between it and the gradients of a large product, and these gradients. Raises `LookupError`, with the reason,
    if there is none."""
    output = next(iter(joint.find_nodes(op="output")))
    tangents = [n for n in joint.find_nodes(op="placeholder") if n.name.startswith("tangents")]
    depends = following(tangents)
    products = [n for n in joint.nodes if n.target in PRODUCTS and n not in depends and elements(n) * n.meta["val"].element_size() > limit]
    if not products:
        raise LookupError("no product is large")
    product = max(products, key=elements)
    read, most = following([product]) - depends, elements(product)
    if not any(reduces_rows(n, most) for n in read):
        raise LookupError("nothing reduces the product's rows, by which it would be computed in chunks")
    if any(n.target in PRODUCTS for n in read - {product}):
        raise LookupError("another product reads the largest one")
    if any(elements(n) >= most for n in output.args[0][:returned] if n in read):
        raise LookupError("the product is a result")
    large = {n for n in depends if elements(n) >= most}
    if not large:
        raise LookupError("the product has no gradient")
    between, stack = set(large), list(large)
    while stack:
        new = {n for n in stack.pop().all_input_nodes if n in depends} - between
        between |= new
        stack.extend(new)
    given = [n for n in tangents if n in between]
    if len(given) != 1 or given[0].meta["val"].dim() != 0:
        raise LookupError("the loss is not one number")
    ends = {user for n in large for user in n.users} - between
    if output in ends:
        raise LookupError("the derivative of the product is a result")
    nodes = (between | ends) - set(given)
    for n in nodes:
        if n.target in PRODUCTS and n in between or not is_linear(n, depends):
            raise LookupError(f"{n.target} is not linear in the tangent")
        if not isinstance(n.meta.get("val"), torch.Tensor) or n.meta["val"].dtype not in DTYPES:
            raise LookupError("the gradient is of 16-bit floats of few exponents, and may underflow where the loss is not scaled")
    return given[0], nodes, ends


def compute_ahead(joint: torch.fx.GraphModule, returned: int, limit: int) -> int:
    """Gives a joint graph's forward results the gradients of a loss over a large product, for a tangent of one. Returns how many these are."""
    graph = joint.graph
    if limit <= 0:
        return 0
    try:
        tangent, nodes, ends = head(graph, returned, limit)
    except LookupError as why:
        log.info("gradients of a loss are not computed ahead: %s", why)
        return 0
    val = tangent.meta["val"]
    order = [n for n in graph.nodes if n in nodes]
    copies = {}
    with graph.inserting_before(order[0]):
        copies[tangent] = graph.call_function(aten.full.default, ([], 1.0), {"dtype": val.dtype, "device": val.device})
        copies[tangent].meta = {"val": val}
    for node in order:
        with graph.inserting_before(node):
            copies[node] = graph.node_copy(node, lambda n: copies.get(n, n))
        copies[node].meta.pop("partitioner_tag", None)
    ahead = []
    for node in [n for n in order if n in ends]:
        # Movements and conversions of the gradient come before the tangent: it is scaled last.
        last, made = node, copies[node]
        while len(last.users) == 1 and (user := next(iter(last.users))).target in MOVES and user.args[0] is last:
            with graph.inserting_before(user):
                made = graph.node_copy(user, lambda n, made=made, own=last: made if n is own else n)
            made.meta.pop("partitioner_tag", None)
            last = user
        with graph.inserting_before(last):
            product = graph.call_function(aten.mul.Tensor, (made, tangent))
        product.meta = {**last.meta}
        last.replace_all_uses_with(product)
        ahead.append(made)
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and (node in nodes or node.target in MOVES):
            graph.erase_node(node)
    output = next(iter(graph.find_nodes(op="output")))
    results = list(output.args[0])
    output.args = ((*results[:returned], *ahead, *results[returned:]),)
    if "desc" in output.meta:
        descriptions = list(output.meta["desc"])
        output.meta["desc"] = [*descriptions[:returned], *descriptions[:1] * len(ahead), *descriptions[returned:]]
    joint.recompile()
    return len(ahead)


def drop_results(forward: torch.fx.GraphModule, returned: int, count: int):
    """Drops from a forward graph's results what `compute_ahead` has added: what the backward graph reads of it is saved besides."""
    output = next(iter(forward.graph.find_nodes(op="output")))
    results = list(output.args[0])
    output.args = ((*results[:returned], *results[returned + count :]),)
    if "desc" in output.meta:
        descriptions = list(output.meta["desc"])
        output.meta["desc"] = [*descriptions[:returned], *descriptions[returned + count :]]
    forward.recompile()


def scaled(gradient: torch.Tensor, tangent: torch.Tensor) -> torch.Tensor:
    """A saved gradient times the tangent, in its memory where the graph is not kept."""
    return gradient * tangent if keeps_graph() else gradient.mul_(tangent)


def scale_in_place(graph: torch.fx.Graph, saved: set[str]):
    """Lets a backward graph scale gradients in the memory in which the forward graph has saved them. `saved`: what it may overwrite, by name."""
    for node in list(graph.find_nodes(op="call_function", target=aten.mul.Tensor)):
        gradient, tangent = node.args
        if not isinstance(tangent, torch.fx.Node) or tangent.op != "placeholder" or not tangent.name.startswith("tangents"):
            continue
        start = gradient
        while isinstance(start, torch.fx.Node) and start.op == "call_function" and is_view(start) and len(start.users) == 1:
            start = start.args[0]
        if not isinstance(start, torch.fx.Node) or start.name not in saved or len(start.users) != 1 or start.meta["val"].dtype != node.meta["val"].dtype:
            continue
        reader, views = next(iter(start.users)), [gradient.meta["val"], start.meta["val"]]
        with graph.inserting_before(reader):
            product = graph.call_function(scaled, (start, tangent))
        product.meta = {**start.meta}
        if reader is node or len({(v.shape, v.stride(), v.storage_offset()) for v in views}) == 1:
            node.replace_all_uses_with(product)
        else:
            # Views of the product are those of the gradient.
            reader.replace_input_with(start, product)
            node.replace_all_uses_with(gradient)
        while not node.users and node is not start:
            node, unused = node.args[0], node
            graph.erase_node(unused)

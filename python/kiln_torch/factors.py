"""LU factors of determinants as PyTorch's derivatives read them: those of the transposed matrix where the matrix is real and contiguous."""
from __future__ import annotations

import torch

from .graph import is_item

aten = torch.ops.aten
# Where the factors and pivots are among the results.
FACTORED = {aten._linalg_det.default: (1, 2), aten._linalg_slogdet.default: (2, 3)}


def factor_transposed(graph: torch.fx.Graph):
    """Takes the determinant of the transpose where the factors are read."""
    for node in [n for n in graph.nodes if n.op == "call_function" and n.target in FACTORED]:
        matrix = node.args[0]
        value = matrix.meta["val"]
        is_read = any(is_item(n) and n.args[1] in FACTORED[node.target] for n in node.users)
        if is_read and value.is_contiguous() and not value.is_complex():
            with graph.inserting_before(node):
                transposed = graph.call_function(aten.transpose.int, (matrix, -2, -1))
            transposed.meta["val"] = value.transpose(-2, -1)
            node.replace_input_with(matrix, transposed)

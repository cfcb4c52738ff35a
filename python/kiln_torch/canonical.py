"""Graphs of AOTAutograd in the form that kiln reads."""
from __future__ import annotations

import torch

from .decompositions import conversions_as_aten, state_dtypes
from .factors import factor_transposed
from .sizes import compute_from_arguments
from .views import rebase, resize_as_strided


def canonicalise(graph: torch.fx.Graph):
    conversions_as_aten(graph)
    state_dtypes(graph)
    resize_as_strided(graph)
    rebase(graph)
    factor_transposed(graph)
    compute_from_arguments(graph)

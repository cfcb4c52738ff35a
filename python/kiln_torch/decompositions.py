"""Which ops AOTAutograd decomposes: core ATen's, without those that kiln takes whole."""
from __future__ import annotations

import functools

import torch

aten = torch.ops.aten


@functools.cache
def table(fallback_random: bool = False):
    """The decompositions. With `fallback_random` none replaces an op that draws random numbers by others that draw."""
    from torch._decomp import core_aten_decompositions

    chosen = dict(core_aten_decompositions())
    # kiln has kernels or shorter decompositions for these.
    whole = (
        aten._softmax, aten._log_softmax, aten.gelu, aten.silu, aten.hardswish, aten.hardsigmoid, aten.elu, aten.leaky_relu,
        aten.addmm, aten.baddbmm, aten.native_layer_norm, aten.native_group_norm, aten.rms_norm, aten.upsample_nearest2d,
        aten.upsample_bilinear2d, aten.linear, aten.embedding, aten._scaled_dot_product_flash_attention_for_cpu,
    )
    for packet in whole:
        for name in packet.overloads():
            chosen.pop(getattr(packet, name), None)
    if fallback_random:
        chosen = {op: made for op, made in chosen.items() if torch.Tag.nondeterministic_seeded not in getattr(op, "tags", ())}
    return chosen

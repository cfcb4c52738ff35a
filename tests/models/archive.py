"""Saves exported programs small: deflated JSON, without example inputs and without stack traces."""
import io
import zipfile

import torch


def save(program, path):
    for node in program.graph.nodes:
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack"):
            node.meta.pop(key, None)
    write(program, path)


def write(program, path):
    """As `save`, with the stack traces."""
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(path, "w") as out:
        for name in source.namelist():
            if "sample_inputs" in name or name.endswith(".data/serialization_id"):
                continue
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED if name.endswith(".json") else zipfile.ZIP_STORED
            out.writestr(info, source.read(name))

"""Compiled packages: written with PyTorch, called on NumPy's arrays without it."""
from __future__ import annotations

import os
import tempfile

from . import _kiln

NUMPY = {
    "f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "ui8": "uint8",
    "i1": "bool", "bf16": "bfloat16", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2",
}


def dtype_of(name: str):
    """NumPy's dtype of an element type in MLIR's spelling. `ml_dtypes` has those that NumPy lacks."""
    import numpy

    if "bf" in name or "f8" in name:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, NUMPY[name]))
    return numpy.dtype(NUMPY[name])


class Package:
    """A loaded program. A call takes an array for each input, or what `numpy.asarray` makes one of, and returns a list of
    arrays. Complex inputs and results have a last dimension of two parts. Any thread may call it.

    Raises `TypeError` for an array of another dtype, and `RuntimeError` for shapes that the program does not take."""

    def __init__(self, program):
        self.program = program
        self.dtypes = [dtype_of(dtype) for _, dtype, _ in program.signature()]
        self.results = [dtype_of(dtype) for dtype, _ in program.outputs()]

    @property
    def inputs(self) -> list[tuple[str, str, list[int | None]]]:
        """Name, element type and sizes of each input; None is a dynamic size."""
        return self.program.signature()

    def __call__(self, *inputs):
        import numpy

        if self.program.on_gpu():
            raise RuntimeError("the package is for a GPU, whose memory NumPy does not hold: call it from Rust or C")
        if len(inputs) != len(self.dtypes):
            raise TypeError(f"the program takes {len(self.dtypes)} inputs, given {len(inputs)}")
        arrays = [numpy.asarray(a) for a in inputs]
        for (name, dtype, _), a, want in zip(self.inputs, arrays, self.dtypes):
            if a.dtype != want:
                raise TypeError(f"input {name} is of {dtype}, given an array of {a.dtype}")
        arrays = [numpy.ascontiguousarray(a).reshape(a.shape) for a in arrays]
        shapes = self.program.shapes([a.shape for a in arrays])
        results = [numpy.empty(shape, dtype) for shape, dtype in zip(shapes, self.results)]
        self.program.call_arrays(arrays, results)
        return results


def as_text(options: dict | None) -> list[tuple[str, str]]:
    """Options as kiln takes them."""
    return [(name, str(v).lower() if isinstance(v, bool) else str(v)) for name, v in (options or {}).items()]


def load(path: str | os.PathLike, options: dict | None = None) -> Package:
    """Loads a package (`.kpkg`) that `export` or `kiln compile --with-weights` wrote; an archive (`.pt2`) or IR is compiled first.

    `options` are those of `kiln options` by name. Raises `CompileError` for a file that cannot be read or compiled."""
    return Package(_kiln.load(os.fspath(path), as_text(options)))


def export(model, args: tuple, path: str | os.PathLike, *, kwargs: dict | None = None, dynamic_shapes=None, options: dict | None = None) -> int:
    """Exports a module with `torch.export` and compiles it to a package that holds its weights, to be loaded by `load`, Rust or C without
    PyTorch; returns how many kernels it has.

    `args`, `kwargs` and `dynamic_shapes` are those of `torch.export.export`, `options` those of `kiln options` by name. Raises
    `UnsupportedError`, which lists all ops that have no row in the ATen table."""
    import torch

    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 8):
        raise RuntimeError(f"archives of torch.export.save have the form that kiln reads from PyTorch 2.8 on; this is {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        archive = os.path.join(folder, "model.pt2")
        torch.export.save(torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False), archive)
        return _kiln.package(archive, os.fspath(path), as_text(options))

"""kiln as a backend of torch.compile: `torch.compile(model, backend="kiln")`.

`load` runs packages with NumPy alone; the rest imports PyTorch where it is first used.
"""
import importlib

from . import _kiln
from .package import Package, export, load

__version__ = _kiln.__version__
__all__ = ["Explanation", "Package", "Report", "explain", "export", "kiln", "load", "reports", "share_threads"]
_PLACES = {"Explanation": "explanation", "Report": "backend", "explain": "explanation", "kiln": "backend", "reports": "backend", "share_threads": "threads"}


def __getattr__(name: str):
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("." + _PLACES[name], __name__), name)

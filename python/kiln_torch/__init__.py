"""kiln as a backend of torch.compile: `torch.compile(model, backend="kiln")`."""
from . import _kiln
from .backend import Report, kiln, reports
from .explain import explain

__version__ = _kiln.__version__
__all__ = ["Report", "explain", "kiln", "reports"]

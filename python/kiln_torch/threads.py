"""The threads of PyTorch's OpenMP runtime, on which programs for processors run.

Threads of an OpenMP runtime spin for milliseconds after a region, and two pools of threads on the same processors wait for each other.
"""
import ctypes
import os
import re
from pathlib import Path

import torch

from ._kiln import share_openmp

_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_chosen = False


def _runtime() -> ctypes.CDLL | None:
    """PyTorch's OpenMP runtime, which is loaded; without one, or on another system, none."""
    if not torch.backends.openmp.is_available() or not os.path.exists("/proc/self/maps"):
        return None
    loaded = {line.split(maxsplit=5)[5].strip() for line in Path("/proc/self/maps").read_text().splitlines() if line.count("/")}
    found = [p for p in loaded if re.match(r"lib(gomp|iomp5|omp)[-.]", os.path.basename(p))]
    torch_folder = os.path.dirname(os.path.realpath(torch.__file__))
    own = [p for p in found if p.startswith((torch_folder + os.sep, torch_folder + ".libs" + os.sep))]
    # Of several elsewhere it is not known which is PyTorch's.
    of_torch = own or found
    if len(of_torch) != 1:
        return None
    try:
        library = ctypes.CDLL(of_torch[0], mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
    return library if all(hasattr(library, f) for f in _FUNCTIONS) else None


def share_threads(shared: bool = True) -> bool:
    """Runs programs for processors on the threads of PyTorch's OpenMP runtime, as without a call of this, or on kiln's own.

    Applies to all later calls of the process. Returns whether they share threads: where PyTorch's runtime is not found, and in a forked
    child, in which its threads are gone, they do not.
    """
    global _chosen
    _chosen = True
    library = _runtime() if shared else None
    return share_openmp(*(ctypes.cast(getattr(library, f), ctypes.c_void_p).value for f in _FUNCTIONS) if library else (0, 0, 0))


def share_by_default() -> None:
    """Shares threads unless `share_threads` has been called."""
    if not _chosen:
        share_threads()

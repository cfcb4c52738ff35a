"""Compiled graphs in AOTAutograd's cache: a process that finds one there traces, partitions and splits nothing.

An entry has what AOTAutograd's graphs became, without machine code, which is in kiln's own cache: a program of an entry is compiled again, which
reads that. AOTAutograd computes the key from Dynamo's graph, its arguments, PyTorch's settings and version; kiln adds its own of both.
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import sys
from pathlib import Path
from unittest import mock

import torch
import torch._functorch.config
import torch._inductor.config
from torch._dynamo.utils import dynamo_timed

from . import _kiln

try:
    from torch._functorch._aot_autograd.aot_autograd_result import BundledCompiledBackward  # noqa: F401
    from torch._functorch._aot_autograd import autograd_cache
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache, BypassAOTAutogradCache
    from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
    from torch._inductor.codecache import BypassFxGraphCache, FxGraphCache, torch_key
    from torch._inductor.output_code import OutputCode
except ImportError:
    # PyTorch before 2.9 keeps Inductor's graphs alone.
    AOTAutogradCache, OutputCode = None, object

OWN = ("attention.with_gradients", "attention.as_pytorch")
"""Functions of this package in Dynamo's graphs, which AOTAutograd traces."""


class CompiledGraph(OutputCode):
    """One of AOTAutograd's graphs, compiled: a function of a list of arguments, which it empties."""

    def __init__(self, runner, writes, captured, report, whole: bool):
        self.runner, self.writes, self.captured, self.report, self.whole = runner, writes, captured, report, whole
        """The graph, how PyTorch calls it, what it writes to arguments, how it is captured, what became of it; whether a call is a call of it
        alone."""
        # By this AOTAutograd knows what can be kept.
        self._fx_graph_cache_key = "kiln"
        self._boxed_call = True
        self.function = None

    def build(self) -> CompiledGraph:
        """Makes the function, of programs that are compiled."""
        fn = self.runner.function()
        if self.captured is not None:
            fn = self.captured.wrap(fn)
        self.function = self.writes.after(fn)
        return self

    def __call__(self, arguments):
        return self.function(arguments)

    def prepare_for_serialization(self):
        """Of a copy, before it is pickled."""
        self.function = None
        if self.report is not None:
            self.report = dataclasses.replace(self.report, compiled=[])

    def post_compile(self, example_inputs, constants, graph_kwargs):
        """After it is unpickled."""
        from .backend import note

        with dynamo_timed("kiln_compile"):
            for program in self.runner.programs:
                program.load()
        self.build()
        if self.report is not None:
            note(self.report, self.runner.programs)

    def set_triton_bundle(self, triton_bundle):
        """It has no kernels of Triton's."""


def innermost(fn) -> CompiledGraph | None:
    """The compiled graph that one of AOTAutograd's functions calls, if it is kiln's."""
    while fn is not None and not isinstance(fn, CompiledGraph):
        fn = getattr(fn, "__wrapped__", None) or getattr(fn, "_torchdynamo_orig_callable", None)
    return fn


@functools.cache
def version() -> str:
    """Of this package: of the compiler's sources and of the Python around it."""
    sha = hashlib.sha256(_kiln.__build__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        sha.update(path.read_bytes())
    return sha.hexdigest()


class Details:
    """What a frame's compiled graphs depend on; AOTAutograd's pickler hashes its attributes. Those of AOTAutograd's own class also hash what Inductor
    reads, and import Inductor's code generators for it: 0.9 s of a process."""

    def __init__(self, settings, module: torch.fx.GraphModule, inputs, aot_config, fx_config):
        try:
            # Higher-order ops that say nothing of their keys, and objects of TorchBind.
            FxGraphCache._check_for_hop(module)
        except BypassFxGraphCache as refused:
            raise BypassAOTAutogradCache(str(refused)) from refused
        if hasattr(module, "saved_tensors_hooks_pack_0"):
            # They may call functions of which the graph has the name alone.
            raise BypassAOTAutogradCache("the graph has hooks on saved tensors")
        self.module, self.inputs, self.aot_config = module, inputs, aot_config
        self.kiln = version(), repr(settings)
        self.versions = sys.version, torch.__version__, torch.version.git_version
        if "a0" in torch.__version__:
            # A checkout, whose sources change.
            self.versions += (torch_key(),)
        self.functorch = torch._functorch.config.save_config()
        self.budget = autograd_cache._get_custom_estimator_solver_uuids(torch._functorch.config)
        self.checkpoints = autograd_cache._collect_context_fn_hashes(module)
        self.tag = torch.compiler.config.cache_key_tag
        self.devices = [torch.cuda.get_device_name(d) for d in range(torch.cuda.device_count())], torch.version.cuda
        if torch.cuda.is_available():
            self.devices += (torch.cuda.current_device(),)
        cuda = torch.backends.cuda
        self.attention = cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled(), cuda.cudnn_sdp_enabled()
        self.autocast = [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")]
        self.modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()
        self.deterministic = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
        env = FxGraphCache._get_shape_env()
        # The hash of a size has its symbol alone.
        self.hints = sorted((str(symbol), hint) for symbol, hint in env.var_to_hint_override.items()) if env is not None else []


@functools.cache
def bundle_own_graphs():
    """Lets entries of kiln's graphs hold these, and not names of entries in Inductor's cache, whatever the setting for Inductor's graphs is."""
    original = AOTAutogradCache.make_entry

    def make_entry(*args, **named):
        own = innermost(named["compiled_fw_func"] if "compiled_fw_func" in named else args[0]) is not None
        with torch._functorch.config.patch(bundled_autograd_cache=True) if own else contextlib.nullcontext():
            return original(*args, **named)

    AOTAutogradCache.make_entry = staticmethod(make_entry)


def is_possible() -> bool:
    """Whether this PyTorch has a cache for graphs of other compilers than Inductor."""
    return AOTAutogradCache is not None and hasattr(AOTAutogradCache, "make_entry")


def kept(compiler):
    """A compiler of AOTAutograd's graphs whose results it may keep."""
    return SerializableAOTDispatchCompiler(CompiledGraph, compiler)


@contextlib.contextmanager
def keyed(settings):
    """Lets AOTAutograd's keys depend on kiln and on `settings`, and take this package's own functions for what they are."""
    bundle_own_graphs()
    known = torch._inductor.config.unsafe_marked_cacheable_functions
    own = {f"{__package__}.{name}": "" for name in OWN}
    details = mock.patch.object(autograd_cache, "AOTAutogradCacheDetails", functools.partial(Details, settings))
    with details, torch._inductor.config.patch(unsafe_marked_cacheable_functions={**known, **own}):
        yield

"""PyTorch's repro scripts and its minifier, for graphs of AOTAutograd that kiln compiles (`TORCHDYNAMO_REPRO_AFTER=aot`).

`torch._dynamo.repro.after_aot` knows one compiler. Its functions are given kiln's here, for the time of a call: those that compile,
and those that write scripts, which then call this module's `run_repro`.
"""
from __future__ import annotations

import contextlib
import copy
import functools
import io
import logging
from unittest import mock

import torch
from torch._dynamo import config
from torch._dynamo.debug_utils import AccuracyError, backend_accuracy_fails, same_two_models
from torch._dynamo.repro import after_aot
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

log = logging.getLogger("kiln_torch")
PYTORCH, OURS = "from torch._dynamo.repro.after_aot import run_repro", "from kiln_torch.repro import run_repro"


def save_graph_repro(options: dict, fd, *args, write=after_aot.save_graph_repro, **kwargs):
    """A script as PyTorch writes it, which compiles with kiln and its options."""
    text = io.StringIO()
    # The other hash of stored tensors is a kernel that Inductor compiles.
    kwargs["stable_hash"] = True
    write(text, *args, **kwargs)
    fd.write(text.getvalue().replace(PYTORCH, OURS).replace("run_repro(mod, load_args, ", f"run_repro(mod, load_args, options={options!r}, "))


@contextlib.contextmanager
def with_kiln(options: dict):
    """Lets PyTorch's functions compile with kiln and write such scripts."""
    compiled = functools.partial(compile_graph, options)
    accurate = functools.partial(accuracy_fails, compiled)
    fails = {
        "": functools.partial(fails_to_run, compiled),
        "accuracy": functools.partial(accurate, require_fp64=True, ignore_non_fp=True),
        "strict_accuracy": accurate,
    }
    changes = {
        "ACCURACY_FAILS": fails,
        "save_graph_repro": functools.partial(save_graph_repro, options),
        "repro_run": functools.partial(repro_run, compiled),
        "repro_analyze": no_analysis,
    }
    # What runs here is what failed: it is not reported again.
    with mock.patch.multiple(after_aot, **changes), config.patch(repro_after=None):
        yield


def compile_graph(options: dict, module: torch.fx.GraphModule, example_inputs):
    """kiln's function for a graph of ATen ops; what kiln cannot compile is an error."""
    from .backend import compile_graph, settings
    from .donation import Donation
    from .writes import Writes

    module = copy.deepcopy(module)
    symbolic = any(torch.fx.experimental.symbolic_shapes.has_free_symbols(n.meta.get("val")) for n in module.graph.nodes if n.op == "placeholder")
    if not symbolic:
        # Of real tensors each value is traced in a mode of its own.
        FakeTensorProp(module, mode=FakeTensorMode()).propagate(*example_inputs)
        for n in module.graph.nodes:
            n.meta.setdefault("val", None)
    given = dict(options)
    chosen, writes = settings(given, given.pop("mode", None), debugged=True), Writes(module)
    found, _ = compile_graph("inference", chosen, module, {}, writes.targets, Donation(False))
    return writes.after(found.function())


def synchronize(values):
    if any(isinstance(v, torch.Tensor) and v.is_cuda for v in values):
        torch.cuda.synchronize()


def fails_to_run(compiled, module, args, check_str=None) -> bool:
    """Whether eager runs a graph, and kiln does not."""
    try:
        module(*args)
    except Exception:
        return False
    try:
        compiled(module, args)(list(args))
        synchronize(args)
    except Exception as error:
        if check_str is not None and check_str not in repr(error):
            return False
        print(repr(error))
        return True
    return False


def accuracy_fails(compiled, module, args, check_str=None, **how) -> bool:
    return backend_accuracy_fails(module, args, compiled, only_fwd=True, **how)


def repro_run(compiled, options, module, load_args):
    module, args = after_aot.repro_common(options, module, load_args)
    run = compiled(module, args)
    if options.accuracy == "":
        run(list(args))
        synchronize(args)
    elif not same_two_models(module, run, args, only_fwd=True, ignore_non_fp=config.repro_ignore_non_fp):
        raise AccuracyError("Bad accuracy detected")


def no_analysis(*_):
    raise NotImplementedError("analyze compares values inside of Inductor's kernels")


def run_repro(mod, load_args, *, options: dict, **how):
    """What scripts call: runs or minifies the graph, as their command says."""
    with with_kiln(options):
        return after_aot.run_repro(mod, load_args, **how)


def debugged(compiler, options: dict):
    """A compiler of AOTAutograd's graphs that writes scripts, by `repro_level`: 1 the graph that fails, 2 the launcher of its minifier,
    3 the launcher before every call, 4 both where results are less accurate than eager's."""

    def dump(module, graph, inputs, name="kiln"):
        with with_kiln(options):
            whole = torch.fx.GraphModule(module, graph)
            if level != 2 and level != 3:
                after_aot.dump_compiler_graph_state(whole, inputs, name)
            if level > 1:
                after_aot.dump_to_minify(whole, inputs, name)

    level = config.repro_level

    def compiled(module, example_inputs):
        original = copy.deepcopy(module.graph)
        try:
            fn = compiler(module, example_inputs)
        except Exception:
            dump(module, original, example_inputs)
            raise

        def call(args):
            if level == 3:
                dump(module, original, args)
            if level == 4:
                reference = torch.fx.GraphModule(module, copy.deepcopy(original))
                with config.patch(repro_after=None):
                    same = same_two_models(reference, fn, args, only_fwd=True, ignore_non_fp=config.repro_ignore_non_fp)
                if not same:
                    log.warning("a graph is less accurate than eager")
                    dump(module, original, args, "kiln_accuracy")
                    raise AccuracyError("Bad accuracy detected")
                return fn(args)
            mode = FakeTensorMode()
            described = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
            try:
                results = fn(args)
                synchronize(results)
                return results
            except Exception:
                dump(module, original, described)
                raise

        call._boxed_call = True
        return call

    return compiled

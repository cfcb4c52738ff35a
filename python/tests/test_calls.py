"""Calls: memory does not grow with their number."""
import os

import kiln_torch  # noqa: F401
import pytest
import torch

PAGE = os.sysconf("SC_PAGE_SIZE")
ALLOWED = 4 << 20


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


def grown(call, warm, count):
    for _ in range(warm):
        call()
    before = resident()
    for _ in range(count):
        call()
    return resident() - before


@pytest.mark.parametrize("dynamic", [False, True])
def test_calls_without_growth(dynamic):
    fast = torch.compile(lambda x, y: (x @ y).relu() + 1, backend="kiln", dynamic=dynamic)
    x, y = torch.randn(4, 8), torch.randn(8, 16)
    with torch.no_grad():
        assert grown(lambda: fast(x, y), 2_000, 100_000) < ALLOWED


def test_sizes_without_growth():
    fast = torch.compile(lambda x: torch.softmax(x, -1).cumsum(0), backend="kiln", dynamic=True)
    inputs = [torch.randn(n, 3 * n) for n in range(2, 34)]
    with torch.no_grad():
        assert grown(lambda: [fast(x) for x in inputs], 50, 1_000) < ALLOWED


def test_training_without_growth():
    layer = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
    fast = torch.compile(layer, backend="kiln")
    x = torch.randn(4, 8)

    def step():
        fast(x).square().sum().backward()
        layer.zero_grad()

    assert grown(step, 500, 10_000) < ALLOWED


def test_compile_times_are_in_the_table_of_pytorch():
    from torch._dynamo.utils import compilation_time_metrics, compile_times

    compilation_time_metrics.pop("kiln_compile", None)
    torch.compile(lambda x: x + 1, backend="kiln")(torch.randn(4))
    assert len(compilation_time_metrics["kiln_compile"]) == 1 and "kiln_compile" in compile_times()


WHOLE = {
    "no gradients": (True, lambda x: (x @ x).relu()),
    "writes to an argument": (True, lambda x: x.add_(1).sum()),
    "returns a view of an argument": (False, lambda x: (x + 1, x[1:])),
}


@pytest.mark.parametrize("what", WHOLE)
def test_wrappers_that_do_nothing_are_left_out(monkeypatch, what):
    from torch._functorch._aot_autograd import runtime_wrappers

    direct, fn = WHOLE[what]
    calls, through = [], runtime_wrappers.call_func_at_runtime_with_args
    monkeypatch.setattr(runtime_wrappers, "call_func_at_runtime_with_args", lambda *args, **named: calls.append(1) or through(*args, **named))
    x = torch.randn(4, 4)
    compiled = torch.compile(fn, backend="kiln")
    for _ in range(2):
        mine, theirs = x.clone(), x.clone()
        torch.testing.assert_close(compiled(mine), fn(theirs))
        torch.testing.assert_close(mine, theirs)
    assert bool(calls) != direct

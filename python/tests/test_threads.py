"""Threads of programs on processors: PyTorch's OpenMP runtime's, or kiln's own."""
import subprocess
import sys
import textwrap

import pytest

CALLS = """
    import os, pathlib, sys, threading, warnings
    import torch
    import kiln_torch

    torch.set_num_threads(2)

    def own():
        names = [t.joinpath("comm").read_text().strip() for t in pathlib.Path("/proc/self/task").iterdir()]
        return sum(n.startswith("kiln-") for n in names)

    @torch.compile(backend="kiln", dynamic=False, options={"threads": 2})
    def f(x, w):
        return torch.relu(x @ w) + 1

    x, w = torch.randn(300, 300), torch.randn(300, 300)
    want = torch.relu(x @ w) + 1
    close = lambda y: float((y - want).abs().max()) < 1e-3
"""


def run(text):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(CALLS) + textwrap.dedent(text)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_regions_run_on_the_threads_of_pytorch():
    assert run("print(close(f(x, w)), own())") == ["True", "0"]


def test_own_threads_are_a_choice():
    said = run(
        """
        print(kiln_torch.share_threads(False), close(f(x, w)), own())
        print(kiln_torch.share_threads(), close(f(x, w)))
        """
    )
    assert said == ["False", "True", "1", "True", "True"]


@pytest.mark.filterwarnings("ignore")
def test_forked_children_and_threads_compute():
    said = run(
        """
        warnings.simplefilter("ignore")
        print(close(f(x, w)))
        right = []
        threads = [threading.Thread(target=lambda: right.append(all(close(f(x, w)) for _ in range(50)))) for _ in range(8)]
        [t.start() for t in threads], [t.join() for t in threads]
        print(len(right), all(right), flush=True)
        child = os.fork()
        if not child:
            # PyTorch's own OpenMP regions hang in a child.
            torch.set_num_threads(1)
            os._exit(0 if close(f(x, w)) and own() == 1 and not kiln_torch.share_threads() else 1)
        print(os.waitpid(child, 0)[1])
        """
    )
    assert said == ["True", "8", "True", "0"]


def test_a_forked_child_may_compile_first():
    said = run(
        """
        child = os.fork()
        if not child:
            torch.set_num_threads(1)
            os._exit(0 if close(f(x, w)) and own() == 1 else 1)
        print(os.waitpid(child, 0)[1])
        """
    )
    assert said == ["0"]

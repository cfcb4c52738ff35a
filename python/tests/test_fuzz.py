"""Random functions of tests/fuzz through torch.compile(backend="kiln") against eager; KILN_FUZZ_SEEDS=A..B takes others."""
import os
import sys
import warnings
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "fuzz"))
from check import compared  # noqa: E402
from generate import generate  # noqa: E402

LOW, HIGH = map(int, os.environ.get("KILN_FUZZ_SEEDS", "0..150").split(".."))
PER = 10


def traces(function, module):
    """Whether PyTorch itself compiles a function: AOTAutograd, with eager in place of a compiler."""
    torch._dynamo.reset()
    try:
        results(function, torch.compile(module, backend="aot_eager"))
    except Exception:
        return False
    return True


def results(function, run):
    """The results of a call and the inputs that it wrote, all by position."""
    inputs = function.given()
    return [*run(*inputs), *inputs]


@pytest.mark.parametrize("first", range(LOW, HIGH, PER))
@torch.no_grad()
def test_as_eager(first, device):
    if device != "cpu":
        pytest.skip("inputs are made on the host")
    wrong, skipped = [], []
    for seed in range(first, min(first + PER, HIGH)):
        function = generate(seed)
        if function is None:
            continue
        torch._dynamo.reset()
        module, state = function.module(), function.evaluated()
        exact = [state.wide_space[n] for n in (*function.results, *(i.name for i in function.inputs))]
        want = results(function, module)
        try:
            have = results(function, torch.compile(module, backend="kiln"))
        except Exception as error:
            if traces(function, module):
                wrong.append(f"seed {seed}: {error}\n{function.text()}")
            else:
                skipped.append(seed)
            continue
        for k, each in enumerate(zip(have, want, exact)):
            what, detail = compared(*each)
            if what == "wrong":
                wrong.append(f"seed {seed}, result {k}: {detail}\n{function.text()}")
    assert not wrong, "\n".join(wrong)
    if skipped:
        warnings.warn(f"{len(skipped)} functions that PyTorch's aot_eager does not compile either: seeds {skipped}", stacklevel=1)

"""Random functions of tests/fuzz through torch.compile(backend="kiln") against eager; KILN_FUZZ_SEEDS=A..B takes others."""
import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "fuzz"))
from check import compared  # noqa: E402
from generate import generate  # noqa: E402

LOW, HIGH = map(int, os.environ.get("KILN_FUZZ_SEEDS", "0..150").split(".."))
PER = 10


def results(function, run):
    """The results of a call and the inputs that it wrote, all by position."""
    inputs = function.given()
    return [*run(*inputs), *inputs]


@pytest.mark.parametrize("first", range(LOW, HIGH, PER))
@torch.no_grad()
def test_as_eager(first, device):
    if device != "cpu":
        pytest.skip("inputs are made on the host")
    wrong = []
    for seed in range(first, min(first + PER, HIGH)):
        function = generate(seed)
        if function is None:
            continue
        torch._dynamo.reset()
        module, state = function.module(), function.evaluated()
        exact = [state.wide_space[n] for n in (*function.results, *(i.name for i in function.inputs))]
        have, want = results(function, torch.compile(module, backend="kiln")), results(function, module)
        for k, each in enumerate(zip(have, want, exact)):
            what, detail = compared(*each)
            if what == "wrong":
                wrong.append(f"seed {seed}, result {k}: {detail}\n{function.text()}")
    assert not wrong, "\n".join(wrong)

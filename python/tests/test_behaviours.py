"""Behaviours that PyTorch tests Inductor for, as cases of our own (behaviours/): values, dtypes, sizes, strides, writes, shared memory, gradients.

Cases share graphs; where a graph fails, each of its cases runs by itself, and those that fail are named. With `KILN_TEST_ALL=1` all cases
run with static and with dynamic sizes, otherwise those of dynamic shapes with these, the others with static sizes, and a part with both.
"""

import functools
import os
from pathlib import Path

import pytest
import torch
from behaviours import CHECKS, TABLES
from behaviours.case import VERSION
from behaviours.flows import SINCE
from behaviours.run import bundles, check, differing

ALL = bool(os.environ.get("KILN_TEST_ALL"))
PER = {False: 16, True: 8}
"""Cases of a graph, by whether sizes are dynamic. The more symbols a graph has, the longer each takes."""
NAMES = Path(__file__).parent / "behaviours" / "names.txt"


ON_HOST = {
    "conv_shape_check": "eager takes the sizes on GPUs",
    "randn_generator": "Dynamo traces factory functions without the default device",
}


def parts(dynamic):
    """The graphs of all tables. Of those with dynamic sizes one in twelve is enough to see that sharing one does no harm."""
    each = [(table, k) for table, cases in TABLES.items() for k in range(len(bundles(cases, dynamic, PER[dynamic], ALL)))]
    if ALL:
        return each
    return [(table, k) for table, k in each if (table == "dynamic") == dynamic or dynamic and k % 12 == 3]


def as_eager(table, k, dynamic, device):
    torch.set_num_threads(2)
    bundle = bundles(TABLES[table], dynamic, PER[dynamic], ALL)[k]
    if device != "cpu":
        bundle = [c for c in bundle if not c.case.host]
    known = [c for c in bundle if c.case.known]
    together = [c for c in bundle if not c.case.known]
    try:
        if together:
            check(together, dynamic)
    except Exception as error:
        failing = {c.name: (c, why) for c in together if (why := differing(c, dynamic))}
        if device != "cpu":
            # Ops that eager lacks on GPUs, and factory functions, which Dynamo traces without the default device.
            others = {name for name, (c, _) in failing.items() if differing(c, dynamic, backend="aot_eager")}
            if failing and failing.keys() == others:
                pytest.skip(f"PyTorch itself does not compile {', '.join(sorted(others))} here")
            failing = {name: found for name, found in failing.items() if name not in others}
        pytest.fail("\n\n".join([why for _, why in failing.values()] or [f"only together: {error}"]))
    for c in known:
        assert differing(c, dynamic), f"{c.name} is as eager now, and is marked: {c.case.known}"


@pytest.mark.parametrize("table, k", parts(False))
def test_as_eager(table, k, device):
    as_eager(table, k, False, device)


@pytest.mark.parametrize("table, k", parts(True))
def test_as_eager_with_dynamic_sizes(table, k, device):
    as_eager(table, k, True, device)


@pytest.mark.parametrize("table, name", [(table, name) for table, checks in CHECKS.items() for name in checks])
def test_what_takes_several_calls(table, name, device):
    if SINCE.get(name, VERSION) > VERSION:
        pytest.skip("this PyTorch takes it")
    if device != "cpu" and name in ON_HOST:
        pytest.skip(ON_HOST[name])
    CHECKS[table][name](functools.partial(torch.compile, backend="kiln"))


def test_every_name_has_a_case_or_a_reason():
    listed = dict(line.split(maxsplit=1) for line in NAMES.read_text().splitlines() if line and not line.startswith("#"))
    tables = {name: table for group in (TABLES, CHECKS) for table, cases in group.items() for name in cases}
    assert {name: what for name, what in listed.items() if not what.startswith("-")} == tables

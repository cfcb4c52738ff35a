"""Writes cases.json: cases for tests/reference/mod.rs, computed with NumPy and PyTorch on small tensors.

Usage: python gen_reference.py > cases.json
A tensor is [dtype, shape, elements]; NaN and infinities are strings. `scale` 1 allows an absolute error as well, for
sums whose terms cancel. Where neither library has an op, a direct computation in Python is used.
"""
import json, sys
import reference_composites, reference_prims  # noqa: F401, they make the cases
from reference_support import cases

sys.stdout.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
print(f"{len(cases)} cases", file=sys.stderr)

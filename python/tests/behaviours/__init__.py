"""Behaviours that PyTorch tests Inductor for (test/inductor/test_torchinductor.py, test_torchinductor_dynamic_shapes.py), as cases of our own.

`names.txt` lists all of PyTorch's tests there: those with a case, by module, and those that concern Inductor alone, with the reason.
"""

from . import dynamic, flows, indexing, mutation, pointwise, pooling, products, reductions, rng, scalars, strides, views

TABLES = {
    "dynamic": dynamic.DYNAMIC,
    "indexing": indexing.INDEXING,
    "mutation": mutation.MUTATION,
    "pointwise": pointwise.POINTWISE,
    "pooling": pooling.POOLING,
    "products": products.PRODUCTS,
    "reductions": reductions.REDUCTIONS,
    "rng": rng.RNG,
    "scalars": scalars.SCALARS,
    "strides": strides.STRIDES,
    "views": views.VIEWS,
}
CHECKS = {"flows": flows.FLOWS, "rng": rng.RANDOM_CHECKS}

"""Custom ops, errors, recompilations, threads and the lifetime of tensors, by the names of PyTorch's tests."""

import gc
import threading
import weakref

import torch
import torch.nn.functional as F

library = torch.library


def custom_ops():
    """Ops of a library of our own: plain, with a number, of a list, that write, of data-dependent size, of other strides."""
    if hasattr(torch.ops.kiln_behaviours, "triple"):
        return torch.ops.kiln_behaviours

    def define(name, fake=torch.empty_like, mutates=(), tags=()):
        def wrap(fn):
            op = library.custom_op(f"kiln_behaviours::{name}", fn, mutates_args=mutates, **({"tags": tags} if tags else {}))
            op.register_fake(fake)
            return op

        return wrap

    @define("triple")
    def triple(x: torch.Tensor) -> torch.Tensor:
        return 3 * x

    @define("scale_and_cos", lambda x, s: (torch.empty_like(x), torch.empty_like(x)))
    def scale_and_cos(x: torch.Tensor, s: float) -> tuple[torch.Tensor, torch.Tensor]:
        return s * x, x.cos()

    @define("total", lambda xs: torch.empty_like(xs[0]))
    def total(xs: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(xs).sum(0)

    @define("plus_one_", lambda x: None, ["x"])
    def plus_one_(x: torch.Tensor) -> None:
        x.add_(1)

    @define("copy_", lambda x, y: None, ["x"])
    def copy_(x: torch.Tensor, y: torch.Tensor) -> None:
        x.copy_(y + 1 if y.is_contiguous() else y)

    @define("sin_into", lambda x, out: torch.empty_like(x), ["out"])
    def sin_into(x: torch.Tensor, out: list[torch.Tensor]) -> torch.Tensor:
        out[0].copy_(x.sin())
        return x.sin()

    @define("transposed", lambda x: x.new_empty(x.shape[::-1]).t())
    def transposed(x: torch.Tensor) -> torch.Tensor:
        return x.t().clone(memory_format=torch.contiguous_format).t()

    @define("dense_only", tags=[torch.Tag.needs_contiguous_strides] if hasattr(torch.Tag, "needs_contiguous_strides") else ())
    def dense_only(x: torch.Tensor) -> torch.Tensor:
        return x.contiguous() * 2

    @define("strides_of", lambda x: x.new_empty(x.dim(), dtype=torch.int64))
    def strides_of(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor(x.stride(), device=x.device)

    @define("positive", lambda x: x.new_empty(library.get_ctx().new_dynamic_size()))
    def positive(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]

    @define("repeated_by", lambda x, n: torch.empty_like(x))
    def repeated_by(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    return torch.ops.kiln_behaviours


def equal(fn, *args):
    """A check that a function, made with our own ops, is as in eager, arguments included."""

    def check(compile):
        ops = custom_ops()
        f = lambda *a: fn(ops, *a)
        made = [a() if callable(a) else torch.randn(a) if isinstance(a, tuple) else a for a in args]
        copies = lambda: [a.clone() if isinstance(a, torch.Tensor) else a for a in made]
        mine, theirs = copies(), copies()
        with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
            torch.testing.assert_close(compile(f)(*mine), f(*theirs))
        torch.testing.assert_close(mine, theirs)

    return check


def layouts(ops, x, w):
    """An op sees the strides that eager would give it."""
    y = F.conv2d(x, w)
    return ops.strides_of(y), ops.strides_of(y.to(memory_format=torch.channels_last) + 1), ops.strides_of(ops.transposed(y[0, 0]) + 1)


def refused(fn, *args, in_eager=True):
    """A check that both eager and the compiled function refuse the arguments."""

    def check(compile):
        made = [torch.randn(a) if isinstance(a, tuple) else a() if callable(a) else a for a in args]
        for run in ([fn] if in_eager else []) + [compile(fn)]:
            try:
                run(*made)
            except Exception:
                continue
            raise AssertionError(f"{run} took the arguments")

    return check


def refused_pools(compile):
    for op in (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d):
        d = int(op.__name__[-2])
        refused(lambda x: op(x, 2), lambda: torch.ones([2] * (d + 2), dtype=torch.uint8))(compile)


def integer_pools(compile):
    """Eager has no kernel for integers; a backend may have one."""
    for d, op in enumerate((F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d), 1):
        x = torch.randint(0, 99, [4] * (d + 2))
        try:
            y = compile(lambda x: op(x, 2))(x)
        except Exception:
            continue
        assert torch.equal(y, op(x.float(), 2).long())


def many(*checks):
    def check(compile):
        for one in checks:
            torch._dynamo.reset()
            one(compile)

    return check


def refused_by_data(fn, *args, in_eager=True):
    """Of a size that data determines; tracing refuses what eager may take."""

    def check(compile):
        with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
            refused(fn, *args, in_eager=in_eager)(compile)

    return check


def floordiv(x, y):
    z = y.item()
    torch._check(z // 2 == 3)
    return x + x.new_zeros(z)


def asserted(compile):
    def fn(a):
        assert a.shape[0] >= 2 and a.shape[1] >= 4
        return a.cos()

    x = torch.randn(2, 4, 6)
    torch.testing.assert_close(compile(fn, dynamic=True)(x), x.cos())


def threads(compile):
    model, x, seen = torch.nn.Linear(2, 3).eval(), torch.randn(4, 2), []
    fast, want = compile(model), model(x)
    device = x.device

    def run():
        with torch.no_grad(), torch.device(device):
            seen.extend(fast(x) for _ in range(3))

    with torch.no_grad():
        fast(x)
    pool = [threading.Thread(target=run) for _ in range(2)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    assert len(seen) == 6
    for y in seen:
        torch.testing.assert_close(y, want.detach())


def released(compile):
    """Values between the pieces of a graph do not outlive a call, nor do arguments."""
    fast = compile(lambda x, y: (x + y) @ (x + y))
    x, y = torch.rand(5, 5), torch.rand(5, 5)
    refs = [weakref.ref(x), weakref.ref(y)]
    out = fast(x, y)
    del x, y
    gc.collect()
    assert [r() for r in refs] == [None, None] and out.shape == (5, 5)


def recompiles(compile):
    """A change of the device's index or of strides compiles anew; of an offset it does not."""
    from kiln_torch import reports

    fast = compile(lambda x: x.sin() + x.cos(), dynamic=False)
    base = torch.randn(70)
    for x in (base[:64].view(8, 8), base[4:68].view(8, 8), base[5:69].view(8, 8)):
        torch.testing.assert_close(fast(x), x.sin() + x.cos())
    assert len(reports) == 1, reports


def numpy_functions(compile):
    import numpy

    def fn(x):
        return numpy.sum(numpy.sin(x))

    x = numpy.arange(8, dtype=numpy.float32)
    assert abs(compile(fn)(x) - fn(x)) < 1e-4
    through = lambda x: torch.from_numpy(numpy.concatenate([numpy.sin(x.numpy()), x.numpy()])).sum()
    t = torch.arange(8.0, device="cpu")
    torch.testing.assert_close(compile(through)(t), through(t))


def graph_break_gives_equal_code(compile):
    def fn(x):
        y = x.cos().sin().softmax(-1)
        torch._dynamo.graph_break()
        return y.cos().sin().softmax(-1)

    x = torch.randn(16, 25)
    fast = compile(fn)
    torch.testing.assert_close(fast(x), fn(x))
    assert torch.equal(fast(x), fast(x))


def not_a_number(compile):
    x = torch.randn(2, 102)
    x[0, 0] = float("nan")
    torch.testing.assert_close(compile(lambda x: x.softmax(-1))(x), x.softmax(-1), equal_nan=True)


def meta_tensors(compile):
    a, b = compile(lambda x, y: (x * 2, y * 3), dynamic=True)(torch.empty((1, 16, 8), device="meta"), (y := torch.rand(64)))
    assert a.device.type == "meta" and a.shape == (1, 16, 8)
    torch.testing.assert_close(b, y * 3)


def marked_unbacked(compile):
    x = torch.empty_strided((3, 4), (5, 1)).fill_(1)
    torch._dynamo.decorators.mark_unbacked(x, 0)
    torch.testing.assert_close(compile(lambda x: x.sum())(x), x.sum())


def optimizer(compile):
    """A step of an optimizer over many parameters."""

    def stepped(wrap):
        torch.manual_seed(0)
        ps = [torch.rand(3, 4) for _ in range(6)]
        for p in ps:
            p.grad = torch.rand_like(p)
        o = torch.optim.AdamW(ps, foreach=True)
        step = wrap(lambda: o.step())
        step()
        return ps

    torch.testing.assert_close(stepped(compile), stepped(lambda f: f))


SINCE = {"replication_pad_errors_with_bool": (2, 8)}
"""The version of PyTorch from which tracing refuses it as well."""

FLOWS = {
    "custom_op_1": equal(lambda ops, x: ops.triple(x.relu()).cos(), (6, 7)),
    "custom_op_2": equal(lambda ops, x, s: ops.scale_and_cos(x.relu(), s), (6, 7), 2.0),
    "custom_op_3": equal(lambda ops, x, y: ops.total([x, y, x * 2]), (6, 7), (6, 7)),
    "custom_op_unbacked_symints": equal(lambda ops, x: ops.triple(ops.positive(x)), (9,)),
    "custom_op_fixed_layout_sequential": equal(layouts, (2, 3, 4, 4), (5, 3, 1, 1)),
    "custom_op_fixed_layout_channels_last": equal(lambda ops, x: ops.strides_of(F.gelu(x.to(memory_format=torch.channels_last))), (1, 4, 5, 6)),
    "custom_op_default_layout_constraint": equal(
        lambda ops, x: (y := torch.full((3, 3), 7.0), ops.copy_(y, x.t().contiguous().t()), y * y)[2], (3, 3)
    ),
    "mutable_custom_op_fixed_layout": equal(lambda ops, x: (y := torch.full((3,), 7.0), ops.copy_(y, x), y * y)[2], (3,)),
    "mutable_custom_op_fixed_layout2": equal(lambda ops, x, w: (y := F.conv2d(x, w), ops.plus_one_(y), y**2)[2], (2, 3, 4, 4), (5, 3, 1, 1)),
    "needs_contiguous_strides": equal(lambda ops, x: ops.dense_only(ops.transposed(x)), (2, 3)),
    "fallback_mutable_op_basic": equal(lambda ops, a, b: (t := a.clone(), ops.copy_(t, b), a.copy_(t))[0], (3,), (3,)),
    "fallback_mutable_op_list_tensor": equal(lambda ops, x: (s := [torch.empty_like(x)], ops.sin_into(x * 3, s) / 3, s[0])[1:], (3,)),
    "fallback_mutable_op_with_return": equal(lambda ops, x, o: (ops.sin_into(x, [o]) + 1, o * 2), (3,), (3,)),
    "fallback_mutable_op_no_mutated_tensors": equal(lambda ops, x: (ops.plus_one_(x), x * 2)[1], (3,)),
    "fallback_mutable_op_list": equal(lambda ops, x, a, b: (ops.sin_into(x, [a, b]), a + b), (3,), (3,), (3,)),
    "item_to_inputs_kernel_nobreak": equal(lambda ops, n, x: ops.repeated_by(x, n.item()), lambda: torch.tensor([3]), (4,)),
    "dynamic_stride_nobreak": equal(lambda ops, x: torch.zeros(ops.positive(x).shape[0]), lambda: torch.tensor([1.0, -2.0, 3.0])),
    "multi_output_unbacked_custom_op": equal(lambda ops, x: ops.positive(x).sum() + ops.triple(x).sum(), (9,)),
    "unbacked_save_for_backwards": equal(lambda ops, x, n: (ops.positive(x) * x.new_ones(n.item()).sum()).sum(), (9,), lambda: torch.tensor(4)),
    "mm_mixed_dtype": refused(torch.mm, (2, 3), lambda: torch.ones(3, 3, dtype=torch.int64)),
    "linear_mixed_dtype": refused(F.linear, lambda: torch.ones(3, 3, dtype=torch.int64), (3, 3)),
    "split_failed": refused(lambda a: a.split([2, 1, 1], 1), (1, 5)),
    "adaptive_pool_errors_with_long": integer_pools,
    "adaptive_avg_pool_errors_with_long": many(
        *(
            refused(lambda x, d=d: getattr(F, f"adaptive_avg_pool{d}d")(x, 2), lambda d=d: torch.ones([2] * (d + 2), dtype=torch.int64))
            for d in (1, 2, 3)
        )
    ),
    "avg_pool_errors_with_uint": refused_pools,
    "replication_pad_errors_with_bool": many(
        *(refused(lambda x, d=d: F.pad(x.signbit(), [1, 1] * d, "replicate"), tuple([2] * (d + 2))) for d in (1, 2, 3))
    ),
    "conv_shape_check": many(
        *(
            refused(lambda x, w, d=d: getattr(F, f"conv_transpose{d}d")(x, w, padding=1).sigmoid(), (1,) * (d + 2), (1, 1) + (2,) * d)
            for d in (1, 2, 3)
        )
    ),
    "cat_unbacked_legacy_empty": refused_by_data(
        lambda x, y: torch.cat([x, x.new_ones(y.item())]), (2, 3), lambda: torch.tensor([0]), in_eager=False
    ),
    "unbacked_floordiv_simplify_errors": refused_by_data(floordiv, (8,), lambda: torch.tensor(8)),
    "inductor_assert": asserted,
    "multi_threading": threads,
    "list_clearing": released,
    "graph_partition_refcount": released,
    "multi_gpu_recompile_on_index": recompiles,
    "config_option_dont_assume_alignment_recompiles": recompiles,
    "numpy_on_gpu": numpy_functions,
    "numpy_autograd": numpy_functions,
    "deterministic_codegen_on_graph_break": graph_break_gives_equal_code,
    "nan_checker_pass": not_a_number,
    "meta_dynamic_shapes": meta_tensors,
    "mark_unbacked_slice": marked_unbacked,
    "graph_partition_unbacked_symint": marked_unbacked,
    "fuse_large_params": optimizer,
}

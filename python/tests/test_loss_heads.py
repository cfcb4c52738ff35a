"""Losses over large products: their gradients are computed by the forward graph, in chunks of rows."""
import logging

import pytest
import torch

import kiln_torch

F = torch.nn.functional
SMALL = {"chunk_bytes": 2048}
ROWS, WIDTH, CLASSES = 300, 16, 40


def plain(x, w, t):
    return F.cross_entropy(F.linear(x, w), t)


def shifted(x, w, t):
    """As Hugging Face's models: labels are shifted and padded, logits are f32."""
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        logits = F.linear(x.view(3, -1, WIDTH), w)
    labels = F.pad(t.view(3, -1), (0, 1), value=-100)[..., 1:].contiguous()
    return F.cross_entropy(logits.float().view(-1, CLASSES), labels.view(-1), ignore_index=-100)


def z_loss(x, w, t):
    logits = F.linear(x, w).float()
    return F.cross_entropy(logits, t) + 1e-2 * logits.logsumexp(-1).square().mean()


def biased(x, w, t):
    return F.cross_entropy(F.linear(x, w, w[:, 0]), t, label_smoothing=0.1)


def tied(x, w, t):
    """The weight is the embedding's, too."""
    return F.cross_entropy(F.linear(x + F.embedding(t.clamp(min=0), w), w), t)


def capped(x, w, t):
    return F.cross_entropy(torch.tanh(F.linear(x, w) / 5) * 5, t)


HEADS = {
    "mean": plain,
    "sum": lambda x, w, t: F.cross_entropy(F.linear(x, w), t, reduction="sum"),
    "smoothing": lambda x, w, t: F.cross_entropy(F.linear(x, w), t, label_smoothing=0.1),
    "scaled": lambda x, w, t: plain(x.tanh(), w, t) * 0.5 + x.square().mean(),
    "shifted": shifted,
    "z-loss": z_loss,
    "bias": biased,
    "tied": tied,
    "capped": capped,
}


def inputs(dtype, ignored="some"):
    x, w = torch.randn(ROWS, WIDTH).to(dtype), (torch.randn(CLASSES, WIDTH) / 4).to(dtype)
    t = torch.randint(0, CLASSES, (ROWS,))
    t[:: 1 if ignored == "all" else 7] = -100
    return x.requires_grad_(), w.requires_grad_(), t


def gradients(fn, x, w, t, tangent=1.0):
    x.grad = w.grad = None
    loss = fn(x, w, t)
    (loss * tangent).backward()
    return [loss.detach(), x.grad.clone(), w.grad.clone()]


def close(got, want, dtype):
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, **({"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 5e-2, "atol": 5e-2 * b.abs().max().item() + 1e-6}))


def sizes():
    """The results of the forward graph's kernels, as text."""
    return [ops for report in kiln_torch.reports if report.kind == "forward" for program in report.launches() for _, _, ops in program]


def chunks():
    """How many products of logits the forward graph computes."""
    return sum("dot_general" in op for ops in sizes() for op in ops)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", HEADS)
def test_gradients_as_eager(name, dtype):
    x, w, t = inputs(dtype)
    want = gradients(HEADS[name], x, w, t)
    got = gradients(torch.compile(HEADS[name], backend="kiln", options=SMALL), x, w, t)
    close(got, want, torch.bfloat16 if name == "shifted" else dtype)
    # Three chunks of at most 128 rows, each with the product and two gradients.
    assert chunks() >= 9


@pytest.mark.parametrize("tangent", [1.0, 3.0, 0.0])
def test_the_tangent_scales_gradients(tangent):
    x, w, t = inputs(torch.float32)
    fast = torch.compile(plain, backend="kiln", options=SMALL)
    close(gradients(fast, x, w, t, tangent), gradients(plain, x, w, t, tangent), torch.float32)
    assert chunks() >= 9


def test_all_labels_ignored():
    x, w, t = inputs(torch.float32, "all")
    fn = HEADS["sum"]
    close(gradients(torch.compile(fn, backend="kiln", options=SMALL), x, w, t), gradients(fn, x, w, t), torch.float32)


def test_a_kept_graph_gives_the_same_gradients_again():
    x, w, t = inputs(torch.float32)
    loss = torch.compile(plain, backend="kiln", options=SMALL)(x, w, t) * 3
    first = torch.autograd.grad(loss, (x, w), retain_graph=True)
    again = torch.autograd.grad(loss, (x, w))
    want = torch.autograd.grad(plain(x, w, t) * 3, (x, w))
    close(first, want, torch.float32)
    close(again, want, torch.float32)


def total(result):
    return sum(r.float().sum() for r in result) if isinstance(result, tuple) else result.float().sum()


def reasons(caplog, fn, options=SMALL, dtype=torch.float32):
    """Why gradients were not computed ahead; they are compared with eager's."""
    x, w, t = inputs(dtype)
    with caplog.at_level(logging.INFO, "kiln_torch"):
        got = torch.autograd.grad(total(torch.compile(fn, backend="kiln", options=options)(x, w, t)), (x, w))
    close(got, torch.autograd.grad(total(fn(x, w, t)), (x, w)), dtype)
    return [r.getMessage() for r in caplog.records if "computed ahead" in r.getMessage()]


def test_logits_that_are_results_are_stored(caplog):
    fn = lambda x, w, t: (F.cross_entropy(logits := F.linear(x, w), t), logits)
    assert any("the product is a result" in why for why in reasons(caplog, fn))


def test_losses_of_rows_are_left(caplog):
    fn = lambda x, w, t: F.cross_entropy(F.linear(x, w), t, reduction="none")
    assert any("the loss is not one number" in why for why in reasons(caplog, fn))


def test_sums_of_all_elements_are_left(caplog):
    """The product would not be computed in chunks."""
    fn = lambda x, w, t: F.linear(x, w).square().mean()
    assert any("nothing reduces the product's rows" in why for why in reasons(caplog, fn))


def test_float16_is_left(caplog):
    assert any("may underflow" in why for why in reasons(caplog, plain, dtype=torch.float16))


@pytest.mark.parametrize("limit", [0, "1M"])
def test_an_option_sets_the_limit(caplog, limit):
    reasons(caplog, plain, {"chunk_bytes": limit})
    assert chunks() == 1


def saved_bytes(options):
    x, w, t = inputs(torch.float32)
    kept = []
    fast = torch.compile(plain, backend="kiln", options=options)
    fast(x, w, t)
    with torch.autograd.graph.saved_tensors_hooks(lambda v: kept.append(v) or v, lambda v: v):
        fast(x, w, t)
    own = {v.untyped_storage().data_ptr() for v in (x, w, t)}
    return sum({v.untyped_storage().data_ptr(): v.untyped_storage().nbytes() for v in kept if v.untyped_storage().data_ptr() not in own}.values())


def test_gradients_are_saved_instead_of_logits():
    logits, gradients = ROWS * CLASSES * 4, (ROWS + CLASSES) * WIDTH * 4
    assert saved_bytes({"chunk_bytes": 0}) >= logits
    assert saved_bytes(SMALL) <= gradients + 64


def test_gradients_are_scaled_in_place(monkeypatch):
    from kiln_torch import donation

    monkeypatch.setattr(donation, "LEAST", 1)
    x, w, t = inputs(torch.float32)
    kept = []
    fast = torch.compile(plain, backend="kiln", options=SMALL)
    with torch.autograd.graph.saved_tensors_hooks(lambda v: kept.append(v.data_ptr()) or v, lambda v: v):
        loss = fast(x, w, t)
    loss.backward()
    assert w.grad.data_ptr() in kept
    close([w.grad], [gradients(plain, x, w, t)[2]], torch.float32)


def test_losses_of_sure_predictions():
    """A logit is the same number in the sum of exponentials as where the class is picked, else such losses are noise, also below 0."""
    t = torch.randint(0, 10, (64,))
    w, b = (torch.randn(10, 2048) / 8).bfloat16(), torch.randn(10).bfloat16()
    x = (0.3 * w[t] + 0.02 * torch.randn(64, 2048)).bfloat16()
    loss = lambda *inputs: F.cross_entropy(F.linear(*inputs).float(), t, reduction="none")
    got, want = torch.compile(loss, backend=kiln_torch.kiln)(x, w, b), loss(x, w, b)
    assert want.mean() < 0.01 and (got >= 0).all()
    assert (got.mean() / want.mean() - 1).abs() < 0.1

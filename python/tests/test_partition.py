"""The stages of a graph whose ops do not all have a row: which calls become one program."""
import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import kiln_torch
from kiln_torch.layout import Layout
from kiln_torch.partition import stages_of

aten = torch.ops.aten


def stages(f, *inputs, eager):
    """The stage of each call of a function, by the name of its op, the calls of `eager` being left."""
    graph = make_fx(f)(*inputs).graph
    left = {n.name: "left" for n in graph.nodes if n.op == "call_function" and n.target in eager}
    return {n.name: stage for n, stage in stages_of(graph, left).items()}


def test_a_call_is_as_early_as_its_inputs():
    def f(x):
        y = aten.sin(x)
        z = aten.erfinv(y)
        return aten.cos(z), aten.exp(y)

    assert stages(f, torch.randn(3), eager=[aten.erfinv.default]) == {"sin": 0, "erfinv": 1, "cos": 1, "exp": 0}


def test_what_follows_from_inputs_alone_waits_for_its_reader():
    def f(x, w):
        half = aten.exp(w)
        return aten.mul(aten.erfinv(aten.sin(x)), half)

    found = stages(f, torch.randn(3), torch.randn(3), eager=[aten.erfinv.default])
    assert found == {"sin": 0, "erfinv": 1, "exp": 1, "mul": 1}


def test_gradients_do_not_wait_for_their_reader():
    def f(tangents_1, w):
        by_w = aten.mul(tangents_1, w)
        return aten.add(aten.erfinv(aten.sin(tangents_1)), by_w)

    graph = make_fx(f)(torch.randn(3), torch.randn(3)).graph
    first = next(iter(graph.nodes))
    first._rename("tangents_1")
    left = {n.name: "left" for n in graph.nodes if n.target is aten.erfinv.default}
    found = {n.name: stage for n, stage in stages_of(graph, left).items()}
    assert found == {"mul": 0, "sin": 0, "erfinv": 1, "add": 1}


def test_results_of_one_op_stay_together():
    def f(x):
        a, b = aten.split(x, 2)
        return aten.add(aten.erfinv(aten.sin(a)), b), b

    found = stages(f, torch.randn(4), eager=[aten.erfinv.default])
    assert found["split"] == found["getitem"] == found["getitem_1"] == 0


@pytest.mark.parametrize("early", [True, False])
def test_programs_around_an_eager_op(early):
    def f(x):
        a, b = (x * 2).split(2)
        low, index = torch.topk(x, 3)
        y = torch._fake_quantize_learnable_per_tensor_affine(a, torch.ones(1), torch.zeros(1), 0, 9)
        return y + b, low.exp() if early else low.exp() * y.sum(), index

    x = torch.tensor([1.0, 4.0, 2.0, 3.0])
    torch._dynamo.reset()
    kiln_torch.reports.clear()
    for result, expected in zip(torch.compile(f, backend="kiln")(x), f(x)):
        torch.testing.assert_close(result, expected)
    assert sum(r.programs for r in kiln_torch.reports) >= 2 and any(r.eager for r in kiln_torch.reports)


class Sliced(nn.Module):
    """Attention of queries, keys and values that are slices of one product, as vision transformers have them."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2)), q


def test_results_that_the_user_gets_have_eagers_strides():
    torch.manual_seed(0)
    model, x = Sliced(), torch.randn(3, 5, 16)
    torch._dynamo.reset()
    y, q = torch.compile(model, backend="kiln")(x)
    want, eager = model(x)
    assert q.stride() == eager.stride()
    torch.testing.assert_close(y, want)
    (y.sum() + q.sum()).backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    (want.sum() + eager.sum()).backward()
    for a, p in zip(found, model.parameters()):
        torch.testing.assert_close(a, p.grad)


@pytest.mark.parametrize("size, stride", [((2, 3, 5), (0, 24, 8)), ((2, 3, 5), (0, 1, 3)), ((2, 3, 4), (1, 0, 2)), ((2, 3, 4), (24, 8, 1)), ((2, 1, 4), (0, 0, 1))])
def test_layouts_of_results_are_eagers(size, stride):
    """Expanded dimensions and gaps in memory, both at once, as a padded bias of attention has them."""
    kept = [1 if s == 0 else n for n, s in zip(size, stride)]
    want = torch.empty_strided(kept, stride).copy_(torch.randn(kept)).expand(size)
    layout = Layout.of(want)
    got = layout.apply(want.permute(layout.order).contiguous())
    assert torch.equal(got, want)
    assert [s for n, s in zip(size, got.stride()) if n > 1] == [s for n, s in zip(size, stride) if n > 1]

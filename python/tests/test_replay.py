"""Programs that are launched as CUDA graphs, with the addresses of each call (`cudagraph_replay`)."""
import pytest
import torch

from kiln_torch import reports

F = torch.nn.functional
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def on_gpu(device):
    if device == "cpu":
        pytest.skip("graphs are of GPUs")


def used_graphs():
    """For each program whether a call was launched as a graph."""
    return [program.used_graphs() for report in reports for ref in report.compiled if (program := ref())]


def network():
    """A function of an image whose program has several kernels."""
    layers = [torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(16 * 64, 10)]
    return torch.nn.Sequential(*layers)


def trained(steps, **options):
    """The losses of a training loop, and which of its programs were launched as graphs."""
    torch.manual_seed(1)
    reports.clear()
    torch._dynamo.reset()
    model = network()
    fn = torch.compile(lambda x, y: F.cross_entropy(model(x), y), backend="kiln", options=options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    images, labels, losses = torch.randn(32, 3, 16, 16), torch.randint(0, 10, (32,)), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = fn(images, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, used_graphs()


@pytest.mark.parametrize("options", [{}, {"joint_graph": True}], ids=["split", "joint"])
def test_a_loop_is_replayed(options):
    (replayed, graphs), (launched, none) = trained(15, **options), trained(15, cudagraph_replay=False, **options)
    assert any(graphs) and not any(none)
    # cuDNN's gradients depend on the order of atomic sums.
    assert replayed == pytest.approx(launched, rel=1e-4, abs=1e-4)
    assert launched[-1] < launched[0] - 0.1


def chain(x):
    """Several kernels: reductions follow each other."""
    for _ in range(4):
        x = x * torch.softmax(x, -1).sum(0) + x.cumsum(0)
        x = x / x.abs().amax()
    return x


def test_results_that_live_move_the_addresses():
    fn, kept = torch.compile(chain, backend="kiln"), []
    for k in range(12):
        x = torch.randn(64, 96)
        y = fn(x)
        torch.testing.assert_close(y, chain(x), rtol=1e-4, atol=1e-5)
        # Every third result lives, so that the next one is elsewhere.
        if k % 3 == 0:
            kept.append((y, y.clone()))
    assert all(torch.equal(y, copy) for y, copy in kept)


def test_a_result_that_lives_is_patched():
    def two(x):
        y = chain(x)
        return y, (y * y).sum()

    fn, x, sums = torch.compile(two, backend="kiln"), torch.randn(64, 96), []
    for _ in range(12):
        x.normal_()
        y, total = fn(x)
        sums.append((total, chain(x).square().sum()))
        del y, total
    assert any(used_graphs())
    for total, wanted in sums:
        torch.testing.assert_close(total, wanted, rtol=1e-4, atol=1e-5)


def test_two_buffers_in_turn():
    fn, buffers = torch.compile(chain, backend="kiln"), [torch.randn(64, 96) for _ in range(2)]
    for k in range(16):
        x = buffers[k % 2]
        x.normal_()
        torch.testing.assert_close(fn(x), chain(x), rtol=1e-4, atol=1e-5)
    assert any(used_graphs())


def test_streams_and_captures_beside_replays():
    fn, x = torch.compile(chain, backend="kiln"), torch.randn(64, 96)
    for _ in range(6):
        fn(x)
    assert any(used_graphs())
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        beside = fn(x)
    torch.cuda.current_stream().wait_stream(other)
    torch.testing.assert_close(beside, chain(x), rtol=1e-4, atol=1e-5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = fn(x)
    x.normal_()
    graph.replay()
    torch.testing.assert_close(captured, chain(x), rtol=1e-4, atol=1e-5)


def test_draws_differ_between_replays():
    def noisy(x):
        for _ in range(4):
            x = torch.softmax(F.dropout(x, 0.5), -1).cumsum(0)
        return x

    fn, x = torch.compile(noisy, backend="kiln"), torch.randn(64, 96)
    results = [fn(x).square().sum().item() for _ in range(10)]
    assert any(used_graphs()) and len(set(results)) == 10

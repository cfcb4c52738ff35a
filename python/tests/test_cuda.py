"""What concerns tensors on GPUs alone: streams, memory, CUDA graphs, several devices in one graph."""
import copy

import pytest
import torch

from kiln_torch import explain, kiln, reports

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
nn = torch.nn


@pytest.fixture(autouse=True)
def only_cuda(device):
    if device != "cuda":
        pytest.skip("of GPUs")


def all_compiled():
    return reports and all(r.programs > 0 and not r.eager for r in reports)


def test_inputs_at_any_address_and_stride():
    x = torch.randn(9, 16)
    fn = torch.compile(lambda x: x.sin() + 1, backend=kiln, dynamic=False)
    for view in (x.flatten()[1:65], x[:, 3:7], x.t(), x[::2], x[:1].expand(4, 16), x[:0]):
        torch.testing.assert_close(fn(view), view.sin() + 1)
    assert all_compiled()


def test_a_scalar_of_the_processor_and_a_tensor_of_the_gpu():
    fn = lambda x, s: x * s + 1
    x, s = torch.randn(5), torch.tensor(2.5, device="cpu")
    torch.testing.assert_close(torch.compile(fn, backend=kiln)(x, s), fn(x, s))
    assert all_compiled()


def test_both_devices_in_one_graph():
    fn = lambda x, y: (x.sin() + y.cos().cuda(), y + 1)
    x, y = torch.randn(3, 4), torch.randn(3, 4, device="cpu")
    for got, want in zip(torch.compile(fn, backend=kiln)(x, y), fn(x, y)):
        torch.testing.assert_close(got, want)
        assert got.device == want.device


def test_calls_are_ordered_by_the_current_stream():
    fn = torch.compile(lambda x: (x @ x).relu() + 1, backend=kiln)
    x = torch.randn(512, 512)
    fn(x)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), torch.no_grad():
        for n in range(20):
            y = torch.full((512, 512), float(n))
            got = fn(y)
            assert (got == float(n) * n * 512 + 1).all(), n
    stream.synchronize()


def test_memory_is_pytorchs_and_does_not_grow():
    fn = torch.compile(lambda x: (x @ x.T).softmax(-1) @ x, backend=kiln)
    x = torch.randn(256, 64)
    for _ in range(3):
        fn(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    for _ in range(2000):
        fn(x)
    torch.cuda.synchronize()
    assert (torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]) == before


def test_a_users_own_cuda_graph():
    fn = torch.compile(lambda x: (x @ x).softmax(-1), backend=kiln)
    x = torch.randn(64, 64)
    fn(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = fn(x)
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(y, (x @ x).softmax(-1))


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_modes_with_cuda_graphs_in_inference(mode):
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    fast = torch.compile(model, backend=kiln, mode=mode, dynamic=False)
    with torch.no_grad():
        for n in (4, 8, 4, 8, 4, 8, 4):
            for _ in range(4):
                x = torch.randn(n, 32)
                torch.testing.assert_close(fast(x).clone(), model(x), rtol=1e-5, atol=1e-5)
            # An update in place is seen by the next replay.
            model[0].weight.mul_(0.9)
    assert all_compiled()
    from torch._inductor.cudagraph_trees import get_manager

    assert get_manager(0, create_if_none_exists=False) is not None, "captured"


def test_cuda_graphs_read_parameters_where_they_are():
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.BatchNorm1d(64)).eval()
    x = torch.randn(8, 64)
    fast = torch.compile(model, backend=kiln, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            fast(x)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
            fast(x)
            torch.cuda.synchronize()
        copies = sum(e.count for e in found.key_averages() if "Memcpy DtoD" in e.key)
        assert copies <= 1, f"{copies} copies for one input"
        # In place, and moved.
        model[2].bias.add_(1)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
        model[0].weight.data = torch.randn(64, 64)
        for _ in range(4):
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    assert all_compiled()


def test_training_with_cuda_graphs():
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))
    twin = copy.deepcopy(model)
    fast = torch.compile(twin, backend=kiln, mode="reduce-overhead")
    own, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, twin))
    for _ in range(8):
        x, y = torch.randn(16, 32), torch.randn(16, 8)
        for call, optimizer in ((model, own), (fast, other)):
            optimizer.zero_grad()
            nn.functional.mse_loss(call(x), y).backward()
            optimizer.step()
    for (what, p), q in zip(model.named_parameters(), twin.parameters()):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5, msg=what)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_in_inference_is_one_program(dtype):
    fn = lambda q, k, v: nn.functional.scaled_dot_product_attention(q * 2, k, v, is_causal=True)
    q, k, v = (torch.randn(2, 4, 128, 64, dtype=dtype) for _ in range(3))
    with torch.no_grad():
        got, want = torch.compile(fn, backend=kiln)(q, k, v), fn(q, k, v)
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    assert [r.programs for r in reports] == [1] and all_compiled()


def test_attention_in_training():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(64, 192)

        def forward(self, x):
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 32).permute(2, 0, 3, 1, 4)
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    model = Attention()
    twin = copy.deepcopy(model)
    fast = torch.compile(twin, backend=kiln)
    x = torch.randn(2, 33, 64)
    for m, call in ((model, model), (twin, fast)):
        call(x).square().sum().backward()
    torch.testing.assert_close(twin.qkv.weight.grad, model.qkv.weight.grad, rtol=1e-4, atol=1e-4)


def test_threads_with_streams_of_their_own():
    import concurrent.futures

    fn = torch.compile(lambda x: torch.relu(x @ x.T).sum(1), backend=kiln)
    x = torch.randn(64, 64)
    with torch.no_grad():
        want = fn(x)
    torch.cuda.synchronize()

    def call(_):
        # The default device is each thread's own, and a condition of the compiled code.
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad(), torch.device("cuda"):
            got = fn(x)
            torch.cuda.current_stream().synchronize()
            return got

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for got in pool.map(call, range(64)):
            torch.testing.assert_close(got, want)


def test_graphs_with_functions_of_the_host_are_no_cuda_graphs():
    def fn(x):
        p, _, u = torch.linalg.lu(x.sin())
        return p @ u.exp() + 1

    x = torch.randn(3, 8, 8)
    found = torch.compile(fn, backend=kiln, mode="reduce-overhead")
    for _ in range(4):
        torch.testing.assert_close(found(x), fn(x))
    assert all_compiled()
    # The order of rows is the host's in any case.
    torch._dynamo.reset()
    assert "kiln.linalg.permutation runs on the host" in explain(fn, x)


def test_factorizations_run_on_the_current_stream():
    def fn(x):
        return torch.linalg.inv(x @ x.mT + torch.eye(64, device=x.device)).sin()

    x, stream = torch.randn(2, 64, 64), torch.cuda.Stream()
    found = torch.compile(fn, backend=kiln)
    want = fn(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            # Written late: a call that does not wait for it reads something else.
            late = torch.zeros_like(x)
            torch.cuda._sleep(20_000_000)
            late.copy_(x)
            y = found(late)
            torch.testing.assert_close(y, want, rtol=1e-3, atol=1e-3)
    torch.cuda.synchronize()

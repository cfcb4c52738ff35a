"""PyTorch's random numbers on a GPU, in NumPy: its kernels run thread by thread, as ATen's `native/cuda/DistributionTemplates.h`, `Dropout.cu`
and `cuda/CUDAApplyUtils.cuh` and cuRAND's `curand_philox4x32_x.h`, `curand_uniform.h`, `curand_normal.h` state them. Transcendental functions
are NumPy's, so numbers made by these agree to rounding only."""
import numpy as np
import torch

f32 = np.float32
CTA, MASK = 256, (1 << 32) - 1


def philox(seed: int, block: int, stream: int) -> list[int]:
    """The four words of philox4x32-10."""
    c = [block & MASK, block >> 32 & MASK, stream & MASK, stream >> 32 & MASK]
    k = [seed & MASK, seed >> 32 & MASK]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [q >> 32 ^ c[1] ^ k[0], q & MASK, p >> 32 ^ c[3] ^ k[1], p & MASK]
        k = [k[0] + 0x9E3779B9 & MASK, k[1] + 0xBB67AE85 & MASK]
    return c


class Curand:
    """curandStatePhilox4_32_10: `curand4` gives a block and moves on by one."""

    def __init__(self, seed: int, stream: int, offset: int):
        self.seed, self.stream, self.block = seed, stream, offset // 4

    def curand4(self) -> list[int]:
        words = philox(self.seed, self.block, self.stream)
        self.block += 1
        return words


class Generator:
    """CUDAGeneratorImpl of a GPU that runs `most` threads at once."""

    def __init__(self, seed: int, offset: int, most: int):
        self.seed, self.offset, self.most = seed, offset, most

    def advance(self, by: int) -> int:
        offset = self.offset
        self.offset += (by + 3) // 4 * 4
        return offset

    def policy(self, n: int, unroll: int) -> tuple[int, int]:
        """The threads of a launch, and by how much it moves the offset."""
        threads = CTA * min(self.most // CTA, (n + CTA - 1) // CTA)
        return threads, ((n - 1) // (threads * unroll) + 1) * 4

    def nullary(self, n: int, unroll: int, dist) -> list:
        """distribution_elementwise_grid_stride_kernel: `dist` makes `unroll` numbers of a block."""
        out = [None] * n
        if n == 0:
            return out
        threads, increment = self.policy(n, unroll)
        offset = self.advance(increment)
        rounded = ((n - 1) // (threads * unroll) + 1) * threads * unroll
        for t in range(threads):
            state = Curand(self.seed, t, offset)
            for linear in range(t, rounded, threads * unroll):
                numbers = dist(state.curand4())
                for k in range(unroll):
                    if linear + threads * k < n:
                        out[linear + threads * k] = numbers[k]
        return out

    def uniforms(self, n: int, d: torch.dtype) -> np.ndarray:
        if d == torch.float64:
            return np.array(self.nullary(n, 2, lambda w: [wide_uniform(w[0], w[1]), wide_uniform(w[2], w[3])]), np.float64)
        return np.array(self.nullary(n, 4, lambda w: [uniform(x) for x in w]), f32)

    def normals(self, n: int, d: torch.dtype) -> np.ndarray:
        if d == torch.float64:
            return np.array(self.nullary(n, 2, wide_box_muller), np.float64)
        return np.array(self.nullary(n, 4, lambda w: [*box_muller(w[0], w[1]), *box_muller(w[2], w[3])]), f32)

    def uniform_(self, n: int, d=torch.float32, low=0.0, high=1.0) -> torch.Tensor:
        low, high = torch.tensor(low, dtype=d), torch.tensor(high, dtype=d)
        u = torch.from_numpy(self.uniforms(n, d))
        # One FMA: the product is exact in 80 bits.
        scaled = np.longdouble(u.numpy()) * np.longdouble((high - low).item()) + np.longdouble(low.item())
        v = torch.from_numpy(scaled.astype(u.numpy().dtype)).to(d)
        return torch.where(v == high, low, v)

    def normal_(self, n: int, d=torch.float32, mean=0.0, std=1.0) -> torch.Tensor:
        z = self.normals(n, d)
        return torch.from_numpy(z * z.dtype.type(std) + z.dtype.type(mean)).to(d)

    def log_normal_(self, n: int, mean: float, std: float) -> torch.Tensor:
        return self.normal_(n, torch.float32, mean, std).exp()

    def exponential_(self, n: int, d=torch.float32, rate=1.0) -> torch.Tensor:
        u = self.uniforms(n, d)
        half = np.finfo(u.dtype).eps / 2
        log = np.where(u >= 1 - half, -half, np.log(u)).astype(u.dtype)
        return torch.from_numpy(u.dtype.type(-1.0) / u.dtype.type(rate) * log).to(d)

    def cauchy_(self, n: int, d=torch.float32, median=0.0, sigma=1.0) -> torch.Tensor:
        u = self.uniforms(n, d)
        if d != torch.float64:
            u = np.clip(u, np.finfo(f32).eps, 1 - np.finfo(f32).eps)
        turn = (np.pi * (u - 0.5)).astype(u.dtype)
        return torch.from_numpy(u.dtype.type(median) + u.dtype.type(sigma) * np.tan(turn)).to(d)

    def geometric_(self, n: int, d: torch.dtype, p: float) -> torch.Tensor:
        u = self.uniforms(n, d)
        return torch.from_numpy(np.ceil(np.log(u) / np.log1p(-u.dtype.type(p)).astype(u.dtype))).to(d)

    def bernoulli_(self, n: int, d: torch.dtype, p: float) -> torch.Tensor:
        u = self.uniforms(n, d)
        return torch.from_numpy(u < u.dtype.type(p)).to(d)

    def bernoulli_tensor(self, p: torch.Tensor, d: torch.dtype) -> torch.Tensor:
        """CUDA_tensor_apply2 of four elements a thread."""
        offset, out = self.advance(10), []
        for first in range(0, p.numel(), 4):
            words = Curand(self.seed, first // 4, offset).curand4()
            out += [float(uniform(w)) <= float(x) for w, x in zip(words, p[first : first + 4])]
        return torch.tensor(out).to(d)

    def integers(self, n: int, start: int, stop: int, d=torch.int64) -> torch.Tensor:
        """random_from_to: `start` and `stop` as ATen's update_from and update_to leave them."""
        span = stop - start
        words = self.nullary(n, 2, wide_words) if span >= 1 << 28 else self.nullary(n, 4, list)
        return torch.tensor([w % span + start for w in words]).to(d)

    def random_(self, n: int, d: torch.dtype) -> torch.Tensor:
        counts = {torch.bool: 2, torch.int64: 1 << 63, torch.float64: (1 << 53) + 1, torch.float32: (1 << 24) + 1, torch.float16: (1 << 11) + 1, torch.bfloat16: (1 << 8) + 1}
        count = counts[d] if d in counts else torch.iinfo(d).max + 1
        words = self.nullary(n, 2, wide_words) if d in (torch.int64, torch.float64) else self.nullary(n, 4, list)
        return torch.tensor([w % count for w in words]).to(d)

    def dropout(self, x: torch.Tensor, p: float) -> tuple[torch.Tensor, torch.Tensor]:
        """fused_dropout_kernel_vec, or fused_dropout_kernel where no vector fits; memory is aligned."""
        n, d = x.numel(), x.dtype
        wide = np.float64 if d == torch.float64 else f32
        keep, vector = wide(1.0 - p), 16 // x.element_size()
        while n % vector:
            vector //= 2
        if vector == 1:
            mask = [float(u) < keep for u in self.nullary(n, 4, lambda w: [uniform(x) for x in w])]
        else:
            mask, (threads, increment) = [None] * n, self.policy(n, 4)
            offset = self.advance(increment)
            for t in range(threads):
                state = Curand(self.seed, t, offset)
                for linear in range(t * vector, n, threads * vector):
                    numbers = [uniform(w) for _ in range((vector + 3) // 4) for w in state.curand4()]
                    for k in range(vector):
                        mask[linear + k] = float(numbers[k]) < keep
        mask = torch.tensor(mask)
        acc = torch.float64 if d == torch.float64 else torch.float32
        scale = torch.tensor(1.0 / keep, dtype=acc)
        return (x.to(acc) * mask.to(acc) * scale).to(d), mask


def uniform(word: int) -> np.float32:
    return f32(f32(word) * f32(2.0**-32) + f32(2.0**-33))


def bits53(low: int, high: int) -> int:
    return low ^ high << 21


def wide_uniform(low: int, high: int) -> np.float64:
    return np.float64(bits53(low, high)) * 2.0**-53 + 2.0**-54


def box_muller(x: int, y: int) -> tuple[np.float32, np.float32]:
    scale = f32(f32(2.0**-32) * f32(6.2831855))
    turn = f32(f32(y) * scale + f32(scale / f32(2)))
    s = np.sqrt(f32(-2) * np.log(uniform(x)))
    return np.sin(turn) * s, np.cos(turn) * s


def wide_box_muller(w: list[int]) -> tuple[np.float64, np.float64]:
    u = wide_uniform(w[0], w[1])
    v = bits53(w[2], w[3]) * 2.0**-52 + 2.0**-53
    s = np.sqrt(-2.0 * np.log(u))
    return np.sin(np.pi * v) * s, np.cos(np.pi * v) * s


def wide_words(w: list[int]) -> list[int]:
    return [w[0] << 32 | w[1], w[2] << 32 | w[3]]

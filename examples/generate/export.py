"""Makes what examples/generate.rs runs on: model.pt2, a decoder whose cache of keys and values is a pair of buffers a layer that
each step updates in place, tokenizer.json, and steps.safetensors, PyTorch's scores of some steps. PyTorch 2.11, tokenizers 0.23.

    python export.py [OUT_DIR]                           # trains for a minute or two on examples/gpt/sonnets.txt
    python export.py OUT_DIR --hugging-face MODEL        # transformers 5: a name or a folder, or tiny for random weights
"""
import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent.parent / "tests" / "models"))
from archive import save  # noqa: E402

TOKENS, LENGTH, WIDTH, LAYERS, HEADS, PAIRS = 512, 256, 64, 4, 4, 2
DIM = WIDTH // HEADS


def rotated(x, at):
    """Rotary positions: x [batch, heads, positions, DIM], at [positions]."""
    turns = at[:, None] * 10000.0 ** (-torch.arange(0, DIM, 2) / DIM)
    a, b = x.chunk(2, -1)
    return torch.cat((a * turns.cos() - b * turns.sin(), a * turns.sin() + b * turns.cos()), -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.kv = nn.Linear(WIDTH, 2 * PAIRS * DIM, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, PAIRS, LENGTH, DIM))

    def forward(self, x, at, mask=None):
        """x [batch, positions, WIDTH]. With a mask, a step at position `at` [1], which takes its place in the cache."""
        y = self.norms[0](x)
        heads = lambda t: t.unflatten(-1, (-1, DIM)).transpose(1, 2)
        q, (k, v) = heads(self.q(y)), heads(self.kv(y)).chunk(2, 1)
        q, k = rotated(q, at), rotated(k, at)
        if mask is not None:
            self.keys.index_copy_(2, at, k)
            self.values.index_copy_(2, at, v)
            k, v = self.keys, self.values
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        nn.init.normal_(self.tokens.weight, std=0.1)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)

    def scores(self, tokens):
        """Of the tokens after each of [batch, positions], without a cache."""
        at, x = torch.arange(tokens.shape[1]), self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, at)
        return self.norm(x) @ self.tokens.weight.T

    def forward(self, token, at):
        """A step: token [1, 1] and its position [1] to the scores [1, TOKENS] of the next one."""
        x, mask = self.tokens(token), torch.arange(LENGTH) <= at
        for layer in self.layers:
            x = layer(x, at, mask[None, None, None])
        return (self.norm(x) @ self.tokens.weight.T)[:, 0]


def tokenizer(text):
    """A byte-level BPE, as GPT-2's."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator([text], trainers.BpeTrainer(vocab_size=TOKENS, initial_alphabet=alphabet, show_progress=False))
    return t


def train(codes, steps=1500, batch=16, length=96):
    model = Decoder()
    rate = 3e-3
    adam = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, rate, steps, pct_start=0.05)
    for step in range(1, steps + 1):
        starts = torch.randint(len(codes) - length, (batch,))
        pieces = torch.stack([codes[s : s + length + 1] for s in starts])
        scores = model.scores(pieces[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), pieces[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        schedule.step()
        if step % 250 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    return model


def export(model, out, tokens):
    """Writes the archive of a step, and the scores of these tokens from an empty cache."""
    from safetensors.torch import save_file

    model = model.eval().requires_grad_(False)
    example = (torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    save(torch.export.export(model, example), out / "model.pt2")
    scores = [model(token.view(1, 1), torch.tensor([i])).flatten() for i, token in enumerate(tokens)]
    save_file({"tokens": tokens, "scores": torch.stack(scores)}, out / "steps.safetensors")


class StaticCache(nn.Module):
    """A model of transformers with its StaticCache as buffers."""

    def __init__(self, model, length):
        super().__init__()
        from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

        model.generation_config.cache_implementation = "static"
        self.step = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=length)

    def forward(self, token, at):
        return self.step(input_ids=token, cache_position=at)[:, -1]


def hugging_face(name, out):
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    if name == "tiny":
        config = LlamaConfig(vocab_size=TOKENS, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                             num_key_value_heads=2, max_position_embeddings=LENGTH)
        model = LlamaForCausalLM(config)
    else:
        model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
        AutoTokenizer.from_pretrained(name).backend_tokenizer.save(str(out / "tokenizer.json"))
    length = min(1024, model.config.max_position_embeddings)
    export(StaticCache(model.eval(), length), out, torch.arange(1, 9))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out", nargs="?", type=Path, default=HERE)
    p.add_argument("--hugging-face", metavar="MODEL")
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    if a.hugging_face:
        return hugging_face(a.hugging_face, a.out)
    text = (HERE.parent / "gpt" / "sonnets.txt").read_text()
    t = tokenizer(text)
    t.save(str(a.out / "tokenizer.json"))
    codes = torch.tensor(t.encode(text).ids)
    print(f"{len(text)} characters are {len(codes)} tokens")
    export(train(codes), a.out, codes[:12].clone())


if __name__ == "__main__":
    main()

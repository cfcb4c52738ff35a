#!/usr/bin/env python3
"""Public models at sizes that fill a GPU: torch.compile(backend="kiln") beside eager and TorchInductor, each model in a process of its own.

    public.py --out FILE.jsonl [--training] [--prepare] [--jobs 8] [--only REGEX] [--seconds S] [--report] [--results FILE.json]

Weights and inputs are random; what is compared and timed says `backend.py`. With `--prepare` the models are compiled and called once, `--jobs` at a time, which
fills the caches of all compilers and times nothing; later runs start from these caches. Continues FILE.jsonl.
"""
import argparse, json, math, re, statistics, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "zoo"))

import forked
import torch

# timm's name: batch
IMAGES = {
    "resnet50": 128, "resnext50_32x4d": 64, "wide_resnet50_2": 64, "regnety_032": 64, "densenet121": 64, "efficientnet_b0": 128, "efficientnetv2_rw_t": 64,
    "mobilenetv3_large_100": 128, "mobilenetv2_100": 128, "convnext_tiny": 64, "convnextv2_tiny": 64, "vit_small_patch16_224": 128, "vit_base_patch16_224": 64,
    "deit3_small_patch16_224": 128, "swin_tiny_patch4_window7_224": 64, "swinv2_tiny_window8_256": 64, "beit_base_patch16_224": 64, "cait_xxs24_224": 64,
    "mixer_b16_224": 64, "resmlp_12_224": 128, "poolformer_s12": 64, "pvt_v2_b1": 64, "coatnet_0_rw_224": 64, "maxvit_tiny_tf_224": 32,
    "xcit_small_12_p16_224": 64, "ghostnet_100": 128, "mobilevit_s": 64, "levit_256": 128, "res2net50_26w_4s": 64, "nfnet_l0": 64, "volo_d1_224": 32,
    "repvgg_a2": 64, "hrnet_w18": 64, "dla34": 64, "eva02_small_patch14_224": 64,
}
# torchvision's name: batch
VISION = {"resnet18": 256, "vgg16": 64, "squeezenet1_1": 128, "shufflenet_v2_x1_0": 256, "mnasnet1_0": 128, "regnet_y_1_6gf": 64}
# transformers' class: configuration's class, batch, length, changes of the configuration
TEXT = {
    "BertModel": ("BertConfig", 16, 512, {}), "RobertaForMaskedLM": ("RobertaConfig", 16, 512, {"max_position_embeddings": 514}),
    "DistilBertModel": ("DistilBertConfig", 32, 512, {}), "AlbertModel": ("AlbertConfig", 16, 512, {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    "ElectraModel": ("ElectraConfig", 32, 512, {}), "DebertaV2Model": ("DebertaV2Config", 8, 512, {"hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 3072}),
    "XLNetLMHeadModel": ("XLNetConfig", 8, 512, {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}), "GPT2LMHeadModel": ("GPT2Config", 8, 1024, {}),
    "GPTNeoForCausalLM": ("GPTNeoConfig", 8, 1024, {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "attention_types": [[["global", "local"], 6]]}),
    "OPTForCausalLM": ("OPTConfig", 8, 1024, {}), "BloomForCausalLM": ("BloomConfig", 8, 1024, {"vocab_size": 32000, "hidden_size": 1024, "n_layer": 12, "n_head": 16}),
    "T5EncoderModel": ("T5Config", 16, 512, {"num_layers": 12}), "LlamaForCausalLM": ("LlamaConfig", 2, 2048, {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 8}),
    "Qwen2ForCausalLM": ("Qwen2Config", 4, 1024, {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 12, "num_attention_heads": 14, "num_key_value_heads": 2}),
    "GemmaForCausalLM": ("GemmaConfig", 2, 1024, {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 1, "vocab_size": 32000}),
    "PhiForCausalLM": ("PhiConfig", 4, 1024, {"num_hidden_layers": 8}), "MistralForCausalLM": ("MistralConfig", 2, 2048, {"hidden_size": 2048, "intermediate_size": 7168, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4}),
    "WhisperEncoder": ("WhisperConfig", 16, 0, {"d_model": 512, "encoder_layers": 6, "encoder_attention_heads": 8, "encoder_ffn_dim": 2048}),
    "Wav2Vec2Model": ("Wav2Vec2Config", 8, 0, {}), "CLIPVisionModel": ("CLIPVisionConfig", 64, 0, {}), "Dinov2Model": ("Dinov2Config", 32, 0, {}), "SegformerModel": ("SegformerConfig", 16, 0, {}),
}
SHAPES = {"WhisperEncoder": (16, 80, 3000), "Wav2Vec2Model": (8, 64000), "CLIPVisionModel": (64, 3, 224, 224), "Dinov2Model": (32, 3, 224, 224), "SegformerModel": (16, 3, 512, 512)}


def transformer(name):
    import transformers

    config, batch, length, sizes = TEXT[name]
    made = getattr(transformers, config)(**sizes)
    for key in ("use_cache", "apply_spec_augment"):
        if hasattr(made, key):
            setattr(made, key, False)
    cls = getattr(transformers, name, None) or getattr(transformers.models.whisper.modeling_whisper, name)
    return cls(made), [torch.randn(SHAPES[name])] if name in SHAPES else [torch.randint(0, made.vocab_size, (batch, length))]


def image(name):
    import timm

    model = timm.create_model(name, pretrained=False)
    return model, [torch.randn(IMAGES[name], *model.default_cfg["input_size"])]


def vision(name):
    import torchvision

    return torchvision.models.get_model(name, weights=None), [torch.randn(VISION[name], 3, 224, 224)]


MAKERS = {f"{family}.{name}": (make, name) for family, make, names in (("timm", image, IMAGES), ("torchvision", vision, VISION), ("transformers", transformer, TEXT)) for name in names}


def chosen(only, done):
    """The models that are to run: name, maker, what it takes."""
    import timm, torchvision, transformers  # before the forks

    return [(name, *made) for name, made in MAKERS.items() if name not in done and re.search(only, name)]


def one(a, name, make, given):
    from backend import ITEMS, compare

    try:
        with torch.device("cuda"):
            made = make(given)
    except RuntimeError:  # what mixes devices while it is made
        made = make(given)
    ITEMS[name] = lambda: made
    try:
        row = compare(a, name, a.training)
    except Exception as e:  # also where eager fails, as of a model that keeps f32 tensors in a cache
        return {"outcome": "failed", "detail": forked.say(e)}
    return {**row, "outcome": "agrees" if row["agrees"] else "differs", "detail": ", ".join([*row["sides"], *(f"{side} fails: {why}" for side, why in row.get("failed", {}).items())])}


def summary(path):
    """A line a model, and the geometric mean of kiln's best time over Inductor's best."""
    ratios = []
    for row in forked.lines_of(path):
        ms = {n: statistics.median(s["us"]) / 1e3 for n, s in row.get("sides", {}).items() if s.get("us")}
        best = lambda kind: min((t for n, t in ms.items() if n.startswith(kind)), default=math.nan)
        ratio = best("kiln") / best("Inductor")
        if not math.isnan(ratio):
            ratios.append(ratio)
        graphs = next((s["graphs"] for n, s in row.get("sides", {}).items() if n.startswith("kiln") and "graphs" in s), "")
        eager = next((s["eager_ops"] for n, s in row.get("sides", {}).items() if n.startswith("kiln") and s.get("eager_ops")), "")
        print(f"{row['model'][:44]:44} {row['outcome']:8} {ratio:5.2f} " + " ".join(f"{n.replace('Inductor', 'I').replace('reduce-overhead', 'ro')} {t:.2f}" for n, t in ms.items()) + f" {graphs} {eager}"[:160], row["detail"][:100] if not ms else "")
    if ratios:
        print(f"{len(ratios)} models, geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}, above 1/0.95: {sum(r > 1 / 0.95 for r in ratios)}")


def results(path, to):
    """Fills the rows of a file of `benches/results`."""
    suite, rows = json.loads(Path(to).read_text()), []
    for row in forked.lines_of(path):
        sides = {n: s for n, s in row.get("sides", {}).items() if s.get("us")}
        kiln = next((n for n in sides if n.startswith("kiln")), None)
        if kiln is None or len(sides) < 2:
            continue
        family, name = row["model"].split(".")
        shape = TEXT[name][1:3] if name in TEXT and name not in SHAPES else (SHAPES.get(name) or [{**IMAGES, **VISION}[name]])
        peers = {}
        for n, s in sides.items():
            if n != kiln:
                each = sorted(round(x / y, 2) for x, y in zip(sides[kiln]["us"], s["us"]))
                peers[n] = {"time": round(statistics.median(s["us"]) / 1e3, 2), "ratio": statistics.median(each), "low": each[0], "high": each[-1]}
        values = {"error": f"{sides[kiln]['error']:.1e} ({sides['eager']['error']:.1e})", "kernels": str(sum(g[2] for g in sides[kiln].get("graphs", [])))}
        rows.append({"name": f"{family} {name}", "shape": "x".join(map(str, shape)), "kiln": round(statistics.median(sides[kiln]["us"]) / 1e3, 2), "peers": peers, "values": values})
    suite["rows"] = rows
    Path(to).write_text(json.dumps(suite, indent=1) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    forked.running(p)
    p.add_argument("--training", action="store_true")
    p.add_argument("--prepare", action="store_true")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--inductor", default="default,reduce-overhead")
    p.add_argument("--kiln", default="default,reduce-overhead")
    p.add_argument("--kernels", type=int, default=0, help="lists that many kernels of each side, those that take most of a call")
    p.add_argument("--results", help="a file of benches/results whose rows are replaced")
    a = p.parse_args()
    a.freezing = False
    if a.prepare:
        a.rounds = 1
    forked.run(a, one, lambda done: chosen(a.only, done))
    if a.results:
        results(a.out, a.results)
    summary(a.out)


if __name__ == "__main__":
    main()

"""Public models with random weights: names, makers and inputs, by family.

torchvision: every model of its registry; timm: one model of every module file, the smallest; transformers: every
architecture of the auto classes, with a small configuration; torchaudio and diffusers: their architectures, small.
"""
import random
import re

from diffusion import diffusion_models
from language import language_models


def vision_models():
    """torchvision: name -> maker of model and inputs. Detection models have outputs of data-dependent size."""
    import torch
    import torchvision.models as models

    for name in models.list_models():
        size = 75 if "inception" in name else 64
        if name.startswith(("vit", "maxvit")):
            size = 224
        inputs = lambda model, size=size: (torch.randn(1, 3, size, size),)
        if "raft" in name:
            inputs = lambda model: (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128))
        elif name.startswith(("r3d", "mc3", "r2plus1d", "s3d", "swin3d", "mvit")):
            inputs = lambda model, size=224 if name.startswith(("mvit", "s3d")) else 64: (torch.randn(1, 3, 16, size, size),)
        parts = {"weights_backbone": None} if re.search("rcnn|lraspp|deeplab|fcn_|ssd|retina|fcos", name) else {}
        make = lambda name=name, parts=parts: models.get_model(name, weights=None, **parts)
        yield name, make, inputs


# Modules of timm whose smallest model is large.
LARGE = ("deepseek_vit", "qwen3_vit")


def image_models():
    """timm: the smallest model of each module file, at the size it wants."""
    import timm
    import torch

    for module in timm.list_modules():
        found = []
        for name in timm.list_models(module=module):
            try:
                config = timm.get_pretrained_cfg(name)
            except Exception:
                continue
            found.append((config.input_size[-1] if config else 224, len(name), name))
        if not found:
            continue
        # By its parameters on the meta device, among a few short names.
        small = []
        for size, _, name in sorted(found)[:6]:
            try:
                with torch.device("meta"):
                    small.append((sum(p.numel() for p in timm.create_model(name).parameters()), size, name))
            except Exception:
                small.append((1 << 60, size, name))
        _, _, name = min(small)
        config = timm.get_pretrained_cfg(name)
        shape = tuple(config.input_size) if config else (3, 224, 224)
        less = {"depth": 2, "embed_dim": 128, "num_heads": 4} if module in LARGE else {}
        yield f"{module}.{name}", lambda name=name, less=less: timm.create_model(name, **less), lambda model, shape=shape: (torch.randn(1, *shape),)


def sound_models():
    """torchaudio: each architecture once, at its base size or smaller."""
    import torch
    import torchaudio.models as models

    wave, lengths = lambda model: (torch.randn(2, 4000),), torch.tensor([32, 32])
    wide = {"encoder_embed_dim": 64, "encoder_num_layers": 2, "encoder_num_heads": 4, "encoder_ff_interm_features": 128}
    rates = {f"encoder_{n}": 0.0 for n in ("projection_dropout", "attention_dropout", "ff_interm_dropout", "dropout", "layer_drop")}
    convolutions = [(32, 10, 5)] + [(32, 3, 2)] * 4 + [(32, 2, 2)] * 2
    features = {"extractor_mode": "group_norm", "extractor_conv_layer_config": convolutions, "extractor_conv_bias": False}
    small = wide | rates | features | {"encoder_pos_conv_kernel": 16, "encoder_pos_conv_groups": 4, "encoder_layer_norm_first": False, "aux_num_out": 29}
    frames = lambda model: (torch.randn(2, 32, 80), lengths)
    yield "wav2vec2", lambda: models.wav2vec2_model(**small), wave
    yield "wavlm", lambda: models.wavlm_model(**small, encoder_num_buckets=32, encoder_max_distance=64), wave
    yield "conformer", lambda: models.Conformer(80, 4, 128, 2, 31), frames
    yield "emformer", lambda: models.Emformer(80, 4, 128, 2, 4, right_context_length=1), frames
    yield "conv_tasnet", lambda: models.ConvTasNet(num_sources=2, enc_num_feats=64, msk_num_feats=32, msk_num_hidden_feats=64, msk_num_layers=3, msk_num_stacks=2), lambda model: (torch.randn(2, 1, 4000),)
    yield "deepspeech", lambda: models.DeepSpeech(80, n_hidden=128), lambda model: (torch.randn(2, 1, 16, 80),)
    yield "hdemucs", lambda: models.HDemucs(["a", "b"], channels=8, nfft=1024, depth=4), lambda model: (torch.randn(1, 2, 8192),)
    yield "wav2letter", lambda: models.Wav2Letter(num_classes=29), lambda model: (torch.randn(2, 1, 4000),)
    yield "wavernn", lambda: models.WaveRNN([2, 2, 3], 64, 12, n_res_block=2, n_rnn=32, n_fc=32, n_freq=16, n_hidden=16, n_output=16), lambda model: (torch.randn(2, 1, 72), torch.randn(2, 1, 16, 10))
    yield "tacotron2", lambda: models.Tacotron2(n_mels=16, symbol_embedding_dim=64, encoder_embedding_dim=64, decoder_rnn_dim=64, attention_rnn_dim=64, prenet_dim=32, postnet_embedding_dim=64), lambda model: (
        torch.randint(0, 148, (2, 12)), torch.tensor([12, 12]), torch.randn(2, 16, 8), torch.tensor([8, 8]))
    yield "squim_objective", models.squim_objective_base, lambda model: (torch.randn(1, 8000),)


FAMILIES = {
    "torchvision": vision_models, "timm": image_models, "transformers": language_models, "torchaudio": sound_models, "diffusers": diffusion_models,
}


def without_ties(make):
    """A maker whose matrices of one value are drawn instead: a router of zeros gives equal scores, and topk's order is open."""

    def made():
        import torch

        model = make()
        with torch.no_grad():
            for p in model.parameters():
                if p.dim() >= 2 and p.is_floating_point() and p.numel() > 1 and bool((p == p.flatten()[0]).all()):
                    p.normal_(0, 0.02)
        return model

    return made


def selected(families, only, done):
    """(name, maker, inputs) of the models of these families whose names match, in a random order that is always the same."""
    models = []
    for family in families.split(","):
        try:
            models += [(f"{family}.{name}", without_ties(make), inputs) for name, make, inputs in FAMILIES[family]()]
        except ImportError as e:
            print(f"without {family}: {e}")
    models = [m for m in models if re.search(only, m[0]) and m[0] not in done]
    random.Random(0).shuffle(models)
    return models

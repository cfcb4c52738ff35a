"""Public models with random weights: names, makers and inputs, by family.

torchvision: every model of its registry; timm: one model of every module file, the smallest; transformers: every
architecture of the auto classes, with a small configuration.
"""
import random
import re


def vision_models():
    """torchvision: name -> maker of model and inputs. Detection models have outputs of data-dependent size."""
    import torch
    import torchvision.models as models

    for name in models.list_models():
        size = 75 if "inception" in name else 64
        if name.startswith(("vit", "maxvit")):
            size = 224
        inputs = lambda size=size: (torch.randn(1, 3, size, size),)
        if "raft" in name:
            inputs = lambda: (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128))
        elif name.startswith(("r3d", "mc3", "r2plus1d", "s3d", "swin3d", "mvit")):
            inputs = lambda size=224 if name.startswith("mvit") else 64: (torch.randn(1, 3, 16, size, size),)
        make = lambda name=name: models.get_model(name, weights=None, **({"weights_backbone": None} if "rcnn" in name or "lraspp" in name or "deeplab" in name or "fcn_" in name or "ssd" in name or "retina" in name else {}))
        yield name, make, inputs


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
        yield f"{module}.{name}", lambda name=name: timm.create_model(name), lambda shape=shape: (torch.randn(1, *shape),)


SMALL = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 512,
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_inner": 128, "dim": 64,
    "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "num_layers": 2, "num_heads": 4, "d_kv": 16, "d_ff": 128,
    "embedding_size": 64, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128, "image_size": 64,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_intermediate_size": 64, "num_labels": 3,
    "ffn_dim": 128, "word_embed_proj_dim": 64, "rotary_dim": 8, "pad_token_id": 0, "use_cache": False,
}


def language_models():
    """transformers: the architectures of the auto classes of text models, small, by their configuration class."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    groups = {
        "base": auto.MODEL_MAPPING_NAMES,
        "causal": auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        "masked": auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        "seq2seq": auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        "image": auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
        "audio": auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES,
    }
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for group, names in groups.items():
        for kind, classes in names.items():
            for cls in [classes] if isinstance(classes, str) else classes[:1]:

                def make(kind=kind, cls=cls):
                    config = CONFIG_MAPPING[kind]()
                    shrink(config)
                    config.return_dict = True
                    return getattr(transformers, cls)(config)

                yield f"{group}.{kind}", make, None


def shrink(config):
    for key, value in SMALL.items():
        if hasattr(config, key) and isinstance(getattr(config, key), (int, float, type(None))) and getattr(config, key) is not None:
            try:
                setattr(config, key, value)
            except Exception:
                pass
    for part in ("text_config", "vision_config", "audio_config", "encoder", "decoder", "qformer_config"):
        inner = getattr(config, part, None)
        if inner is not None and hasattr(inner, "to_dict"):
            shrink(inner)


def text_inputs(model):
    """Inputs by the names of the model's forward."""
    import inspect
    import torch

    names = inspect.signature(model.forward).parameters
    config = model.config
    inputs = {}
    if "input_ids" in names:
        inputs["input_ids"] = torch.randint(3, 200, (2, 16))
    if "decoder_input_ids" in names:
        inputs["decoder_input_ids"] = torch.randint(3, 200, (2, 16))
    if "pixel_values" in names:
        size = getattr(config, "image_size", None) or getattr(getattr(config, "vision_config", None), "image_size", None) or 64
        size = size if isinstance(size, int) else size[0]
        inputs["pixel_values"] = torch.randn(2, getattr(config, "num_channels", 3), size, size)
    if "input_values" in names:
        inputs["input_values"] = torch.randn(2, 4000)
    if "input_features" in names:
        inputs["input_features"] = torch.randn(2, getattr(config, "num_mel_bins", 80), 128)
    return inputs


FAMILIES = {"torchvision": vision_models, "timm": image_models, "transformers": language_models}


def selected(families, only, done):
    """(name, maker, inputs) of the models of these families whose names match, in a random order that is always the same."""
    models = []
    for family in families.split(","):
        try:
            models += [(f"{family}.{name}", make, inputs) for name, make, inputs in FAMILIES[family]()]
        except ImportError as e:
            print(f"without {family}: {e}")
    models = [m for m in models if re.search(only, m[0]) and m[0] not in done]
    random.Random(0).shuffle(models)
    return models

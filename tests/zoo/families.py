"""Public models with random weights: names, makers and inputs, by family.

torchvision: every model of its registry; timm: one model of every module file, the smallest; transformers: every
architecture of the auto classes, with a small configuration.
"""
import random
import re

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
            inputs = lambda model, size=224 if name.startswith("mvit") else 64: (torch.randn(1, 3, 16, size, size),)
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
        yield f"{module}.{name}", lambda name=name: timm.create_model(name), lambda model, shape=shape: (torch.randn(1, *shape),)


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

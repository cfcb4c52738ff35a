"""Sizes of the inputs of transformers' models, by the configuration."""
import inspect
import math

BATCH, TOKENS, FRAMES = 2, 16, 64
MEL = ("num_mel_bins", "input_feat_per_channel", "feature_size", "feature_projection_input_dim", "input_feat_size", "input_dim", "mel_bins", "n_mels")


def attribute(config, names, default=None):
    """The first of these attributes that the configuration or one of its parts has."""
    from transformers import PreTrainedConfig

    for name in names:
        if getattr(config, name, None) is not None:
            return getattr(config, name)
    for part in vars(config).values():
        if isinstance(part, PreTrainedConfig):
            found = attribute(part, names)
            if found is not None:
                return found
    return default


def pair(value):
    return tuple(value)[-2:] if isinstance(value, (list, tuple)) else (value, value)


def vision(config):
    """The configuration of the part that sees images."""
    from transformers import PreTrainedConfig

    for name in ("vision_config", "thinker_config", "image_encoder", "encoder", "backbone_config", "vlm_config"):
        if isinstance(getattr(config, name, None), PreTrainedConfig):
            return vision(getattr(config, name))
    return config


def channels(config):
    value = getattr(config, "num_channels", None) or getattr(config, "in_channels", None)
    return value if isinstance(value, int) else 3


class Sizes:
    """Sizes of the inputs of a model."""

    def __init__(self, model):
        self.model, self.config = model, model.config
        self.names = inspect.signature(model.forward).parameters
        self.needed = {n for n, p in self.names.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD}
        seen = vision(self.config)
        size = attribute(seen, ("image_size", "img_size"), 64)
        self.image = (channels(seen), *((size["height"], size["width"]) if isinstance(size, dict) else pair(size)))
        self.frames = attribute(self.config, ("num_frames",))
        # Images as rows of patches, of one frame, whose grid is two merged patches high and wide.
        merge = pair(attribute(seen, ("spatial_merge_size", "merge_kernel_size"), 1))
        self.grid = [1, 2 * merge[0], 2 * merge[1]]
        self.patch = pair(attribute(seen, ("patch_size",), 14))
        self.temporal = attribute(seen, ("temporal_patch_size", "patch_temporal"), 1)
        text = self.config.get_text_config() if hasattr(self.config, "get_text_config") else self.config
        self.vocabulary = min(200, getattr(text, "vocab_size", None) or 200)
        self.mel = attribute(self.config, MEL, 80)

    def patches(self, batch=BATCH):
        """Patches of images as rows."""
        import torch

        rows, (p, q) = batch * math.prod(self.grid), self.patch
        if self.config.model_type.startswith("kimi"):
            return torch.randn(rows, self.image[0], p, q)
        return torch.randn(rows, self.image[0] * self.temporal * p * q)

    def tokens(self, *shape):
        import torch

        return torch.randint(3, self.vocabulary, shape or (BATCH, TOKENS))

    def mels(self):
        """Mel spectrograms: channels come first where the model's first convolution reads them so."""
        import torch

        length = attribute(self.config, ("max_source_positions",))
        conv = next((m for m in self.model.modules() if isinstance(m, torch.nn.Conv1d)), None)
        if conv is not None and conv.in_channels == self.mel and "speech_to_text" not in self.config.model_type:
            return torch.randn(BATCH, self.mel, 2 * length if length else FRAMES)
        return torch.randn(BATCH, FRAMES, self.mel)

    def sound(self):
        """Samples of sounds: with a channel for codecs, which take a mask of padding."""
        import torch

        spectrogram = attribute(self.config, ("max_length",)), getattr(self.config, "num_mel_bins", None)
        if all(isinstance(n, int) for n in spectrogram) and "conv_dim" not in vars(self.config):
            return torch.randn(BATCH, *spectrogram)
        codec = self.names.keys() & {"padding_mask", "bandwidth", "n_quantizers"}
        return torch.randn(BATCH, 1, 4000) if codec else torch.randn(BATCH, 4000)


def ones(*shape):
    import torch

    return torch.ones(*shape, dtype=torch.long)


def noise(*shape):
    import torch

    return torch.randn(*shape)

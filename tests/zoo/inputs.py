"""Inputs of transformers' models, by the parameters of forward and by the configuration.

Lists of numbers, such as the grids of images in patches, are constants of the program; tensors are its inputs.
"""
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


def images(s, given):
    import torch

    if "image_grid_thw" in s.names or "grid_thw" in s.names:
        return s.patches()
    if "spatial_shapes" in s.names or "image_position_ids" in s.names or "pixel_position_ids" in s.names:
        return torch.randn(BATCH, 16, s.image[0] * math.prod(s.patch))
    several = "pixel_attention_mask" in s.names and "input_ids" in s.names or "image_attention_mask" in s.names
    dims = (BATCH, 1) if several else (BATCH, 2) if getattr(s.config, "image_grid_pinpoints", None) else (BATCH,)
    if s.frames and "input_ids" not in s.names:
        dims = (BATCH, s.frames)
    return torch.randn(*dims, *s.image)


def ones(*shape):
    import torch

    return torch.ones(*shape, dtype=torch.long)


def noise(*shape):
    import torch

    return torch.randn(*shape)


# What a parameter of forward takes: of the model's sizes and the inputs before it. Those that are optional are given too,
# but for the names in OPTIONAL.
VALUES = {
    "pixel_values": images,
    "grid_thw": lambda s, given: [s.grid] * BATCH,
    "image_grid_thw": lambda s, given: [s.grid] * BATCH,
    "image_merge_sizes": lambda s, given: [s.grid[1] // 2] * BATCH,
    "merge_sizes": lambda s, given: [1] * BATCH,
    "spatial_shapes": lambda s, given: [[4, 4]] * BATCH,
    "image_position_ids": lambda s, given: [[[k % 4, k // 4] for k in range(16)]] * BATCH,
    "pixel_position_ids": lambda s, given: [[[k % 4, k // 4] for k in range(16)]] * BATCH,
    "pixel_attention_mask": lambda s, given: ones(BATCH, 16) if "spatial_shapes" in s.names else None,
    "image_sizes": lambda s, given: [list(s.image[1:])] * BATCH,
    "pixel_values_videos": lambda s, given: noise(BATCH, s.frames or 2, *s.image) if not given.keys() & {"pixel_values"} else None,
    "high_res_pixel_values": lambda s, given: noise(BATCH, *s.image),
    "hidden_states": lambda s, given: s.patches() if "grid_thw" in s.names else noise(BATCH, TOKENS, 64),
    "bbox": lambda s, given: ones(BATCH, TOKENS, 4) if s.config.model_type != "bros" else noise(BATCH, TOKENS, 4).abs(),
    "input_values": lambda s, given: s.sound(),
    "input_features": lambda s, given: s.mels(),
    "input_features_mask": lambda s, given: heard(s, given),
    "feature_attention_mask": lambda s, given: heard(s, given),
    "past_values": lambda s, given: noise(BATCH, *time_steps(s)),
    "past_time_features": lambda s, given: noise(BATCH, time_steps(s)[0], s.config.num_time_features or 1),
    "past_observed_mask": lambda s, given: ones(BATCH, *time_steps(s)).float(),
    "future_values": lambda s, given: noise(BATCH, s.config.prediction_length) if "past_time_features" in s.names else None,
    "future_time_features": lambda s, given: noise(BATCH, s.config.prediction_length, s.config.num_time_features or 1),
    "input_ids": lambda s, given: s.tokens(*codebooks(s)),
    "qformer_input_ids": lambda s, given: s.tokens(),
    "decoder_input_ids": lambda s, given: s.tokens(),
    "task_inputs": lambda s, given: s.tokens(BATCH, getattr(s.config, "task_seq_len", 77)),
    "visual_feats": lambda s, given: noise(BATCH, 4, s.config.visual_feat_dim),
    "visual_pos": lambda s, given: noise(BATCH, 4, 4),
    "aspect_ratio_ids": lambda s, given: ones(BATCH, 1),
    "aspect_ratio_mask": lambda s, given: ones(BATCH, 1, s.config.vision_config.max_num_tiles),
    "prompt_pixel_values": lambda s, given: noise(BATCH, *s.image),
    "prompt_masks": lambda s, given: noise(BATCH, *s.image),
    "flattened_patches": lambda s, given: noise(BATCH, 16, 2 + 3 * math.prod(s.patch)),
    "states": lambda s, given: noise(BATCH, 8, s.config.state_dim),
    "actions": lambda s, given: noise(BATCH, 8, s.config.act_dim),
    "rewards": lambda s, given: noise(BATCH, 8, 1),
    "returns_to_go": lambda s, given: noise(BATCH, 8, 1),
    "timesteps": lambda s, given: ones(BATCH, 8),
    "query_embeds": lambda s, given: noise(BATCH, 8, 64),
}


def codebooks(s):
    """Codes of sounds: a row of each codebook, or a column."""
    kind, count = s.config.model_type, getattr(s.config, "num_codebooks", None) or 1
    return (BATCH * count, TOKENS) if kind.startswith("musicgen") and "decoder" in kind else (BATCH, TOKENS, count) if kind in ("csm",) else (BATCH, TOKENS)


def heard(s, given):
    """The mask of all frames of the spectrograms."""
    shape = given["input_features"].shape if "input_features" in given else (BATCH, FRAMES, s.mel)
    return ones(BATCH, next((n for n in shape[1:] if n != s.mel), FRAMES))


def time_steps(s):
    length, lags = attribute(s.config, ("context_length",), 16), getattr(s.config, "lags_sequence", None) or [0]
    channels = getattr(s.config, "num_input_channels", None)
    return (length + max(lags), *([channels] if channels else []))


def features(s, given):
    """How many features of a sample the model makes of its images and sounds, by the token that stands for one."""
    import torch

    found = {}
    for kind in ("image", "video", "audio"):
        inner = [s.model, *[getattr(s.model, n) for n in ("model", "encoder") if hasattr(s.model, n)]]
        get = next((getattr(m, f"get_{kind}_features") for m in inner if hasattr(m, f"get_{kind}_features")), None)
        token = attribute(s.config, (f"{kind}_token_id", f"{kind}_token_index"))
        if get is None or token is None:
            continue
        # Those of a model's own part say what they take.
        whole = inspect.signature(get).parameters
        mine = {k: v for k, v in given.items() if k in whole}
        if not mine.keys() - {"input_ids"}:
            continue
        for name, p in whole.items():
            if name not in mine and p.default is p.empty and attribute(s.config, (name,)) is not None:
                mine[name] = attribute(s.config, (name,))
        out = get(**constants(mine))
        out = getattr(out, "pooler_output", out)
        out = out if isinstance(out, torch.Tensor) else torch.cat([t.flatten(0, -2) for t in out])
        found[token] = math.prod(out.shape[:-1]) // BATCH
    return found


def constants(given):
    """Lists of numbers as tensors."""
    import torch

    return {k: torch.tensor(v) if isinstance(v, list) else v for k, v in given.items()}


def text_inputs(model):
    """Inputs by the names of the model's forward."""
    s, given = Sizes(model), {}
    if getattr(model.config, "default_language", "") is None:
        model.set_default_language(model.config.languages[0])
    for name in s.names:
        value = VALUES[name](s, given) if name in VALUES and (name in s.needed or name not in ("hidden_states", "query_embeds")) else None
        if value is not None:
            given[name] = value
    if "input_ids" in given and len(given) > 1:
        tokens = features(s, given)
        ids = s.tokens(BATCH, TOKENS + sum(tokens.values()))
        at = 2
        for token, count in tokens.items():
            ids[:, at : at + count] = token
            at += count
        if tokens:
            given["input_ids"] = ids
        for kind in ("mm_token_type_ids", "token_type_ids"):
            if kind in s.names and tokens:
                given[kind] = (ids == next(iter(tokens))).long()
                break
    return given

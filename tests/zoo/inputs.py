"""Inputs of transformers' models, by the parameters of forward and by the configuration.

Lists of numbers, such as the grids of images in patches, are constants of the program; tensors are its inputs.
"""
import inspect
import math

from particular import PARTICULAR
from sizes import BATCH, FRAMES, TOKENS, Sizes, attribute, noise, ones


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
    "actions": lambda s, given: noise(BATCH, 8, s.config.act_dim) if hasattr(s.config, "act_dim") else None,
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


# Models whose part names what its features take, which the whole passes on without names.
PASSED_ON = ("granite_speech", "granite_speech_plus", "minicpmv4_6", "video_llama_3", "voxtral")


def features(s, given):
    """How many features of a sample the model makes of its images and sounds, by the token that stands for one."""
    import torch

    found = {}
    for kind in ("image", "video", "audio"):
        inner = [s.model, *[getattr(s.model, n) for n in ("model", "encoder") if hasattr(s.model, n)]]
        found_by = [getattr(m, f"get_{kind}_features") for m in inner if hasattr(m, f"get_{kind}_features")]
        get = next(iter(found_by[-1:] if s.config.model_type in PASSED_ON else found_by), None)
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
        made = get(**constants(mine))
        out = getattr(made, "pooler_output", made)
        out = made.last_hidden_state if out is None else out
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
    changed = PARTICULAR.get(model.config.model_type, lambda s, given: {})(s, given)
    given = {name: value for name, value in (given | changed).items() if value is not None}
    if "input_ids" in given and len(given) > 1 and "input_ids" not in changed:
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

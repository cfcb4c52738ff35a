"""Inputs of particular architectures of transformers, by model type: what the rules of `inputs.py` do not reach.

An entry gives what it changes, of the model's sizes and the inputs that the rules give; None takes an input away, and
input_ids are taken as they are.
"""
from sizes import BATCH, FRAMES, TOKENS, noise, ones


def images(*dims):
    """Images in groups, such as the frames of a video."""
    return lambda s, given: {"pixel_values": noise(BATCH, *dims, *s.image)}


def pixels(*shape):
    return lambda s, given: {"pixel_values": noise(*shape)}


def features(*shape, mask=None):
    """Features of sounds, and a mask of all frames, where it has a name."""
    return lambda s, given: {"input_features": noise(BATCH, *shape)} | ({mask: ones(BATCH, shape[0]).bool()} if mask else {})


def spectra(length, mask="input_features_mask"):
    """Spectrograms whose channels come first."""
    return lambda s, given: {"input_features": noise(BATCH, 128, length), mask: ones(BATCH, length)}


def codec(s, given):
    """Samples and their spectrograms, of as many frames."""
    return {"input_values": noise(BATCH, 1, 3840), "input_features": noise(BATCH, 12, 160), "input_features_mask": ones(BATCH, 12)}


def patches_at(side):
    """Patches with their rows and columns before them."""
    import torch

    places = torch.tensor([[[1.0 + k // 4, 1.0 + k % 4] for k in range(16)]] * BATCH)
    return torch.cat([places, noise(BATCH, 16, 3 * side * side)], -1)


def tokens_of(s, token, count, length=TOKENS):
    """Tokens, of which `count` stand for an image or a sound."""
    ids = s.tokens(BATCH, length)
    ids[:, 2 : 2 + count] = token
    return ids


def places_of(count, length=TOKENS):
    """The mask of tokens that stand for an image."""
    mask = ones(BATCH, length)
    mask[:, :1] = mask[:, 1 + count :] = 0
    return mask


def assistant(s, given):
    """Embeddings of the model that it assists, and the keys and values of that model's layers, which are constants."""
    states = {}
    for attention in (layer.self_attn for layer in s.model.model.layers):
        heads = s.config.text_config.num_attention_heads // attention.num_key_value_groups
        states[attention.layer_type] = tuple(noise(BATCH, heads, TOKENS, attention.head_dim) for _ in "kv")
    embedded = noise(BATCH, 1, 2 * s.config.backbone_hidden_size)
    return {"input_ids": None, "inputs_embeds": embedded, "position_ids": ones(BATCH, 1) * TOKENS, "shared_kv_states": states}


def drafts(s, given):
    """Embeddings of tokens to come, and hidden states of the layers that the model reads."""
    context = noise(BATCH, 8, 64 * len(s.config.target_layer_ids))
    return {"noise_embeds": noise(BATCH, 16, 64), "context_hidden_states": context, "attention_mask": ones(BATCH, 24)}


def granite4_vision(s, given):
    """As many tokens as the features that go into the layers."""
    import torch

    model = getattr(s.model, "model", s.model)
    found = model.get_image_features(given["pixel_values"], torch.tensor(given["image_sizes"])).deepstack_features[0][1]
    count = sum(map(len, found)) // BATCH
    return {"input_ids": tokens_of(s, s.config.image_token_id, count, TOKENS + count)}


def perceiver(s, given):
    """An image where the model makes its inputs of one, else rows of features; text where it takes text."""
    if "input_ids" in given:
        return {}
    return {"pixel_values": noise(BATCH, *s.image)} if "pixel_values" in s.names else {"inputs": noise(BATCH, TOKENS, 64)}


def pi0(s, given):
    """Tokens of an image, and actions or their embeddings."""
    ids = tokens_of(s, s.config.vlm_config.image_token_id, 16, 32)
    if "action_embeds" in s.names:
        taken = {"action_embeds": noise(BATCH, 5, 64)}
    else:
        taken = {"state": noise(BATCH, s.config.max_state_dim), "noise": noise(BATCH, s.config.chunk_size, s.config.max_action_dim)}
        taken["timestep"] = noise(BATCH).abs()
    return taken | {"input_ids": ids, "pixel_values": noise(BATCH, 1, *s.image), "pixel_attention_mask": ones(BATCH, 1).bool()}


def speecht5(s, given):
    """Features of both sides, where the model has no layers before its encoder and decoder."""
    if "decoder_input_values" not in s.names:
        return {}
    return {"input_values": noise(BATCH, TOKENS, 64), "decoder_input_values": noise(BATCH, 8, 64)}


PARTICULAR = {
    "blip_2_qformer": lambda s, given: {"encoder_hidden_states": noise(BATCH, 8, 64)},
    "clap": features(1, 64, 32),
    "depth_pro": pixels(1, 3, 256, 256),
    "dia": lambda s, given: {"decoder_input_ids": s.tokens(BATCH, TOKENS, 9)},
    "efficientloftr": pixels(BATCH, 2, 3, 64, 64), "lightglue": pixels(BATCH, 2, 3, 64, 64),
    "flava": images(),
    "fun_asr_nano": features(FRAMES, 560), "fun_asr_nano_encoder": features(FRAMES, 560),
    "gemma3n": features(FRAMES, 128, mask="input_features_mask"), "gemma4": features(FRAMES, 128, mask="input_features_mask"),
    "gemma3n_audio": lambda s, given: {"audio_mel": noise(BATCH, FRAMES, 128), "audio_mel_mask": ones(BATCH, FRAMES) < 1},
    "gemma4_assistant": assistant, "gemma4_unified_assistant": assistant,
    "gemma4_audio": features(FRAMES, 128),
    "gemma4_unified": features(8, 640, mask="input_features_mask"),
    # An image of each sample, and the grid of one to make.
    "glm_image": lambda s, given: {
        "image_grid_thw": [[1, 2, 2]] * 2 * BATCH, "images_per_sample": [2] * BATCH, "input_ids": tokens_of(s, s.config.image_token_id, 4),
    },
    "granite4_vision": granite4_vision,
    "granite_speech": lambda s, given: {"input_features_mask": None}, "granite_speech_plus": lambda s, given: {"input_features_mask": None},
    "granite_speech5_ctc": features(FRAMES, 320), "granite_speech5_encoder": features(FRAMES, 320),
    "idefics": lambda s, given: {"image_attention_mask": ones(BATCH, TOKENS, 1)},
    "inkling_mm_model": pixels(4 * BATCH, 2, 40, 40, 3),
    "instructblipvideo": lambda s, given: images(2)(s, given) | {"input_ids": tokens_of(s, s.config.video_token_index, 16, 32)},
    "kosmos-2": lambda s, given: {"image_embeds_position_mask": places_of(4)},
    "kosmos-2.5": lambda s, given: {"image_embeds_position_mask": places_of(4), "flattened_patches": patches_at(16)},
    "kyutai_speech_to_text": lambda s, given: {"input_ids": s.tokens(BATCH, TOKENS, 33)},
    "llava": lambda s, given: {"image_sizes": None},
    "minicpmv4_6": lambda s, given: {"pixel_values": noise(1, 3, 16, 16 * 16 * BATCH), "target_sizes": [[4, 4]] * BATCH},
    "mllama": lambda s, given: images(1, 4)(s, given) | {"cross_attention_mask": ones(BATCH, TOKENS, 1, 4)},
    "muse_glimmer_assistant": drafts,
    "musicflamingo": lambda s, given: {"input_ids": tokens_of(s, s.config.audio_token_id, 16, 32)},
    "neomme": pixels(8 * BATCH, 192),
    "neucodec": codec, "xcodec2": codec,
    # Two classes of each sample.
    "omdet-turbo": lambda s, given: {
        "classes_input_ids": s.tokens(2 * BATCH, 8), "classes_attention_mask": ones(2 * BATCH, 8), "tasks_input_ids": s.tokens(BATCH, 8),
        "tasks_attention_mask": ones(BATCH, 8), "classes_structure": [2] * BATCH,
    },
    "paddleocr_vl": lambda s, given: {"pixel_values": s.patches().unflatten(1, (3, *s.patch))},
    "perceiver": perceiver,
    "perception_lm": images(1),
    "pi0": pi0,
    "pix2struct": lambda s, given: {"flattened_patches": patches_at(16)},
    "pop2piano": lambda s, given: {"input_ids": None} | features(TOKENS, 64)(s, given),
    "pp_ocrv5_mobile_rec": pixels(BATCH, 3, 96, 128),
    "qwen2_audio": lambda s, given: {"input_ids": tokens_of(s, s.config.audio_token_id, 16, 32), "attention_mask": ones(BATCH, 32)},
    "qwen3_asr": spectra(200), "qwen3_asr_encoder": spectra(200),
    "qwen3_omni_moe_thinker": spectra(200, "feature_attention_mask"),
    "seggpt": lambda s, given: {name: noise(BATCH, 3, 64, 64) for name in ("pixel_values", "prompt_pixel_values", "prompt_masks")},
    "speech-encoder-decoder": lambda s, given: {"input_features": None},
    "speecht5": speecht5,
    "timesfm": lambda s, given: {"past_values": noise(BATCH, 64), "past_values_padding": 0 * noise(BATCH, 64), "freq": 0 * ones(BATCH, 1)},
    # One sample: its positions of columns are of the size of a batch of 1.
    "tvp": lambda s, given: {"input_ids": s.tokens(1, TOKENS), "pixel_values": noise(1, 2, 3, 64, 64)},
    "vibevoice": lambda s, given: {"input_values": noise(BATCH, 1, 256), "padding_mask": ones(BATCH, 256).bool(), "sample": False},
    "vibevoice_acoustic_tokenizer": lambda s, given: {"input_values": noise(BATCH, 1, 256), "sample": False},
    "vibevoice_acoustic_tokenizer_decoder": lambda s, given: {"hidden_states": noise(BATCH, 64, 4)},
    "vibevoice_acoustic_tokenizer_encoder": lambda s, given: {"hidden_states": noise(BATCH, 1, 256)},
    "video_llama_3": lambda s, given: {"image_merge_sizes": [1] * BATCH},
    "voxtral_realtime": features(128, 2 * FRAMES),
    "xclip": images(8),
}

"""Small configurations of transformers' architectures: general rules by attribute, then a table by model type.

A configuration is built again from its class with the smaller values, so that what it derives from them follows.
"""
import itertools

# The most of an attribute, wherever a configuration has it. Widths agree with each other: 4 heads of 16 are 64.
MOST = {
    "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "embedding_size": 64, "word_embed_proj_dim": 64,
    "embed_dim": 64, "width": 64, "encoder_hidden_size": 64, "cross_attention_hidden_size": 64,
    "vision_hidden_size": 64, "text_hidden_size": 64, "mm_hidden_size": 64, "out_hidden_size": 64, "projection_dim": 64,
    "emb_dim": 64, "model_dim": 64, "n_embed": 64, "output_proj_dims": 64, "decoder_hidden_size": 64, "fusion_hidden_size": 64,
    "decoder_hidden_dim": 64, "adapter_hidden_size": 64, "audio_hidden_size": 64, "projector_hidden_size": 64,
    "intermediate_size": 128, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "n_inner": 128, "ffn_dim": 128, "d_ff": 128,
    "hidden_dim": 128, "feedforward_dim": 128, "dim_feedforward": 128, "moe_intermediate_size": 64, "ffn_hidden_size": 128,
    "shared_expert_intermediate_size": 64, "moe_shared_expert_intermediate_size": 64, "intermediate_size_mlp": 128,
    "dense_intermediate_size": 128, "expert_ffn_hidden_size": 64, "mlp_dim": 128, "attention_hidden_size": 64,
    "num_attention_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "n_head": 4, "n_heads": 4,
    "num_heads": 4, "attention_heads": 4, "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4,
    "num_hidden_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2,
    "depth": 2, "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 2, "num_encoder_layers": 2,
    "num_decoder_layers": 2, "num_block_records": 2, "layers": 2, "num_blocks": 2, "decoder_n_layers": 2,
    "d_kv": 16, "head_dim": 16, "global_head_dim": 16, "swa_head_dim": 16, "attention_head_dim": 16, "kv_channels": 16,
    "qk_head_dim": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "swa_v_head_dim": 16,
    "rotary_dim": 8, "q_lora_rank": 32, "kv_lora_rank": 16, "index_head_dim": 16, "index_n_heads": 2, "index_topk": 8,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_routed_experts": 4,
    "num_experts_per_tok": 2, "num_experts_per_token": 2, "moe_topk": 2, "moe_k": 2, "moe_top_k": 2, "top_k_experts": 2,
    "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
    "vocab_size": 512, "max_position_embeddings": 128, "n_positions": 128, "max_source_positions": 32,
    "max_target_positions": 128, "sliding_window": 8, "attention_chunk_size": 8, "chunk_size": 16,
    "num_labels": 3, "num_queries": 4, "vision_feature_select_depth": 1,
    "image_seq_length": 16, "mm_tokens_per_image": 4, "vocab_size_per_layer_input": 512, "hidden_size_per_layer_input": 16,
    "mamba_d_state": 16, "state_size": 16, "mamba_d_head": 16, "mamba_n_heads": 8, "ssm_state_size": 16,
    "fpn_hidden_size": 64, "num_kv_shared_layers": 0, "entity_vocab_size": 64, "entity_emb_size": 64,
    "d_latents": 64, "num_latents": 16, "window_size": 4, "upsample_groups": 64, "num_query_tokens": 8, "query_length": 8,
    "upsample_initial_channel": 64, "num_filters": 8, "n_window": 8, "n_window_infer": 16,
}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": 2}
# The parts of composite architectures, which have no default.
PARTS = {
    "encoder-decoder": {"encoder": "bert", "decoder": "bert"},
    "speech-encoder-decoder": {"encoder": "wav2vec2", "decoder": "bert"},
    "vision-encoder-decoder": {"encoder": "vit", "decoder": "bert"},
    "nougat": {"encoder": "donut-swin", "decoder": "mbart"},
    "rag": {"question_encoder": "dpr", "generator": "bart"},
    "vision-text-dual-encoder": {"vision_config": "vit", "text_config": "bert"},
    "musicgen": {"text_encoder": "t5", "audio_encoder": "encodec", "decoder": "musicgen_decoder"},
    "musicgen_melody": {"text_encoder": "t5", "audio_encoder": "encodec", "decoder": "musicgen_melody_decoder"},
}
# What the defaults of others have to be given.
NO_LAYER_INPUT = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
GIVEN = {"gemma4_assistant": {"text_config": {"model_type": "gemma4_text"} | NO_LAYER_INPUT}}
# By model type: what the rules do not reach.
TABLE = {
    "layoutlmv3": {"coordinate_size": 12, "shape_size": 8}, "lilt": {"hidden_size": 96, "head_dim": 24},
    "mamba2": {"num_heads": 8}, "glm5_next_text": {"index_topk": 16}, "fun_asr_nano_adaptor": {"intermediate_size": 16},
    "timm_backbone": {"backbone": "resnet18"}, "reformer": {"axial_pos_embds_dim": (16, 48), "axial_pos_shape": (4, 4)},
    "vipllava": {"vision_feature_layers": [-1, -2]}, "aria": {"projector_patch_to_query_dict": {16: 4}},
    "time_series_transformer": {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2]},
    "autoformer": {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2]},
    "informer": {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2]},
    "efficientnet": {"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640},
    "align_vision_model": {"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 64},
    "granite_speech_projector": {"encoder_hidden_size": 64}, "step3p7_text": {"sliding_window": 8},
    "moonshine_streaming_encoder": {"num_key_value_heads": 4}, "diffusion_gemma_text": {"head_dim": 16},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
}
# Text whose rotary positions have sections by default in the code of the model.
SECTIONS = ("qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text", "glm4v_moe_text", "glm_ocr_text", "glm_image_text", "hunyuan_vl_text")
# Attributes without a value by default, which models need.
ABSENT = {"vocab_size": 512, "n_routed_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "head_dim": 16}


def number(value):
    return isinstance(value, int) and not isinstance(value, bool)


def default(kind):
    """The configuration that a model type has without arguments."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    parts = {name: default(part).to_dict() for name, part in PARTS.get(kind, {}).items()} | GIVEN.get(kind, {})
    if kind.endswith("encoder-decoder") or kind == "nougat":
        parts["decoder"] |= {"is_decoder": True, "add_cross_attention": True}
    return CONFIG_MAPPING[kind](**parts)


def layers(config):
    """The layers to keep: the first of each kind, by the lists that say what each layer is; and these lists."""
    given = vars(config)
    count = next((given[n] for n in ("num_hidden_layers", "n_layer", "num_layers") if number(given.get(n))), 0)
    lists = {n: v for n, v in given.items() if isinstance(v, (list, tuple)) and len(v) == count and count > 2 and not n.startswith("_")}
    lists = {n: v for n, v in lists.items() if all(isinstance(x, (str, int, float, type(None))) for x in v) and "sizes" not in n}
    kept = {v.index(kind) for v in lists.values() for kind in set(v)}
    kept |= set(itertools.islice((i for i in range(count) if i not in kept), max(0, 2 - len(kept))))
    return sorted(kept)[:4], lists


def rope(value, head):
    """Sections of rotary positions that fill half of a head of this width."""
    if not isinstance(value, dict):
        return value
    value = {k: rope(v, head) for k, v in value.items()}
    if value.get("mrope_section"):
        half = int(head * value.get("partial_rotary_factor", 1.0)) // 2
        count = len(value["mrope_section"])
        value["mrope_section"] = [half - half // count * (count - 1)] + [half // count] * (count - 1)
    return value


def small(config, special=None, **more):
    """The configuration with few and narrow layers, and with tokens of images and sounds within its vocabulary.

    `more` changes attributes beyond that: those of a part as a dictionary by its name, with a model type where the default
    lacks the part.
    """
    from transformers import PreTrainedConfig

    special = {} if special is None else special
    given, change = vars(config), {}
    # A part keeps what it has unlike its class, such as which of its layers the whole reads.
    try:
        usual = vars(type(config)())
        change = {n: v for n, v in given.items() if not n.startswith("_") and n in usual and not isinstance(v, PreTrainedConfig) and v != usual[n]}
    except Exception:
        change = {"backbone": given["backbone"]} if given.get("backbone") else {}
    taken = given.get("_out_indices") or []
    if len(taken) > 1 or config.model_type in ("timm_backbone",):
        change["out_indices"] = list(taken)
    for name, value in given.items():
        if isinstance(value, PreTrainedConfig):
            change[name] = small(value, special, **more.pop(name, {}))
        elif name in TOKENS and number(value):
            change[name] = TOKENS[name]
        elif name.endswith(("_token_id", "_token_index")) and (number(value) and value > 2 or value is None and name.startswith(("image", "audio", "video"))):
            change[name] = special.setdefault(name.removesuffix("_id").removesuffix("_index"), 500 - len(special))
        elif name == "embed_dim" and isinstance(given.get("num_heads"), (list, tuple)):
            # The first of widths that grow by stage, each with its own number of heads.
            change[name] = value
        elif name in MOST and number(value):
            change[name] = min(value, MOST[name])
        elif name in ABSENT and value is None:
            change[name] = ABSENT[name]
        elif name == "image_grid_pinpoints":
            size = small(config.vision_config, special).image_size
            change[name] = [[size, size]]
        elif name in ("depths", "num_blocks_per_stage") and isinstance(value, (list, tuple)) and all(map(number, value)):
            change[name] = type(value)(min(v, 2) for v in value)
        elif name == "conv_dim" and isinstance(value, (list, tuple)):
            change[name] = type(value)(min(v, 32) for v in value)
    if given.get("qk_rope_head_dim") and given.get("head_dim") == given["qk_rope_head_dim"]:
        change["head_dim"] = change["qk_rope_head_dim"]
    if isinstance(given.get("embed_dim_per_stage"), (list, tuple)):
        change["hidden_size"] = given["embed_dim_per_stage"][0]
    if "num_key_value_heads" in given and given["num_key_value_heads"] is None and number(given.get("num_attention_heads")):
        change["num_key_value_heads"] = change["num_attention_heads"]
    if number(given.get("num_key_value_heads")):
        heads = given.get("num_attention_heads")
        change["num_key_value_heads"] = 4 if given["num_key_value_heads"] == heads else min(2, given["num_key_value_heads"])
    kept, lists = layers(config)
    if lists:
        change |= {n: type(v)(v[i] for i in kept) for n, v in lists.items()}
        change |= {n: len(kept) for n in ("num_hidden_layers", "n_layer", "num_layers") if number(given.get(n))}
    if len(taken) > 1 and number(given.get("num_hidden_layers")):
        # The features of as many layers as the whole reads.
        change |= {"num_hidden_layers": len(taken), "out_indices": list(range(1, 1 + len(taken)))}
    if config.model_type in ("beit", "data2vec-vision"):
        change |= {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4]}
    if number(given.get("image_size")):
        patch = given.get("patch_size")
        change["image_size"] = min(given["image_size"], 4 * patch if number(patch) and patch > 4 else 64)
    elif isinstance(given.get("image_size"), (list, tuple)):
        change["image_size"] = type(given["image_size"])(min(n, 64) for n in given["image_size"])
    heads = change.get("num_attention_heads")
    head = change.get("head_dim") or change.get("hidden_size", 64) // (heads if number(heads) and heads else 4)
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(given.get(name), dict):
            sections = {"mrope_section": [8, 4, 4]} if config.model_type in SECTIONS else {}
            change[name] = rope(sections | given[name], head)
    for name, value in more.items():
        if isinstance(value, dict) and "model_type" in value:
            more[name] = small(default(value["model_type"]), special, **value)
    if config.model_type in PARTS:
        change = {n: v.to_dict() if isinstance(v, PreTrainedConfig) else v for n, v in change.items()}
    return type(config)(**change | TABLE.get(config.model_type, {}) | more)

"""Changes to the small configurations of whole architectures, by model type: what the rules of `small.py` do not reach.

A key is a model type, or a group of `language.py` and a model type where the groups differ.
"""
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
SECTIONS = {"rope_parameters": ROPE | {"mrope_section": [4, 2, 2]}}
SECTIONS_OF_LAYERS = {"rope_parameters": {"full_attention": ROPE | {"mrope_section": [4, 2, 2]}}}
# Letters of digits in the names of image tokens.
LETTERS = str.maketrans("0123456789", "ABCDEFGHIJ")
# Stages of images that halve from 16.
HALVES = {"backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]]}
EDGE = HALVES | {
    "backbone_config": {"architecture": "repvit_m1", "model_args": {"in_chans": 3, "features_only": True, "out_indices": [0, 1, 2, 3]}},
}
MLLAMA = {
    "vision_config": {"intermediate_layers_indices": [0, 1], "vision_output_dim": 192, "num_global_layers": 1},
    "text_config": {"cross_attention_layers": [1]},
}
QWEN4 = {
    "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 8, "indexer_compress_ratio": 2,
    "ngram_vocab_size_base": 100, "split_ngram_parts": 1, "hc_lowrank": 16,
}
SAM = {"vision_config": {"output_channels": 64, "num_pos_feats": 32}}
SAM2 = {
    "backbone_channel_list": [128, 64, 32, 16],
    "backbone_config": {"embed_dim_per_stage": [16, 32, 64, 128], "blocks_per_stage": [1, 1, 1, 1], "hidden_size": 16},
}
SOUND = {"downsampling_ratios": [2, 2, 4], "depths": [1, 1, 1, 1]}
SPEECH = {"window_size": 10, "projector_config": {"encoder_hidden_size": 128}}
STAGES = {
    "out_features": ["stage1", "stage2", "stage3", "stage4"], "stem_channels": [3, 16, 16],
    "block_configs": [[[3, 16, 16, 1, False]], [[3, 16, 32, 2, False]], [[3, 32, 64, 2, False]], [[3, 64, 64, 2, True]]],
}
SWIN = {"window_size": 2, "embed_dim": 24}
# Kernels, strides and paddings of the convolutions of a detector of text, which are long in one direction or both.
LONG = {
    f"{name}_{ratio}": [[k if tall else 1, k if wide else 1], [1, 1], [k // 2 if tall else 0, k // 2 if wide else 0]]
    for ratio, k in (("longratio", 7), ("midratio", 5), ("shortratio", 3))
    for name, tall, wide in (("vertical_long_to_small_conv", 1, 0), ("horizontal_small_to_long_conv", 0, 1), ("symmetric_conv_long", 1, 1))
}
TEXT_DETECTOR = {
    "intraclass_block_config": LONG | {"reduce_channel": [1, 1, 0], "return_channel": [1, 1, 0]}, "kernel_list": [3, 2, 2],
    "scale_factor_list": [1, 2, 4, 8], "neck_out_channels": 64,
}
TIME = {"num_time_features": 1}
VIT = {"vision_config": {
    "architecture": "vit_pe_core_tiny_patch16_384", "model_args": {"img_size": [64, 64], "depth": 2, "embed_dim": 64, "num_heads": 4},
}}
AUDIO_VIDEO = {"video_config": VIT, "audio_config": {"dac_config": {"encoder_hidden_size": 16}}}
WINDOW, WINDOWS = {"window_size": 112}, {"n_window": 50, "n_window_infer": 100}
CHANGES = {
    # Values of the default range vanish in its many layers, and their norm is 0.
    "align": {"projection_dim": 160, "initializer_range": 0.1, "vision_config": {"initializer_range": 0.1}},
    "autoformer": TIME | {"label_length": 4}, "informer": TIME, "time_series_transformer": TIME,
    "blt": {
        "encoder_hash_byte_group_vocab": 100, "encoder_config": {"hidden_size_global": 64},
        "decoder_config": {"hidden_size_global": 64}, "patching_mode": "static",
    },
    "chameleon": {
        "vq_config": {"num_embeddings": 64, "base_channels": 32, "embed_dim": 16, "latent_channels": 16},
        "vocabulary_map": {"<image>": 500} | {f"IMGIMG{str(k).translate(LETTERS)}Z": 300 + k for k in range(64)},
    },
    "clap": {"audio_config": {
        "spec_size": 64, "num_mel_bins": 32, "window_size": 2, "patch_embeds_hidden_size": 32, "hidden_size": 256,
    }},
    "clvp": {
        "text_config": {"bos_token_id": 1, "eos_token_id": 2, "num_attention_heads": 2},
        "decoder_config": {"num_mel_attn_blocks": 2}, "speech_config": {"vocab_size": 512, "num_attention_heads": 2},
    },
    "cohere_compass": {"text_config": SECTIONS_OF_LAYERS}, "cohere_compass_text": SECTIONS_OF_LAYERS,
    "dbrx": {
        "attn_config": {"rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_ocr2": {
        "text_config": {"mlp_layer_types": ["dense", "sparse"], "num_experts_per_tok": 2},
        "vision_config": {"sam_config": {
            "downsample_channels": [32, 64], "output_channels": 16, "image_size": 128, "global_attn_indexes": [1],
        }},
    },
    "deepseek_vl_hybrid": {"high_res_vision_config": {"global_attn_indexes": [1], "output_channels": 16}},
    "depth_pro": {
        "patch_size": 64, "intermediate_hook_ids": [1, 0], "intermediate_feature_dims": [32, 32],
        "scaled_images_feature_dims": [32, 32, 32],
    } | dict.fromkeys(("image_model_config", "patch_model_config", "fov_model_config"), {"image_size": 64, "patch_size": 8}),
    "dia": {"decoder_config": {
        "cross_hidden_size": 64, "cross_num_attention_heads": 4, "cross_num_key_value_heads": 4, "cross_head_dim": 16,
    }},
    "diffusion_gemma": {"text_config": {"moe_intermediate_size": 32, "top_k_experts": 2}},
    "donut-swin": SWIN, "swin": SWIN,
    "edgetam": {"vision_config": EDGE}, "edgetam_vision_model": EDGE,
    "efficientloftr": {
        "out_features": [16, 16, 32, 64], "stage_num_blocks": [1, 1, 1, 1], "num_attention_layers": 1, "num_attention_heads": 8,
        "num_key_value_heads": 8,
    },
    "emu3": {
        "vq_config": {"codebook_size": 64, "base_channels": 32, "embed_dim": 16, "latent_channels": 16, "hidden_size": 128},
        "vocabulary_map": {"<image>": 500, "<|extra_200|>": 499} | {f"<|visual token {k:06}|>": 300 + k for k in range(64)},
    },
    "ernie4_5_vl_moe": {"text_config": {"rope_parameters": ROPE | {"mrope_section": [3, 3, 2]}}},
    "esm": {"pad_token_id": 0, "mask_token_id": 3},
    "exaone4_5": {"vision_config": WINDOW}, "exaone4_5_vision": WINDOW,
    "falcon_h1": {"mamba_d_ssm": 64},
    "fast_vlm": {"vision_config": {"architecture": "fastvit_t8", "hidden_size": 768}},
    "fastspeech2_conformer_with_hifigan": {"model_config": {"vocab_size": 512}},
    "fun_asr_nano": {"adaptor_config": {"intermediate_size": 16}, "audio_config": {"num_timestamp_prediction_layers": 1}},
    "fun_asr_nano_encoder": {"num_timestamp_prediction_layers": 1},
    "gemma3n": {
        "vision_config": {
            "architecture": "resnet18", "model_args": {"layers": [1, 1, 1, 1], "channels": [16, 32, 64, 128]},
            "hidden_size": 128, "vocab_offset": 256, "vocab_size": 128,
        },
        "audio_config": {"vocab_offset": 384, "vocab_size": 128},
        "vision_soft_tokens_per_image": 4, "audio_soft_tokens_per_image": 4,
    },
    "gemma4": {"vision_config": {"model_type": "gemma4_vision"}, "audio_config": {"model_type": "gemma4_audio"}},
    "gemma4_assistant": {"backbone_hidden_size": 64}, "gemma4_unified_assistant": {"backbone_hidden_size": 64},
    "gemma4_unified": {
        "vision_config": {
            "model_type": "gemma4_unified_vision", "pooling_kernel_size": 1, "mm_embed_dim": 64, "mm_posemb_size": 32,
            "output_proj_dims": 64,
        },
        "audio_config": {"model_type": "gemma4_unified_audio"},
    },
    "glm_image": {"vq_config": {"latent_channels": 64, "num_embeddings": 200}},
    "granite4_vision": {
        "downsample_rate": "1/2", "deepstack_layer_map": [[0, 0], [1, 1]], "spatial_target_layers": [0, 0, 1, 1],
    },
    "granite_speech": SPEECH, "granite_speech_plus": SPEECH,
    "higgs_audio_v2_tokenizer": {"sample_rate": 16000},
    "kimi_k25": {"projection_hidden_size": 64},
    "kosmos-2": {"latent_query_num": 4}, "kosmos-2.5": {"latent_query_num": 4},
    "layoutlmv3": {"input_size": 64},
    "llama4": {"vision_config": {
        "intermediate_size": 256, "projector_input_dim": 64, "projector_output_dim": 64, "vision_output_dim": 64,
    }},
    "lw_detr": {"projector_scale_factors": [1.0]},
    "base.mllama": MLLAMA, "image_text.mllama": MLLAMA,
    "moonshine_streaming": {"num_key_value_heads": 4},
    "muse_glimmer": {"out_hidden_size": 256},
    "neomme": {"patch_size": 8},
    "neucodec": {"encoder_hidden_size": 8, "quantization_dim": 128}, "xcodec2": {"encoder_hidden_size": 8, "quantization_dim": 128},
    "omdet-turbo": {
        "apply_layernorm_after_vision_backbone": False, "encoder_in_channels": [64, 128, 256], "vision_features_channels": [64, 64, 64],
        "text_projection_in_dim": 32, "text_projection_out_dim": 32, "class_embed_dim": 32, "text_config": {"hidden_size": 32},
    },
    "paddleocr_vl": {"text_config": SECTIONS},
    "pe_audio_video": {"audio_video_config": AUDIO_VIDEO}, "pe_audio_video_encoder": AUDIO_VIDEO,
    "pe_video": {"video_config": VIT}, "pe_video_encoder": VIT, "perception_lm": VIT,
    "pp_doclayout_v2": {
        "backbone_config": {
            "stem_channels": [3, 16, 16], "stage_in_channels": [16, 32, 64, 128], "stage_mid_channels": [8, 8, 16, 16],
            "stage_out_channels": [32, 64, 128, 256], "hidden_sizes": [32, 64, 128, 256],
        },
        "encoder_in_channels": [64, 128, 256], "class_thresholds": [0.5] * 3, "class_order": [0, 1, 2],
        "reading_order_config": {"start_token_id": 0, "pad_token_id": 1, "end_token_id": 2, "pred_token_id": 3},
    },
    "pp_ocrv5_server_det": TEXT_DETECTOR, "pp_ocrv6_medium_det": TEXT_DETECTOR | {"backbone_config": STAGES},
    "pp_ocrv6_small_det": {"backbone_config": STAGES, "layer_list_out_channels": [16, 32, 64, 64]},
    "qwen2_5_omni_thinker": {"vision_config": WINDOW, "text_config": SECTIONS}, "qwen2_5_vl": {"vision_config": WINDOW},
    "qwen3_asr": {"audio_config": WINDOWS | {"output_dim": 64}}, "qwen3_asr_encoder": WINDOWS,
    "image_text.qwen3_omni_moe_thinker": {"audio_config": WINDOWS},
    "qwen4_exp": {"text_config": QWEN4}, "qwen4_exp_text": QWEN4,
    "causal.reformer": {"is_decoder": True},
    "sam": SAM, "sam_hq": SAM, "sam2": {"vision_config": HALVES | SAM2}, "sam3_tracker": {"vision_config": HALVES},
    "sapiens2": {"num_key_value_heads_per_layer": [4, 2], "num_key_value_attention_heads": 2, "head_config": {
        "upsample_out_channels": [32, 32], "upsample_kernel_sizes": [4, 4], "conv_out_channels": [32], "conv_kernel_sizes": [1],
    }},
    "seggpt": {"image_size": [128, 64]},
    "segmentation.dpt": {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3]},
    "image.shieldgemma2": {"yes_token_index": 5, "no_token_index": 6},
    "step3p7": {"text_config": {"sliding_window": 8}},
    "t5gemma2_encoder": {"text_config": {"dropout_rate": 0.0}},
    "tvp": {
        "max_img_size": 64, "visual_prompt_size": 8, "num_frames": 2,
        "backbone_config": {"embedding_size": 16, "hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]},
    },
    "uvdoc": {"backbone_config": {"out_indices": [1, 2, 3, 4, 5, 6]}},
    "vibevoice": {"audio_config": SOUND}, "vibevoice_acoustic_tokenizer": SOUND,
    "vibevoice_acoustic_tokenizer_decoder": SOUND, "vibevoice_acoustic_tokenizer_encoder": SOUND,
    "xclip": {"vision_config": {"mit_hidden_size": 64, "mit_intermediate_size": 128, "mit_num_attention_heads": 4}},
    "zamba": {
        "num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2, "attention_hidden_size": 128,
        "attention_head_dim": 32,
    },
    "zamba2": {"attention_hidden_size": 128, "attention_head_dim": 32},
}

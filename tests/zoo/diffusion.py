"""diffusers: networks of diffusion models, small. Each is a class, its configuration and its inputs."""

UNET = {"sample_size": 16, "block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8}
KL = {"block_out_channels": (32, 64), "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2, "latent_channels": 4, "norm_num_groups": 8}
CROSS = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"), "cross_attention_dim": 32, "attention_head_dim": 8}
HEADS = {"num_attention_heads": 4, "attention_head_dim": 16, "num_layers": 2}


def noise(*shape):
    import torch

    return torch.randn(*shape)


def steps(*values):
    import torch

    return torch.tensor(values)


def text(width):
    return {"encoder_hidden_states": noise(2, 8, width)}


NETWORKS = {
    "UNet2DModel": (
        UNET | {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D"), "attention_head_dim": 8},
        lambda: {"sample": noise(2, 3, 16, 16), "timestep": steps(10, 500)},
    ),
    "UNet2DConditionModel": (UNET | CROSS, lambda: {"sample": noise(2, 4, 16, 16), "timestep": steps(10, 500), **text(32)}),
    "UNet1DModel": (
        {"sample_size": 64, "block_out_channels": (32, 32, 64), "extra_in_channels": 64},
        lambda: {"sample": noise(2, 2, 64), "timestep": steps(10, 500)},
    ),
    "UNet3DConditionModel": (
        {
            "sample_size": 16, "block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8, "cross_attention_dim": 32,
            "attention_head_dim": 8, "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"), "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        },
        lambda: {"sample": noise(2, 4, 4, 16, 16), "timestep": steps(10, 500), **text(32)},
    ),
    "ControlNetModel": (
        {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8, "conditioning_embedding_out_channels": (16, 32)}
        | {k: v for k, v in CROSS.items() if k != "up_block_types"},
        lambda: {"sample": noise(2, 4, 16, 16), "timestep": steps(10, 500), "controlnet_cond": noise(2, 3, 32, 32), **text(32)},
    ),
    "AutoencoderKL": (KL, lambda: {"sample": noise(2, 3, 32, 32)}),
    "AutoencoderTiny": (
        {"encoder_block_out_channels": (32, 32), "decoder_block_out_channels": (32, 32), "num_encoder_blocks": (1, 2), "num_decoder_blocks": (2, 1)},
        lambda: {"sample": noise(2, 3, 32, 32)},
    ),
    "AutoencoderKLTemporalDecoder": (
        {"block_out_channels": (32, 64), "down_block_types": ("DownEncoderBlock2D",) * 2, "latent_channels": 4},
        lambda: {"sample": noise(4, 3, 32, 32), "num_frames": 2},
    ),
    "VQModel": (
        {k: v for k, v in KL.items() if k != "latent_channels"} | {"latent_channels": 3, "num_vq_embeddings": 32},
        lambda: {"sample": noise(2, 3, 32, 32)},
    ),
    "DiTTransformer2DModel": (
        HEADS | {"in_channels": 4, "out_channels": 8, "sample_size": 8, "patch_size": 2, "num_embeds_ada_norm": 1000, "norm_num_groups": 8},
        lambda: {"hidden_states": noise(2, 4, 8, 8), "timestep": steps(10, 500), "class_labels": steps(3, 7)},
    ),
    "Transformer2DModel": (
        HEADS | {"in_channels": 32, "norm_num_groups": 8, "cross_attention_dim": 32},
        lambda: {"hidden_states": noise(2, 32, 8, 8), **text(32)},
    ),
    "PixArtTransformer2DModel": (
        HEADS | {"in_channels": 4, "out_channels": 8, "sample_size": 8, "cross_attention_dim": 64, "caption_channels": 32, "use_additional_conditions": False},
        lambda: {"hidden_states": noise(2, 4, 8, 8), "timestep": steps(10, 500), **text(32)},
    ),
    "SD3Transformer2DModel": (
        HEADS | {"sample_size": 8, "in_channels": 4, "out_channels": 4, "caption_projection_dim": 64, "joint_attention_dim": 32, "pooled_projection_dim": 32, "pos_embed_max_size": 8},
        lambda: {"hidden_states": noise(2, 4, 8, 8), "timestep": steps(10, 500), "pooled_projections": noise(2, 32), **text(32)},
    ),
    "FluxTransformer2DModel": (
        {"in_channels": 4, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": 32, "pooled_projection_dim": 32, "axes_dims_rope": (4, 4, 8)},
        lambda: {"hidden_states": noise(2, 16, 4), "timestep": noise(2).abs(), "pooled_projections": noise(2, 32), "txt_ids": noise(8, 3), "img_ids": noise(16, 3), **text(32)},
    ),
    "AuraFlowTransformer2DModel": (
        {"sample_size": 8, "num_mmdit_layers": 1, "num_single_dit_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": 32, "caption_projection_dim": 32, "pos_embed_max_size": 16},
        lambda: {"hidden_states": noise(2, 4, 8, 8), "timestep": noise(2).abs(), **text(32)},
    ),
    "SanaTransformer2DModel": (
        {"in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 1, "num_cross_attention_heads": 2, "cross_attention_head_dim": 16, "cross_attention_dim": 32, "caption_channels": 32, "sample_size": 8},
        lambda: {"hidden_states": noise(2, 4, 8, 8), "timestep": steps(10, 500), **text(32)},
    ),
    "WanTransformer3DModel": (
        {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4, "text_dim": 32, "freq_dim": 16, "ffn_dim": 64, "num_layers": 2, "rope_max_seq_len": 32},
        lambda: {"hidden_states": noise(2, 4, 2, 8, 8), "timestep": steps(10, 500), **text(32)},
    ),
    "CogVideoXTransformer3DModel": (
        {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4, "time_embed_dim": 16, "text_embed_dim": 32, "num_layers": 1, "sample_width": 8, "sample_height": 8, "sample_frames": 5, "max_text_seq_length": 8},
        lambda: {"hidden_states": noise(2, 2, 4, 8, 8), "timestep": steps(10, 500), **text(32)},
    ),
}


def diffusion_models():
    import diffusers

    for name, (config, inputs) in NETWORKS.items():
        yield name, lambda name=name, config=config: getattr(diffusers, name)(**config), lambda model, inputs=inputs: inputs()

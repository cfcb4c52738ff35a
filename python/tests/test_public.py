"""Public models of several families, small ones, in bf16: nothing stays eager because kiln fails, and results are as near to float32's as eager's."""
import copy

import pytest
import torch

import kiln_torch

timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")

# timm's name: side of the image, arguments
IMAGES = {
    "resnet10t": (64, {}), "resnext26ts": (64, {}), "densenet121": (64, {"block_config": (1, 1, 2, 1)}), "regnety_002": (64, {}), "efficientnet_lite0": (64, {}),
    "mobilenetv3_small_050": (64, {}), "ghostnet_050": (64, {}), "convnext_atto": (64, {"depths": (1, 1, 2, 1)}), "res2net50_26w_4s": (64, {"layers": (1, 1, 1, 1)}),
    "nfnet_l0": (64, {}), "repvgg_a0": (64, {}), "vit_tiny_patch16_224": (64, {"img_size": 64, "depth": 2}), "mixer_s32_224": (64, {"img_size": 64}),
    "swin_tiny_patch4_window7_224": (56, {"img_size": 56, "depths": (1, 2, 1, 1)}), "pvt_v2_b0": (64, {"depths": (1, 1, 1, 1)}), "xcit_nano_12_p16_224": (64, {"depth": 2}),
    "poolformer_s12": (64, {}), "mobilevit_xxs": (64, {}),
}
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
# transformers' class: configuration's class, changes of the configuration, a shape for what takes no tokens
TEXT = {
    "BertModel": ("BertConfig", SIZES, None), "GPT2LMHeadModel": ("GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512}, None),
    "T5EncoderModel": ("T5Config", {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 512}, None),
    "LlamaForCausalLM": ("LlamaConfig", {**SIZES, "num_key_value_heads": 2, "vocab_size": 512}, None),
    "Qwen2ForCausalLM": ("Qwen2Config", {**SIZES, "num_key_value_heads": 2, "vocab_size": 512}, None), "BloomForCausalLM": ("BloomConfig", {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512}, None),
    "DebertaV2Model": ("DebertaV2Config", SIZES, None),
    "WhisperEncoder": ("WhisperConfig", {"d_model": 64, "encoder_layers": 1, "encoder_attention_heads": 4, "encoder_ffn_dim": 128, "max_source_positions": 50}, (2, 80, 100)),
    "Wav2Vec2Model": ("Wav2Vec2Config", {**SIZES, "conv_dim": (32,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "apply_spec_augment": False}, (2, 3200)),
    "CLIPVisionModel": ("CLIPVisionConfig", {**SIZES, "image_size": 64}, (2, 3, 64, 64)), "Dinov2Model": ("Dinov2Config", {**SIZES, "image_size": 56}, (2, 3, 56, 56)),
    "SegformerModel": ("SegformerConfig", {"depths": (1, 1, 1, 1)}, (2, 3, 64, 64)),
}


def image(name):
    side, given = IMAGES[name]
    return timm.create_model(name, pretrained=False, num_classes=10, **given), torch.randn(2, 3, side, side)


def transformer(name):
    config, sizes, shape = TEXT[name]
    made = getattr(transformers, config)(**sizes)
    if hasattr(made, "use_cache"):
        made.use_cache = False
    cls = getattr(transformers, name, None) or getattr(transformers.models.whisper.modeling_whisper, name)
    return cls(made), torch.randn(shape) if shape else torch.randint(0, 500, (2, 16))


def first(result):
    return result if isinstance(result, torch.Tensor) else result[0]


def assert_compiled():
    failed = [why for report in kiln_torch.reports for why in report.eager.values() if "failed" in why]
    assert kiln_torch.reports and not failed


def is_near(found, eager, exact):
    """Whether a result is off float32's at most twice as far as eager's, and 1e-2 besides."""
    # A head that is initialised with zeros gives zeros.
    off = lambda y: float((y - exact).norm()) / (float(exact.norm()) or 1.0)
    return off(found) <= 2 * off(eager) + 1e-2


@pytest.mark.parametrize("make, name", [*((image, name) for name in IMAGES), *((transformer, name) for name in TEXT)], ids=[*IMAGES, *TEXT])
def test_public_models_compile_as_a_whole(make, name):
    model, x = make(name)
    model = model.eval()
    half = copy.deepcopy(model).bfloat16()
    narrow = x.bfloat16() if x.is_floating_point() else x
    with torch.no_grad():
        exact, eager = first(model(x)), first(half(narrow)).float()
        found = first(torch.compile(half, backend="kiln")(narrow)).float()
    assert_compiled()
    assert is_near(found, eager, exact)


def gradients(model, fn, x):
    """The gradients of a loss by the parameters, as one vector."""
    model.zero_grad()
    fn(x).backward()
    return torch.cat([p.grad.flatten().float() for p in model.parameters() if p.grad is not None])


TRAINED = ("resnet10t", "densenet121", "regnety_002", "ghostnet_050", "nfnet_l0", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "GPT2LMHeadModel", "LlamaForCausalLM", "T5EncoderModel")


@pytest.mark.parametrize("joint", [False, True], ids=["autograd", "joint"])
@pytest.mark.parametrize("name", TRAINED)
def test_public_models_train_as_a_whole(name, joint, device):
    model, x = (image if name in IMAGES else transformer)(name)
    # Without dropout, which transformers take from their configuration, and stochastic depth.
    model = model.train(name in IMAGES)
    for module in model.modules():
        if hasattr(module, "drop_prob"):
            module.drop_prob = 0.0
    state = copy.deepcopy(model.state_dict())

    def loss(x, enabled=True):
        with torch.autocast(device, torch.bfloat16, enabled=enabled):
            y = first(model(x))
        return y.float().square().mean()

    exact = gradients(model, lambda x: loss(x, enabled=False), x)
    sides = []
    for fn in (loss, torch.compile(loss, backend="kiln", options={"joint_graph": joint})):
        model.load_state_dict(state)
        sides.append(gradients(model, fn, x))
    assert_compiled()
    assert is_near(sides[1], sides[0], exact)

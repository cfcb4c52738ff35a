"""transformers: every architecture of the auto classes, with a small configuration."""
from changes import CHANGES
from forked import LeftOut
from inputs import text_inputs
from small import default, small

GROUPS = {
    "base": "MODEL", "causal": "MODEL_FOR_CAUSAL_LM", "masked": "MODEL_FOR_MASKED_LM", "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM",
    "image": "MODEL_FOR_IMAGE_CLASSIFICATION", "audio": "MODEL_FOR_AUDIO_CLASSIFICATION", "detection": "MODEL_FOR_OBJECT_DETECTION",
    "segmentation": "MODEL_FOR_SEMANTIC_SEGMENTATION", "ctc": "MODEL_FOR_CTC", "speech": "MODEL_FOR_SPEECH_SEQ_2_SEQ",
    "image_text": "MODEL_FOR_IMAGE_TEXT_TO_TEXT",
}
# Why a model type cannot run.
CANNOT = {
    "layoutlmv2": "needs detectron2", "layoutxlm": "needs detectron2", "bark": "has no forward of its own",
    "glm_image_vqmodel": "has no forward of its own", "voxtral_realtime_text": "transformers does not export its class",
    "dinat": "needs natten",
} | dict.fromkeys(("edgetam_video", "sam2_video", "sam3_video", "sam3_tracker_video"), "takes a session of a video, which is no tensor")


def part_of(config, cls):
    """The part of a composite configuration that a class takes, such as that of text."""
    wanted = cls.config_class
    parts = [c for c in vars(config).values() if type(c) is wanted] if wanted is not None and not isinstance(config, wanted) else []
    if parts:
        return parts[0]
    text = "ForCausalLM" in cls.__name__ and not hasattr(config, "vocab_size") and "assistant" not in config.model_type
    return config.get_text_config() if text else config


def language_models():
    import transformers
    from transformers.models.auto import modeling_auto as auto

    for group, mapping in GROUPS.items():
        for kind, classes in getattr(auto, f"{mapping}_MAPPING_NAMES").items():
            cls = classes if isinstance(classes, str) else classes[0]

            def make(group=group, kind=kind, cls=cls):
                if kind in CANNOT:
                    raise LeftOut(CANNOT[kind])
                config = small(default(kind), **CHANGES.get(f"{group}.{kind}", CHANGES.get(kind, {})))
                config.use_cache, config.return_dict = False, True
                return getattr(transformers, cls)(part_of(config, getattr(transformers, cls)))

            yield f"{group}.{kind}", make, text_inputs

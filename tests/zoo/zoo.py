"""Public models through kiln: builds them with random weights, exports, runs, compares with eager, tabulates.

    python zoo.py export --out DIR [--only REGEX] [--families torchvision,timm,transformers] [--decompose] [--dynamic] [--jobs N]
    python zoo.py run    --out DIR --kiln BIN [--only REGEX] [--target T] [--again]
    python zoo.py report --out DIR [--page FILE]

`export` needs torch and the packages of the families. torchvision: every model of its registry; timm: one model of every
module file, the smallest; transformers: every architecture of the auto classes, with a small configuration. A model is
DIR/FAMILY.NAME.pt2 with inputs and eager's results in .safetensors beside it, and DIR/FAMILY.NAME.json says what became of
it. Both steps skip what is done, so that they can be interrupted.
"""
import argparse
import collections
import concurrent.futures
import json
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "opinfo"))
BAD = ("unsupported", "refused", "failed", "timeout", "crashed", "wrong")


def vision_models():
    """torchvision: name -> maker of model and inputs. Detection models have outputs of data-dependent size."""
    import torch
    import torchvision.models as models

    for name in models.list_models():
        size = 75 if "inception" in name else 64
        if name.startswith(("vit", "maxvit")):
            size = 224
        inputs = lambda size=size: (torch.randn(1, 3, size, size),)
        if "raft" in name:
            inputs = lambda: (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128))
        elif name.startswith(("r3d", "mc3", "r2plus1d", "s3d", "swin3d", "mvit")):
            inputs = lambda size=224 if name.startswith("mvit") else 64: (torch.randn(1, 3, 16, size, size),)
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
        yield f"{module}.{name}", lambda name=name: timm.create_model(name), lambda shape=shape: (torch.randn(1, *shape),)


SMALL = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 512,
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_inner": 128, "dim": 64,
    "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "num_layers": 2, "num_heads": 4, "d_kv": 16, "d_ff": 128,
    "embedding_size": 64, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128, "image_size": 64,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_intermediate_size": 64, "num_labels": 3,
    "ffn_dim": 128, "word_embed_proj_dim": 64, "rotary_dim": 8, "pad_token_id": 0, "use_cache": False,
}


def language_models():
    """transformers: the architectures of the auto classes of text models, small, by their configuration class."""
    import torch
    import transformers
    from transformers.models.auto import modeling_auto as auto

    groups = {
        "base": auto.MODEL_MAPPING_NAMES,
        "causal": auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        "masked": auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        "seq2seq": auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        "image": auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
        "audio": auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES,
    }
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for group, names in groups.items():
        for kind, classes in names.items():
            for cls in [classes] if isinstance(classes, str) else classes[:1]:

                def make(kind=kind, cls=cls):
                    config = CONFIG_MAPPING[kind]()
                    shrink(config)
                    config.return_dict = True
                    return getattr(transformers, cls)(config)

                yield f"{group}.{kind}", make, None


def shrink(config):
    for key, value in SMALL.items():
        if hasattr(config, key) and isinstance(getattr(config, key), (int, float, type(None))) and getattr(config, key) is not None:
            try:
                setattr(config, key, value)
            except Exception:
                pass
    for part in ("text_config", "vision_config", "audio_config", "encoder", "decoder", "qformer_config"):
        inner = getattr(config, part, None)
        if inner is not None and hasattr(inner, "to_dict"):
            shrink(inner)


def text_inputs(model):
    """Inputs by the names of the model's forward."""
    import inspect
    import torch

    names = inspect.signature(model.forward).parameters
    config = model.config
    inputs = {}
    if "input_ids" in names:
        inputs["input_ids"] = torch.randint(3, 200, (2, 16))
    if "decoder_input_ids" in names:
        inputs["decoder_input_ids"] = torch.randint(3, 200, (2, 16))
    if "pixel_values" in names:
        size = getattr(config, "image_size", None) or getattr(getattr(config, "vision_config", None), "image_size", None) or 64
        size = size if isinstance(size, int) else size[0]
        inputs["pixel_values"] = torch.randn(2, getattr(config, "num_channels", 3), size, size)
    if "input_values" in names:
        inputs["input_values"] = torch.randn(2, 4000)
    if "input_features" in names:
        inputs["input_features"] = torch.randn(2, getattr(config, "num_mel_bins", 80), 128)
    return inputs


class Flat:
    """Wraps a model so that its results are a flat tuple of tensors."""

    def __new__(cls, model, names):
        import torch
        from torch.utils import _pytree as tree

        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, *inputs):
                out = self.model(**dict(zip(names, inputs))) if names else self.model(*inputs)
                out = out.to_tuple() if hasattr(out, "to_tuple") else out
                return tuple(t for t in tree.tree_leaves(out) if isinstance(t, torch.Tensor))[:4]

        return Module()


FAMILIES = {"torchvision": vision_models, "timm": image_models, "transformers": language_models}


def export_one(family, wanted, out, decompose, most):
    import torch
    import warnings
    from safetensors.torch import save_file

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    name, make, inputs = next(m for m in FAMILIES[family]() if m[0] == wanted)
    path = Path(out) / f"{family}.{name}"
    said = {"model": f"{family}.{name}"}
    start = time.time()
    try:
        torch.manual_seed(0)
        model = make().eval()
        said["parameters"] = sum(p.numel() for p in model.parameters())
        if said["parameters"] > most:
            raise ValueError(f"left out: {said['parameters']} parameters")
        names = None
        if inputs is None:
            given = text_inputs(model)
            names, args = list(given), tuple(given.values())
            if not args:
                raise ValueError("left out: no inputs known")
        else:
            args = inputs()
        flat = Flat(model, names).eval()
        with torch.no_grad():
            want = flat(*[t.clone() for t in args])
            program = torch.export.export(flat, args, strict=False)
            if decompose:
                program = program.run_decompositions()
        said["ops"] = sum(n.op == "call_function" for n in program.graph.nodes)
        torch.export.save(program, f"{path}.pt2")
        plain = lambda t: t.detach().clone(memory_format=torch.contiguous_format)
        save_file({f"input_{k}": plain(t) for k, t in enumerate(args)} | {f"output_{k}": plain(t) for k, t in enumerate(want)}, f"{path}.safetensors")
        said["state"] = "exported"
    except Exception as error:
        said["state"] = f"not exported: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
    said["export_s"] = round(time.time() - start, 1)
    Path(f"{path}.json").write_text(json.dumps(said))
    return said


def export(a):
    Path(a.out).mkdir(parents=True, exist_ok=True)
    for family in a.families.split(","):
        names = [m[0] for m in FAMILIES[family]()]
        todo = [n for n in names if re.search(a.only, f"{family}.{n}") and not (Path(a.out) / f"{family}.{n}.json").exists()]
        for k, name in enumerate(todo):
            # A process each: exports may take memory, time or the process with them.
            command = [sys.executable, __file__, "one", "--out", a.out, "--families", family, "--only", name, "--most", str(a.most)]
            try:
                subprocess.run(command + (["--decompose"] if a.decompose else []), capture_output=True, timeout=a.timeout)
            except subprocess.TimeoutExpired:
                pass
            path = Path(a.out) / f"{family}.{name}.json"
            if not path.exists():
                path.write_text(json.dumps({"model": f"{family}.{name}", "state": "not exported: the process ended or took too long"}))
            print(f"{k + 1}/{len(todo)} {family}.{name}: {json.loads(path.read_text())['state']}", flush=True)


def run(a):
    from opinfo import outcome

    results = Path(a.out) / "results.jsonl"
    done = {}
    if results.exists():
        done = {r["model"]: r for r in map(json.loads, results.read_text().splitlines())}
    todo = []
    for path in sorted(Path(a.out).glob("*.pt2")):
        name = path.name.removesuffix(".pt2")
        old = done.get(name)
        if re.search(a.only, name) and (old is None or a.again and old["outcome"] != "agrees"):
            todo.append((name, str(path).removesuffix(".pt2")))
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool, results.open("a") as lines:

        def one(item):
            start = time.time()
            what, detail = outcome(a, item[1])
            return {"model": item[0], "outcome": what, "detail": detail, "seconds": round(time.time() - start, 1)}

        for k, r in enumerate(pool.map(one, todo)):
            lines.write(json.dumps(r) + "\n")
            lines.flush()
            print(f"{k + 1}/{len(todo)} {r['model']}: {r['outcome']} {r['detail'][:120]} {r['seconds']} s", flush=True)


def outcomes(count, columns):
    """The lines of a table of how many models of each family had each outcome."""
    text = ["| family | " + " | ".join(columns) + " |", "| --- " * (1 + len(columns)) + "|"]
    return text + [f"| {f} | " + " | ".join(str(count[f, c]) for c in columns) + " |" for f in sorted({f for f, _ in count})]


def report(a):
    said = {r["model"]: r for r in (json.loads(p.read_text()) for p in sorted(Path(a.out).glob("*.json")))}
    results = Path(a.out) / "results.jsonl"
    ran = {r["model"]: r for r in map(json.loads, results.read_text().splitlines())} if results.exists() else {}
    count = collections.Counter()
    for name in said:
        count[name.split(".")[0], ran[name]["outcome"] if name in ran else "not exported"] += 1
    text = outcomes(count, ("agrees",) + BAD + ("not exported",))
    text += ["", "| model | ops | outcome | reason |", "| --- | --- | --- | --- |"]
    for name, r in sorted(ran.items()):
        if r["outcome"] != "agrees":
            text.append(f"| {name} | {said.get(name, {}).get('ops', '')} | {r['outcome']} | {' '.join(r['detail'].replace('|', '/').split())[:160]} |")
    missing = collections.Counter(n for r in ran.values() if r["outcome"] == "unsupported" for n in set(r["detail"].split()) if "." in n)
    if a.page:
        Path(a.page).write_text("\n".join(text) + "\n")
    else:
        print("\n".join(text))
    print("\nunsupported overloads, by models that want them:")
    for name, n in missing.most_common():
        print(f"{n:4} {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["export", "one", "run", "report"])
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--families", default="torchvision,timm,transformers")
    parser.add_argument("--decompose", action="store_true", help="export after run_decompositions()")
    parser.add_argument("--most", type=int, default=60_000_000, help="parameters of the largest model")
    parser.add_argument("--kiln", default="target/release/kiln")
    parser.add_argument("--target", default="")
    parser.add_argument("--again", action="store_true", help="run again what did not agree")
    parser.add_argument("--timeout", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--page", help="write the table to this file")
    a = parser.parse_args()
    if a.step == "one":
        export_one(a.families, a.only, a.out, a.decompose, a.most)
    else:
        {"export": export, "run": run, "report": report}[a.step](a)


if __name__ == "__main__":
    main()

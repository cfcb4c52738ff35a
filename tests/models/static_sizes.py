"""Re-exports the models with dynamic sizes with static ones: NAME.static.pt2, with the weights of
NAME.pt2. Needs torch and safetensors.

    python static_sizes.py
"""
import safetensors.torch
import torch
from make import relative_traces

for name in ["mlp", "lenet", "gpt2_tiny"]:
    module = torch.export.load(f"{name}.pt2").module()
    data = safetensors.torch.load_file(f"{name}.safetensors")
    inputs = tuple(data[k] for k in sorted(k for k in data if k.startswith("input_")))
    with torch.no_grad():
        program = relative_traces(torch.export.export(module, inputs))
    assert not program.range_constraints
    torch.export.save(program, f"{name}.static.pt2")

"""A model's float64 reference, also where its code converts to float32 by itself. PyTorch is imported late, as in the scripts."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fuzz"))


def products_of_groups(x, weights, *, offs, **unset):
    """`_grouped_mm` of rows in groups, which PyTorch has in no float64."""
    import torch

    starts = torch.cat([offs.new_zeros(1), offs[:-1]])
    parts = [x[a:b] @ w for a, b, w in zip(starts.tolist(), offs.tolist(), weights)]
    return torch.cat([*parts, x.new_zeros(x.shape[0] - sum(len(p) for p in parts), weights.shape[-1])])


def in_float64():
    """Calls with float64 in place of float32, as an argument, as the default, and as what `.float()` converts to."""
    import torch
    import values

    class Wide(values.Wide):
        def widens(self, dtype):
            return dtype is torch.float32

        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function is torch.Tensor.float:
                function = torch.Tensor.double
            elif function in (torch._grouped_mm, torch.nn.functional.grouped_mm):
                function = products_of_groups
            return super().__torch_function__(function, types, args, kwargs)

    return values.in_float64(Wide)

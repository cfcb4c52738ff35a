"""Derivatives for which neither kiln's ATen table has a row nor PyTorch a decomposition that is as exact as eager."""
from __future__ import annotations

import torch

aten = torch.ops.aten


def replication_pad_backward(grad_output, self, padding):
    """Adds the gradient of each copy to that of the element at the edge, axis by axis."""
    grad = grad_output
    for k in range(0, len(padding), 2):
        axis = self.dim() - 1 - k // 2
        source = (torch.arange(grad.shape[axis], device=grad.device) - padding[k]).clamp(0, self.shape[axis] - 1)
        shape = [self.shape[d] if d == axis else n for d, n in enumerate(grad.shape)]
        grad = grad.new_zeros(shape).index_add(axis, source, grad)
    return grad


def masked_scatter_backward(grad_output, mask, sizes):
    """The gradients at the mask, one after another, and zeros after them."""
    count = 1
    for n in sizes:
        count = count * n
    mask = mask.expand_as(grad_output).reshape(-1)
    # What the mask leaves out goes to one more element.
    place = torch.where(mask, mask.to(torch.int64).cumsum(0) - 1, count)
    return grad_output.new_zeros([count + 1]).index_add(0, place, grad_output.reshape(-1))[:count].reshape(sizes)


def distance_backward(grad, apart, distance, p):
    """The gradient by `apart`, a difference of vectors, of its norm `distance`. It is 0 where the norm is, as in eager."""
    if p == 0:
        return torch.zeros_like(apart) * grad
    if p == 1:
        return grad * apart.sign()
    if p == float("inf"):
        return grad * apart.sign() * (apart.abs() == distance)
    size = apart.abs()
    if p == 2:
        slope = apart / distance
    else:
        slope = apart.sign() * size.pow(p - 1) / distance.pow(p - 1)
    away = distance == 0
    return torch.where(away | (size == 0) if p < 1 else away, 0.0, grad * slope)


def cdist_backward(grad, x1, x2, p, cdist):
    apart = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return distance_backward(grad.unsqueeze(-1), apart, cdist.unsqueeze(-1), p).sum(-2)


def pdist_backward(grad, self, p, pdist):
    n = self.shape[0]
    i, j = torch.triu_indices(n, n, 1, device=self.device)
    slope = distance_backward(grad.unsqueeze(-1), self[i] - self[j], pdist.unsqueeze(-1), p)
    return torch.zeros_like(self).index_add(0, i, slope).index_add(0, j, slope, alpha=-1)


def bags(indices, offsets):
    """The bag of each index: the last that starts at or before it."""
    place = torch.arange(indices.shape[0], device=indices.device)
    return (offsets.unsqueeze(0) <= place.unsqueeze(1)).sum(1) - 1


def embedding_bag_backward(grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx=-1):
    """Adds the gradient of each bag to the rows of its indices, or of its maxima. Sums and means need nothing that the forward pass
    computes."""
    # With `scale_grad_by_freq` eager on processors divides by other counts than the indices' own.
    if sparse or scale_grad_by_freq:
        return NotImplemented
    bag = bags(indices, offsets)
    used = indices != padding_idx if padding_idx >= 0 else torch.ones_like(indices, dtype=torch.bool)
    size = torch.zeros(grad.shape[0], dtype=grad.dtype, device=grad.device).index_add(0, bag, used.to(grad.dtype))
    zeros = grad.new_zeros([num_weights, grad.shape[1]])
    if mode == 2:
        return zeros.scatter_add(0, maximum_indices, torch.where((size > 0).unsqueeze(1), grad, 0.0))
    rows = grad[bag]
    if mode == 1:
        rows = rows / size[bag].clamp(min=1).unsqueeze(1)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    return zeros.index_add(0, indices, torch.where(used.unsqueeze(1), rows, 0.0))


def embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, offset2bag, mode, padding_idx=-1):
    found = (grad[bags(indices, offsets)] * weight[indices]).sum(1)
    return torch.where(indices != padding_idx, found, 0.0) if padding_idx >= 0 else found


def soft_margin_loss_backward(grad_output, self, target, reduction):
    # PyTorch's decomposition subtracts 1 from a sigmoid near 1.
    grad = -target * (-target * self).sigmoid() * grad_output
    return grad / self.numel() if reduction == 1 else grad


def zeros(size, **kwargs):
    """The derivative of what is constant, which PyTorch does not store."""
    return torch.zeros(size, **kwargs)


DERIVATIVES = {
    aten._efficientzerotensor.default: zeros,
    aten.replication_pad1d_backward.default: replication_pad_backward,
    aten.replication_pad2d_backward.default: replication_pad_backward,
    aten.replication_pad3d_backward.default: replication_pad_backward,
    aten.masked_scatter_backward.default: masked_scatter_backward,
    aten._cdist_backward.default: cdist_backward,
    aten._embedding_bag_backward.default: embedding_bag_backward,
    aten._embedding_bag_per_sample_weights_backward.default: embedding_bag_per_sample_weights_backward,
    aten._pdist_backward.default: pdist_backward,
    aten.soft_margin_loss_backward.default: soft_margin_loss_backward,
}

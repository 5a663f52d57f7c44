"""The norm of all gradients together, and gradients scaled down to a greatest norm."""

from collections.abc import Iterable

import torch
from torch import Tensor


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_norm: float | None) -> Tensor:
    """g = g * min(1, max_norm / |g|) in place; returns the old |g|  (Pascanu et al. 2012, arXiv 1211.5063)

    |g| is the Euclidean norm over all gradients, a tensor without axes. If it is not finite the gradients
    stay as they are: one NaN does not spread, and the caller decides. `max_norm` None only measures.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    home = gradients[0].device
    norms = [n.to(home, torch.promote_types(n.dtype, torch.float32)) for n in torch._foreach_norm(gradients)]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    if max_norm is None:
        return norm
    factor = torch.where(norm.isfinite(), (max_norm / norm).clamp(max=1.0), 1.0)
    if home.type != "cpu" or factor < 1:  # on a GPU, to look at it would make the host wait
        torch._foreach_mul_(gradients, factor)
    return norm

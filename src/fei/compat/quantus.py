"""FEI as the ``explain_func`` of Quantus: numpy in, numpy out, stateless in the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fei.methods import create


def explain_func(
    model: nn.Module,
    inputs: NDArray[Any] | torch.Tensor,
    targets: NDArray[Any] | torch.Tensor,
    *,
    method: str = "fei",
    device: str | torch.device | None = None,
    batch_size: int | None = None,
    **options: Any,
) -> NDArray[np.float32]:
    """Maps (N, 1, H, W) for Quantus' metrics: ``metric(..., explain_func=fei.compat.quantus.explain_func)``.

    Args:
        model: The classifier, possibly re-randomised by Quantus between calls.
        inputs: Images (N, C, H, W).
        targets: One class per image.
        method: Any name of `fei.methods.available`.
        device: Quantus passes it on. The model's own device decides; this one serves models without parameters.
        batch_size: Rows in one forward pass.
        options: The method's options.

    Examples:
        >>> found = fei.compat.quantus.explain_func(model, images.numpy(), [0, 1], method="gradcam")
        >>> type(found).__name__, found.shape
        ('ndarray', (2, 1, 16, 16))
    """
    parameter = next(model.parameters(), None)
    home = torch.device(device or "cpu") if parameter is None else parameter.device
    # copies: torch takes arrays neither from right to left nor write-protected
    images, classes = (
        values if isinstance(values, torch.Tensor) else torch.from_numpy(np.array(values))
        for values in (inputs, targets)
    )
    x = images.to(home, torch.float32)
    maps = create(method, **options)(model, x, classes.to(home), batch_size=batch_size)
    return maps.detach().cpu().numpy().astype(np.float32)

"""Numbers of the host on a device, which is not waited for: other workers may use it meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def moved(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor of the host on a device."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)

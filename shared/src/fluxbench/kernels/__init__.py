"""Attention kernels of our own, and access to those of the Hugging Face hub.

`attention` is what others use: `from fluxbench.kernels import attention`. It is loaded when it is first asked for,
since processes without torch import this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fluxbench.kernels.flash_attention import attention

__all__ = ["attention"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fluxbench.kernels import flash_attention

    return flash_attention.attention

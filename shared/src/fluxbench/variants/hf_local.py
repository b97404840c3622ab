"""Our attention as users of the Hugging Face package `kernels` load it: a local repository.

The repository is made from the sources of `gluon_flash` and `triton_flash` when it is loaded
(`fluxbench.kernels.package`). Its kernels are those of `gluon_flash` where that runs, else those of `triton_flash`. A
forward pass too calls an operator of torch, which takes time on the host.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import gluon_flash, triton_flash

if TYPE_CHECKING:  # what the repository is made of, so that results depend on it
    from fluxbench.kernels import flash_attention  # noqa: F401


def load(call: AttentionCall) -> Attention:
    """Return `attention` of the repository, which takes [batch, seq_len, heads, head_dim]."""
    from fluxbench.kernels import package

    return partial(package.load().attention, causal=call.causal)


VARIANT = replace(
    triton_flash.VARIANT,
    name="hf_local_flash",
    label="HF kernels (fluxbench)",
    load=load,
    kernel_pattern=r"^(flash|gluon)_forward_kernel$",
    backward_kernel_pattern=f"{triton_flash.VARIANT.backward_kernel_pattern}|{gluon_flash.VARIANT.backward_kernel_pattern}",
    note="the same kernels as gluon_flash, else triton_flash, loaded by the package kernels",
    packages=("torch", "triton", "kernels"),
    is_another_way=True,
)

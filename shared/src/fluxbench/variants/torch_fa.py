"""FlashAttention-3 and -4 in the place of torch's own kernel (torch.nn.attention.activate_flash_attention_impl).

Exact. While one of them is active, torch's flash-attention backend calls the package's kernels. That holds for the
whole process, where the reference runs too: so each call activates it and restores torch's own afterwards, which costs
the host some 30 microseconds (torch 2.13, on a CPU) and the device nothing. A user activates it once.

FA3 needs `flash_attn_interface` with its backward pass, which `fa3-fwd` lacks. FA4 needs a `flash-attn-4` whose kernels
return what this torch expects.
"""

import contextlib
import importlib.metadata
from collections.abc import Iterator
from typing import Any

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base


def load(call: AttentionCall, implementation: str, package: str) -> Attention:
    """Return torch's flash-attention backend with "FA3" or "FA4" active within each call.

    Raises `ImportError` where this torch has no such choice, or the package is missing or does not fit it.
    """
    import torch
    from torch.nn import attention

    for name in ("activate_flash_attention_impl", "restore_flash_attention_impl"):
        if not hasattr(attention, name):
            raise ImportError(f"torch {torch.__version__} has no torch.nn.attention.{name}; it needs a newer torch")
    misfit = f"torch {torch.__version__}'s {implementation} does not fit {package} {_version(package)}"
    on_flash = _base.sdpa("FLASH_ATTENTION", call)

    @contextlib.contextmanager
    def active() -> Iterator[None]:
        try:
            attention.activate_flash_attention_impl(implementation)
            yield
        finally:
            attention.restore_flash_attention_impl()

    def attend(q: Any, k: Any, v: Any) -> Any:
        try:
            with active():
                return on_flash(q, k, v)
        except (TypeError, ValueError) as error:  # another signature, or another number of results
            raise ImportError(f"{misfit}: {error}; install two that fit") from error

    try:
        with active():
            pass
    except ModuleNotFoundError as error:
        raise ImportError(f"torch's {implementation} takes {package}: {error}; install it") from error
    except (RuntimeError, ValueError) as error:  # the package lacks kernels, or torch does not know the name
        raise ImportError(f"{misfit}: {error}; install two that fit") from error
    return attend


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _capabilities(*majors: int) -> _base.Capabilities:
    return _base.Capabilities(
        dtypes=("bfloat16", "float16"),
        minimum=(9, 0),
        majors=majors,
        causal=_base.YES,
        gqa=_base.YES,
        backward=_base.DOCUMENTED,  # where it is active during the backward pass too
    )


FA3 = _base.Variant(
    name="torch_fa3",
    label="FlashAttention-3 (SDPA)",
    load=lambda call: load(call, "FA3", "flash-attn-3"),
    capabilities=_capabilities(9),
    kernel_pattern=r"FlashAttnFwdSm90",
    packages=("torch", "flash-attn-3"),
)
FA4 = _base.Variant(
    name="torch_fa4",
    label="FlashAttention-4 (SDPA)",
    load=lambda call: load(call, "FA4", "flash-attn-4"),
    capabilities=_capabilities(9, 10),
    jit=True,
    kernel_pattern=r"FlashAttentionForward",
    packages=("torch", "flash-attn-4", "nvidia-cutlass-dsl"),
)

"""Transformer Engine's DotProductAttention, once with each of its backends.

Exact. `te_fused` is cuDNN's attention, `te_flash` the flash-attn 2 that is installed beside it, `te_unfused` two matrix
products with its own softmax between them, which holds all scores. NVTE variables name the backend, so that each runs
in a process of its own; with the others turned off, the library refuses where it would have taken another.
Runs on compute capability 8.0 or newer.
"""

import contextlib
import ctypes
import importlib.util
import os
from pathlib import Path
from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base


def supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None."""
    if workload.causal:
        return "Transformer Engine is measured without a causal mask"
    return _base.needs(device, workload, minimum=(8, 0), dtypes=("bfloat16", "float16"))


def load(
    backend: str, *, mask: str = "no_mask", training: bool = False, lengths: tuple[int, ...] = ()
) -> _base.Attention:
    """Return DotProductAttention, a module for each number of heads; its defaults are another layout and a causal mask.

    In training it keeps what a backward pass needs. Sequences of several `lengths` lie one after the other.
    """
    import torch

    _take_cudnn_of_torch()
    try:
        from transformer_engine.pytorch import DotProductAttention
        from transformer_engine.pytorch.attention.dot_product_attention.utils import FlashAttentionUtils
    except (ImportError, OSError, AssertionError, RuntimeError) as error:
        words = (str(error) or type(error).__name__).splitlines()[0].rsplit("/", 1)[-1].rstrip(".")  # no folder
        raise ImportError(f"{words}; install transformer-engine, its core and its torch part of one version") from error
    if backend == "FLASH" and not FlashAttentionUtils.is_installed:
        found = {"0": "none"}.get(str(FlashAttentionUtils.version), str(FlashAttentionUtils.version))
        raise ImportError(f"the flash backend takes flash-attn 2 and finds {found}; install flash-attn==2.8.3")
    _choose_for(None)
    modules: dict[str, Any] = {}
    chose: set[tuple[Any, ...]] = set()

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def name_of(of_q: tuple[int, ...], of_k: tuple[int, ...], dtype: Any, device: Any, traced: bool) -> str:
        """Make the module, when a graph is traced too, and return its name.

        It chooses its backend anew for each shape, by functions that a trace cannot hold (torch 2.11, version 2.20.2).
        So where one is `traced`, it is called once beside, at this very shape, and keeps what it chose from then on.
        """
        heads, kv_heads, head_dim = of_q[2], of_k[2], of_q[3]
        name = f"{heads}/{kv_heads} of {head_dim}"
        if name not in modules:
            modules[name] = DotProductAttention(
                heads,
                head_dim,
                num_gqa_groups=kv_heads,
                attention_dropout=0.0,
                qkv_format="thd" if lengths else "bshd",
                attn_mask_type="padding" if lengths else mask,
            ).train(training)
        if traced and (of_q, of_k, dtype) not in chose:
            chose.add((of_q, of_k, dtype))
            _choose_for(None)
            q, k = (torch.zeros(shape, dtype=dtype, device=device) for shape in (of_q, of_k))
            modules[name](q, k, torch.zeros_like(k))
            _choose_for(_Whatever())
        return name

    def attend(q: Any, k: Any, v: Any) -> Any:
        name = name_of(tuple(q.shape), tuple(k.shape), q.dtype, q.device, torch.compiler.is_compiling())
        return modules[name](q, k, v).view(q.shape)

    def attend_to_each(q: Any, k: Any, v: Any) -> Any:
        name = name_of(tuple(q.shape), tuple(k.shape), q.dtype, q.device, False)
        ends = _base.bounds(lengths, q.device)
        sizes = {"max_seqlen_q": max(lengths), "max_seqlen_kv": max(lengths)}
        return modules[name](q[0], k[0], v[0], cu_seqlens_q=ends, cu_seqlens_kv=ends, **sizes).view(q.shape)

    return attend_to_each if lengths else attend


def _take_cudnn_of_torch() -> None:
    """Load all of the cuDNN that torch brought, and name it in the variable where the library looks first.

    Else the system's is loaded beside it, and parts of two versions in one process do not fit together.
    """
    try:
        spec = importlib.util.find_spec("nvidia.cudnn")
    except ModuleNotFoundError:  # torch was built against the system's
        return
    for folder in (spec and spec.submodule_search_locations) or ():
        os.environ["CUDNN_HOME"] = folder
        for part in sorted(Path(folder, "lib").glob("libcudnn*.so.*")):
            ctypes.CDLL(str(part), mode=ctypes.RTLD_GLOBAL)


def _choice() -> dict[str, Any]:
    """Return what DotProductAttention keeps of its latest choice of a backend."""
    from transformer_engine.pytorch.attention.dot_product_attention import dot_product_attention as module

    found: dict[str, Any] = module._attention_backends
    return found


class _Whatever:
    """Parameters that equal all others."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _choose_for(parameters: _Whatever | None) -> None:
    """Let its present choice be one for these parameters, where the next call has others: it chooses anew."""
    with contextlib.suppress(ImportError, AttributeError):  # of another version
        _choice()["attention_params"] = parameters


def chosen() -> str | None:
    """Return the backend that DotProductAttention chose at its latest call."""
    said = _choice()
    names = {
        "use_flash_attention": f"FlashAttention {said['flash_attention_backend']}",
        "use_fused_attention": f"FusedAttention, sub-backend {said['fused_attention_backend']}",
        "use_unfused_attention": "UnfusedDotProductAttention",
    }
    return next((name for key, name in names.items() if said[key]), None)


def _capabilities(backend: str) -> _base.Capabilities:
    return _base.Capabilities(
        dtypes=("bfloat16", "float16"),
        head_dims=_base.HEAD_DIMS,
        minimum=(8, 0),
        causal=lambda: load(backend, mask="causal"),
        gqa=lambda: load(backend),
        backward=lambda: load(backend, training=True),
        varlen=lambda lengths: load(backend, lengths=lengths),
    )


def _only(backend: str) -> dict[str, str]:
    """Return the variables that turn this backend on and the others off; FLASH is that of flash-attn 2."""
    others = {"NVTE_FLASH_ATTN_V3": "0", "NVTE_FLASH_ATTN_V4": "0"}
    return others | {f"NVTE_{each}_ATTN": str(int(each == backend)) for each in ("FLASH", "FUSED", "UNFUSED")}


FUSED = _base.Variant(
    name="te_fused",
    load=lambda: load("FUSED"),
    supports=supports,
    capabilities=_capabilities("FUSED"),
    forms=(_base.Form.EAGER, _base.Form.COMPILE_DEFAULT, _base.Form.COMPILE_MAX_AUTOTUNE),
    kernel_pattern=r"cudnn",
    fullgraph=False,
    variables=_only("FUSED"),
    detail=chosen,
    packages=("torch", "transformer-engine"),
)
FLASH = _base.Variant(
    name="te_flash",
    load=lambda: load("FLASH"),
    supports=supports,
    capabilities=_capabilities("FLASH"),
    kernel_pattern=r"(?<!pytorch_)flash::flash_fwd",
    variables=_only("FLASH"),
    detail=chosen,
    packages=("torch", "transformer-engine", "flash-attn"),
)
UNFUSED = _base.Variant(
    name="te_unfused",
    load=lambda: load("UNFUSED"),
    supports=supports,
    capabilities=_capabilities("UNFUSED"),
    # Its own softmax, scaled_softmax_warp_forward, or torch's where the length is ragged, and the two matrix products.
    kernel_pattern=r"(?i)softmax|gemm|nvjet|xmma",
    variables=_only("UNFUSED"),
    detail=chosen,
    packages=("torch", "transformer-engine"),
)

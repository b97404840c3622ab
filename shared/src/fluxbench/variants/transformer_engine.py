"""Transformer Engine's DotProductAttention, once with each of its backends.

`te_fused` is cuDNN's attention and `te_flash` the flash-attn 2 that is installed beside it: exact. `te_unfused` is two
matrix products with its own softmax between them; it holds all scores, rounded to the inputs' dtype, so its class is
`rounded`. NVTE variables name the backend, so that each runs in a process of its own; with the others turned off, the
library refuses where it would have taken another. Runs on compute capability 8.0 or newer.

`te_fused_det`: NVTE_ALLOW_NONDETERMINISTIC_ALGO=0 lets cuDNN take a deterministic backward pass.
"""

import contextlib
import ctypes
import dataclasses
import importlib.util
import os
import weakref
from pathlib import Path
from typing import Any

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base, forms


def load(call: AttentionCall, backend: str) -> Attention:
    """Return DotProductAttention; its defaults are another layout and a causal mask, which is aligned to the start.

    In training it keeps what a backward pass needs. Sequences of several `lengths` lie one after the other.
    """
    import torch

    module = _import(backend)(
        call.heads,
        call.head_dim_qk,
        num_gqa_groups=call.kv_heads,
        attention_dropout=0.0,
        qkv_format="thd" if call.lengths else "bshd",
        attn_mask_type=_mask(call),
    ).train(call.backward)
    _choose_for(None)

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def choose(device: torch.device) -> bool:
        """Let the module choose its backend, and keep it from then on.

        It chooses anew for each shape, by functions that a trace cannot hold (torch 2.11, version 2.20.2). So where one
        is traced, it is called once beside, at this very shape.
        """
        _choose_for(None)
        options = {"dtype": getattr(torch, call.dtype), "device": device}
        k = torch.zeros(call.batch, call.seq_len_k, call.kv_heads, call.head_dim_qk, **options)
        module(torch.zeros(call.batch, call.seq_len_q, call.heads, call.head_dim_qk, **options), k, torch.zeros_like(k))
        _choose_for(_Whatever())
        return True

    def attend(q: Any, k: Any, v: Any) -> Any:
        if torch.compiler.is_compiling():
            choose(q.device)
        out = module(q, k, v).view(q.shape)
        if call.retain_graph:
            _keep_for_several(out)
        return out

    def attend_to_each(q: Any, k: Any, v: Any) -> Any:
        return module(q[0], k[0], v[0], **_base.varlen(call, q.device, "kv")).view(q.shape)

    return attend_to_each if call.lengths else attend


def _keep_for_several(out: Any) -> None:
    """Let a backward pass run several times: `FusedAttnFunc.backward` of 2.20.2 drops two of its context's fields."""
    node = out.grad_fn
    while node is not None and not hasattr(node, "tensor_objects"):
        node = next((before for before, _ in node.next_functions if before is not None), None)
    if node is None:
        return
    kept = {name: getattr(node, name, None) for name in ("tensor_objects", "backward_objects")}
    context = weakref.ref(node)  # which keeps the hook

    def put_back(*_: Any) -> None:
        for name, value in kept.items():
            setattr(context(), name, value)

    node.register_hook(put_back)


def _mask(call: AttentionCall) -> str:
    words = ["padding"] * bool(call.lengths) + ["causal"] * call.causal
    return "_".join(words) or "no_mask"


def _import(backend: str) -> Any:
    """Return the class `DotProductAttention`, or raise `ImportError` where it or the backend is not there."""
    _take_cudnn_of_torch()
    try:
        from transformer_engine.pytorch import DotProductAttention
        from transformer_engine.pytorch.attention.dot_product_attention.utils import FlashAttentionUtils
    except (ImportError, OSError, AssertionError, RuntimeError) as error:
        words = (str(error) or type(error).__name__).splitlines()[0].rsplit("/", 1)[-1].rstrip(".")  # no folder
        raise ImportError(f"{words}; install transformer-engine, its core and its torch part of one version") from error
    if backend == "FLASH" and not FlashAttentionUtils.is_installed:
        version = {"0": "none"}.get(str(FlashAttentionUtils.version), str(FlashAttentionUtils.version))
        raise ImportError(f"the flash backend takes flash-attn 2 and finds {version}; install flash-attn==2.8.3")
    return DotProductAttention


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

    choice: dict[str, Any] = module._attention_backends
    return choice


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
    choice = _choice()
    names = {
        "use_flash_attention": f"FlashAttention {choice['flash_attention_backend']}",
        "use_fused_attention": f"FusedAttention, sub-backend {choice['fused_attention_backend']}",
        "use_unfused_attention": "UnfusedDotProductAttention",
    }
    return next((name for key, name in names.items() if choice[key]), None)


def _only(backend: str) -> dict[str, str]:
    """Return the variables that turn this backend on and the others off; FLASH is that of flash-attn 2."""
    others = {"NVTE_FLASH_ATTN_V3": "0", "NVTE_FLASH_ATTN_V4": "0"}
    return others | {f"NVTE_{name}_ATTN": str(int(name == backend)) for name in ("FLASH", "FUSED", "UNFUSED")}


_CAPABILITIES = _base.Capabilities(
    dtypes=("bfloat16", "float16"),
    minimum=(8, 0),
    causal=_base.YES,
    gqa=_base.YES,
    backward=_base.YES,
    varlen=_base.YES,
)
FUSED = _base.Variant(
    name="te_fused",
    label="Transformer Engine (cuDNN)",
    load=lambda call: load(call, "FUSED"),
    capabilities=_CAPABILITIES,
    forms=forms.COMPILED,
    kernel_pattern=r"cudnn",
    backward_kernel_pattern=r"cudnn",
    fullgraph=False,
    variables=_only("FUSED"),
    detail=chosen,
    packages=("torch", "transformer-engine"),
)
FUSED_DETERMINISTIC = _base.deterministic(
    FUSED,
    FUSED.load,
    "Transformer Engine det.",
    capabilities=dataclasses.replace(_CAPABILITIES, minimum=(9, 0), varlen=_base.DOCUMENTED),
    variables={**FUSED.variables, "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0"},
)
FLASH = _base.Variant(
    name="te_flash",
    label="Transformer Engine (FA2)",
    load=lambda call: load(call, "FLASH"),
    capabilities=_CAPABILITIES,
    kernel_pattern=r"(?<!pytorch_)flash::flash_fwd",
    backward_kernel_pattern=r"(?<!pytorch_)flash::flash_bwd",
    variables=_only("FLASH"),
    detail=chosen,
    packages=("torch", "transformer-engine", "flash-attn"),
)
_UNFUSED_KERNELS = r"(?i)softmax|gemm|nvjet|xmma"  # its softmax, or torch's at ragged lengths, and matrix products
UNFUSED = _base.Variant(
    name="te_unfused",
    label="Transformer Engine (unfused)",
    holds_scores=True,
    precision_class="rounded",
    load=lambda call: load(call, "UNFUSED"),
    capabilities=_CAPABILITIES,
    kernel_pattern=_UNFUSED_KERNELS,
    backward_kernel_pattern=_UNFUSED_KERNELS,
    variables=_only("UNFUSED"),
    detail=chosen,
    packages=("torch", "transformer-engine"),
)

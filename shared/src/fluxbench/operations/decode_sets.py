"""Workloads of decoding: attention on a cache, contiguous or in pages, and steps of a whole model.

The shapes are those of Llama-3 8B: 32 query heads of 128 on 8 of keys and values, 32 layers of width 4,096 with an MLP
of 14,336, vocabulary 128,256 (torchtitan, `models/llama3/__init__.py`). Its cache takes 4 KiB a token and layer.
"""

from __future__ import annotations

from collections.abc import Mapping

from fluxbench.operations import workload
from fluxbench.operations.workload import Shape, Workload

TOKENS = (512, 4096, 32768, 131072)
BATCHES = (1, 8, 32, 128)
PAGES = (16, 256)  # tokens of a page
_IN_PAGES = {1: (4096, 131072), 128: (4096, 32768)}  # cached tokens by batch
_LLAMA: Shape = {"seq_len_q": 1, "heads": 32, "kv_heads": 8, "head_dim_qk": 128, "head_dim_v": 128, "dtype": "bfloat16"}
_MODEL: Shape = {
    **{"width": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "mlp": 14336, "layers": 32, "vocabulary": 128_256},
    "dtype": "bfloat16",
}
# The largest cache that a device may hold first: smaller ones are parts of it.
_OF_MODEL = {128: (32768, 4096, 512), 32: (32768, 4096, 512), 1: TOKENS[::-1]}
# Of a CPU: Llama-3.2 1B's heads, and a model of two layers.
_SMALL: Shape = {**_LLAMA, "head_dim_qk": 64, "head_dim_v": 64}
_SMALL_TOKENS = {1: (512, 2048), 4: (2048,)}
_SMALL_MODEL: Shape = {
    **{"width": 256, "heads": 8, "kv_heads": 2, "head_dim": 64, "mlp": 512, "layers": 2, "vocabulary": 1000},
    "dtype": "bfloat16",
}


def sets() -> dict[str, tuple[Workload, ...]]:
    """Return the sets by name."""
    by_batch = dict.fromkeys(BATCHES, TOKENS)
    found = {
        f"llama3-8b-decode{_of_batch(batch)}": _attention("llama3-8b-decode", _LLAMA, {batch: tokens})
        for batch, tokens in by_batch.items()
    }
    found["llama3-8b-decode-pages"] = tuple(
        each for page in PAGES for each in _attention("llama3-8b-decode", _LLAMA, _IN_PAGES, page)
    )
    found["llama3-8b-decode-model"] = _models("llama3-8b-decode-model", _MODEL, _OF_MODEL)
    found["decode-small"] = (
        *_attention("decode-small", _SMALL, _SMALL_TOKENS),
        *_attention("decode-small", _SMALL, {4: (2048,)}, 16),
    )
    found["decode-model-small"] = _models("decode-model-small", _SMALL_MODEL, {1: (512,), 4: (512, 2048)})
    return found


def _attention(name: str, shape: Shape, tokens: Mapping[int, tuple[int, ...]], page: int = 0) -> tuple[Workload, ...]:
    """Return attention over cached tokens by batch; each batch is a curve of its own."""
    paged: Shape = {"page_size": page} if page else {}
    group = f"{name}-p{page}" if page else name
    return tuple(
        workload(
            "decode", f"{group}{_of_batch(batch)}-{cached}", {**shape, "batch": batch, "seq_len_k": cached, **paged},
            group=f"{group}{_of_batch(batch)}", x=cached, x_unit="cached tokens",
        )
        for batch, lengths in tokens.items()
        for cached in lengths
    )  # fmt: skip


def _models(name: str, shape: Shape, tokens: Mapping[int, tuple[int, ...]]) -> tuple[Workload, ...]:
    return tuple(
        workload(
            "decode_model", f"{name}{_of_batch(batch)}-{cached}", {**shape, "batch": batch, "cached": cached},
            group=f"{name}{_of_batch(batch)}", x=cached, x_unit="cached tokens",
        )
        for batch, lengths in tokens.items()
        for cached in lengths
    )  # fmt: skip


def _of_batch(batch: int) -> str:
    return "" if batch == 1 else f"-b{batch}"

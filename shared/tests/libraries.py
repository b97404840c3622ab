"""The libraries of variants as fakes for the CPU: called as the real ones are, they compute attention as those do.

Each takes the arguments of its recorded signature that a variant may pass and no others, and has the library's own
defaults, layout and alignment of the causal mask.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import types
from collections.abc import Callable
from typing import Any

import fake_cudnn
import pytest
import signatures
import torch

from fluxbench.kernels import hub
from fluxbench.variants import flash_attn_3, hf_kernels

TE = "transformer_engine.pytorch.attention.dot_product_attention"
Fake = Callable[[pytest.MonkeyPatch], object]


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, to_end: bool = True) -> Any:
    """Return attention of and in [batch, seq_len, heads, head_dim]; k and v may have fewer heads.

    A causal mask is aligned to the end, or to the start.
    """
    offset = k.shape[1] - q.shape[1] if to_end else 0
    mask = torch.ones(q.shape[1], k.shape[1]).tril(offset).bool() if causal else None
    swapped = (x.transpose(1, 2) for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(*swapped, attn_mask=mask, enable_gqa=True)
    return out.transpose(1, 2).contiguous()


def each_apart(q: Any, k: Any, v: Any, bounds: Any, causal: bool = False) -> Any:
    """Return attention within each of several sequences: `[sum(lengths), heads, head_dim]`, as q, k and v are."""
    assert bounds.dtype == torch.int32
    cuts = bounds[1:-1].tolist()
    parts = zip(*(torch.tensor_split(x, cuts) for x in (q, k, v)), strict=True)
    return torch.cat([attention(*(x[None] for x in part), causal=causal)[0] for part in parts])


def flash(q: Any, k: Any, v: Any, *, causal: bool = False, deterministic: bool = False) -> Any:
    return attention(q, k, v, causal=causal)


def flash_varlen(
    q: Any, k: Any, v: Any, *, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int, causal: bool
) -> Any:
    assert cu_seqlens_q.equal(cu_seqlens_k)
    assert max_seqlen_q == max_seqlen_k == int(cu_seqlens_q.diff().max())
    return each_apart(q, k, v, cu_seqlens_q, causal)


def with_lse(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **arguments: (function(**arguments), None)


def flash_float8(q: Any, k: Any, v: Any, *, causal: bool = False, **descales: Any) -> Any:
    """Attend as flash-attn 3 does, in float8 with descales of [batch, kv_heads], float32; bfloat16 comes out."""
    if not descales:
        return attention(q, k, v, causal=causal)
    assert descales.keys() == {"q_descale", "k_descale", "v_descale"}
    batch, _, kv_heads, _ = k.shape
    wide = []
    for x, descale in ((q, descales["q_descale"]), (k, descales["k_descale"]), (v, descales["v_descale"])):
        assert (x.dtype, list(descale.shape), descale.dtype) == (torch.float8_e4m3fn, [batch, kv_heads], torch.float32)
        wide.append(x.float() * descale.repeat_interleave(x.shape[2] // kv_heads, 1)[:, None, :, None])
    return attention(*wide, causal=causal).bfloat16()


def install_flash_attn(monkeypatch: pytest.MonkeyPatch) -> None:
    signatures.install(monkeypatch, "flash_attn.flash_attn_func", flash)
    signatures.install(monkeypatch, "flash_attn.flash_attn_varlen_func", flash_varlen)


def install_flash_attn_3(
    monkeypatch: pytest.MonkeyPatch, name: str = "fa3_fwd_interface", returned: Callable[..., Any] = lambda f: f
) -> list[dict[str, Any]]:
    """Let flash-attn 3 be imported by one of its names; return the arguments of its calls."""
    for name_of_cached in ("interface", "load_once"):  # put back with what they hold when the test ends
        cached = getattr(flash_attn_3, name_of_cached)
        monkeypatch.setattr(flash_attn_3, name_of_cached, functools.cache(cached.__wrapped__))
    signatures.install(monkeypatch, f"{name}.flash_attn_varlen_func", returned(flash_varlen))
    return signatures.install(monkeypatch, f"{name}.flash_attn_func", returned(flash_float8))


def install_both_flash_attn_3(monkeypatch: pytest.MonkeyPatch) -> None:
    install_flash_attn_3(monkeypatch)
    install_flash_attn_3(monkeypatch, "flash_attn_interface")


def install_flash_attn_4(monkeypatch: pytest.MonkeyPatch) -> None:
    signatures.install(monkeypatch, "flash_attn.cute.flash_attn_func", with_lse(flash))
    signatures.install(monkeypatch, "flash_attn.cute.flash_attn_varlen_func", with_lse(flash_varlen))


class FlashInTorch:
    """torch's choice of an implementation of its flash backend, and which one was active at each call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.active: str | None = None
        self.at_calls: list[str | None] = []
        sdpa = torch.nn.functional.scaled_dot_product_attention

        def noting(*tensors: Any, **options: Any) -> Any:
            self.at_calls.append(self.active)
            return sdpa(*tensors, **options)

        def choose(name: str | None) -> None:
            self.active = name

        monkeypatch.setattr(torch.nn.attention, "activate_flash_attention_impl", choose)
        monkeypatch.setattr(torch.nn.attention, "restore_flash_attention_impl", lambda: choose(None))
        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", noting)


def install_flex(monkeypatch: pytest.MonkeyPatch, backend: str | None = None) -> None:
    """Let FlexAttention compute densely, at once, and take this backend alone."""
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    signatures.module(monkeypatch, "flash_attn.cute")
    real = inspect.signature(flex.flex_attention)

    def flex_attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
        real.bind(q, k, v, **options)
        assert options.pop("kernel_options", {}) == ({"BACKEND": backend} if backend else {})
        mask = None
        if block_mask := options.pop("block_mask", None):
            assert block_mask.seq_lengths == (q.shape[2], k.shape[2])
            rows, columns = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
            mask = block_mask.mask_mod(0, 0, rows, columns)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)

    monkeypatch.setattr(flex, "flex_attention", flex_attention)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def sage(q: Any, k: Any, v: Any, *, tensor_layout: str = "HND", is_causal: bool = False, smooth_k: bool = True) -> Any:
    """Attend as 1.0.6 does where it does not quantize: it smooths its caller's k, and heads come first by default."""
    if smooth_k:
        k -= k.mean(dim=1, keepdim=True)
    if tensor_layout == "HND":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    assert not is_causal or q.shape[1] == k.shape[1]
    return attention(q, k, v, causal=is_causal)


def sage_of_the_hub(q: Any, k: Any, v: Any, *, tensor_layout: str = "HND", is_causal: bool = False) -> Any:
    return sage(q, k, v, tensor_layout=tensor_layout, is_causal=is_causal, smooth_k=False)


def sage_varlen(
    q: Any, k: Any, v: Any, *, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    is_causal: bool = False, smooth_k: bool = True,
) -> Any:  # fmt: skip
    assert not smooth_k
    lengths = {"max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k}
    return flash_varlen(q, k, v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, **lengths, causal=is_causal)


def install_sage(monkeypatch: pytest.MonkeyPatch, function: str = "sageattn") -> list[dict[str, Any]]:
    signatures.install(monkeypatch, "sageattention.sageattn_varlen", sage_varlen)
    return signatures.install(monkeypatch, f"sageattention.{function}", sage)


class DotProductAttention:
    """Attention as its arguments say; its defaults are [seq_len, batch, heads, head_dim] and a causal mask."""

    def __init__(
        self, num_attention_heads: int, kv_channels: int, *, num_gqa_groups: int | None = None,
        attention_dropout: float, qkv_format: str = "sbhd", attn_mask_type: str = "causal",
    ) -> None:  # fmt: skip
        assert attention_dropout == 0.0
        self.sizes = (num_attention_heads, num_gqa_groups or num_attention_heads, kv_channels)
        self.qkv_format = qkv_format
        assert attn_mask_type in ("no_mask", "causal", "padding", "padding_causal")
        self.padding, self.causal = "padding" in attn_mask_type, "causal" in attn_mask_type
        self.training = True

    def train(self, mode: bool = True) -> DotProductAttention:
        self.training = mode
        return self

    def eval(self) -> DotProductAttention:
        return self.train(False)

    def __call__(self, *positional: Any, **keywords: Any) -> Any:
        forward = signatures.signature("transformer_engine.pytorch.DotProductAttention.forward")
        given = forward.bind(*positional, **keywords).arguments
        q, k, v = (given.pop(f"{name}_layer") for name in ("query", "key", "value"))
        assert self.sizes == (q.shape[-2], k.shape[-2], q.shape[-1])
        assert self.training == q.requires_grad
        assert self.padding == (self.qkv_format == "thd")
        if self.qkv_format == "thd":
            lengths = {name.replace("kv", "k"): value for name, value in given.items()}
            return flash_varlen(q, k, v, **lengths, causal=self.causal).flatten(1)
        assert not given
        if self.qkv_format == "sbhd":
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        return attention(q, k, v, causal=self.causal, to_end=False).flatten(2)


def install_te(monkeypatch: pytest.MonkeyPatch, flash: str = "2.8.3", module: Any = None) -> list[dict[str, Any]]:
    """Let Transformer Engine be imported, with this version of flash-attn; return the modules that are made."""
    utilities = signatures.module(monkeypatch, f"{TE}.utils")
    utilities.FlashAttentionUtils = types.SimpleNamespace(  # type: ignore[attr-defined]
        is_installed=flash == "2.8.3", version=flash
    )
    name = "transformer_engine.pytorch.DotProductAttention"
    return signatures.install(monkeypatch, name, module or DotProductAttention)


class LowerTriangularMask:
    """xFormers' causal mask, which is aligned to the start."""


class BlockDiagonalMask:
    """xFormers' mask of several sequences."""

    def __init__(self, q_seqlen: list[int], causal: bool = False) -> None:
        self.q_seqlen, self.causal = q_seqlen, causal

    def make_causal(self) -> BlockDiagonalMask:
        return BlockDiagonalMask(self.q_seqlen, causal=True)


def memory_efficient(query: Any, key: Any, value: Any, attn_bias: Any = None) -> Any:
    """Attend as xFormers does; in groups of heads, [batch, seq_len, groups, heads, head_dim], forward alone."""
    shape = query.shape
    if query.ndim == 5:
        assert not query.requires_grad
        query, key, value = (x.flatten(2, 3) for x in (query, key, value))
    assert query.shape[2:] == key.shape[2:]
    if isinstance(attn_bias, BlockDiagonalMask):
        bounds = torch.tensor([0, *attn_bias.q_seqlen]).cumsum(0).int()
        return each_apart(query[0], key[0], value[0], bounds, attn_bias.causal)[None].view(shape)
    assert attn_bias is None or isinstance(attn_bias, LowerTriangularMask)
    return attention(query, key, value, causal=attn_bias is not None, to_end=False).view(shape)


def install_xformers(
    monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None, answer: Any = memory_efficient
) -> None:
    """Let xFormers be imported, whose C++ extension may have failed to load."""
    extension = signatures.module(monkeypatch, "xformers._cpp_lib")
    extension._cpp_library_load_exception = failure  # type: ignore[attr-defined]
    signatures.install(monkeypatch, "xformers.ops.memory_efficient_attention", answer)
    operators = signatures.module(monkeypatch, "xformers.ops")
    operators.LowerTriangularMask = LowerTriangularMask  # type: ignore[attr-defined]
    biases = "xformers.ops.fmha.attn_bias.BlockDiagonalMask"
    signatures.install(monkeypatch, f"{biases}.from_seqlens", BlockDiagonalMask)


def install_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hub have kernels whose functions are called as those of the locked versions are."""

    def load(repository: str, version: int) -> Any:
        functions: dict[str, tuple[str, Callable[..., Any]]] = {
            hf_kernels.FLASH_ATTN_2: ("flash_attn2.flash_attn_func", flash),
            hf_kernels.FLASH_ATTN_3: ("flash_attn3.flash_attn_func", flash),
            hf_kernels.SAGE: ("sage_attention.sageattn", sage_of_the_hub),
        }
        name, answer = functions[repository]
        assert int(signatures.RECORDED[name]["version"]) == version
        signatures.install(monkeypatch, name, answer)
        return importlib.import_module(name.partition(".")[0])

    monkeypatch.setattr(hub, "load", load)


FAKES: dict[str, Fake] = {
    **dict.fromkeys(("flex", "flex_dynamic", "flex_eager"), install_flex),
    **dict.fromkeys(("flash_attn_2", "flash_attn_2_det"), install_flash_attn),
    "flash_attn_3": install_both_flash_attn_3,
    "flash_attn_3_fp8": install_flash_attn_3,
    **dict.fromkeys(("flash_attn_4", "flash_attn_4_det"), install_flash_attn_4),
    **dict.fromkeys(("torch_fa3", "torch_fa4"), FlashInTorch),
    "flex_flash": lambda monkeypatch: install_flex(monkeypatch, "FLASH"),
    "sage_int8_fp16_triton": install_sage,
    "sage_int8_fp16_cuda": lambda monkeypatch: install_sage(monkeypatch, "sageattn_qk_int8_pv_fp16_cuda"),
    "sage_int8_fp8_sm90": lambda monkeypatch: install_sage(monkeypatch, "sageattn_qk_int8_pv_fp8_cuda_sm90"),
    **dict.fromkeys(("te_fused", "te_fused_det", "te_flash", "te_unfused"), install_te),
    "xformers": install_xformers,
    **dict.fromkeys(("cudnn_frontend", "cudnn_frontend_det", "cudnn_frontend_fp8"), fake_cudnn.install),
    **dict.fromkeys(("hf_flash_attn2", "hf_flash_attn3", "hf_sage"), install_hub),
}

"""What is made for decoding is right on contiguous caches and on pages: fakes that are called as the real ones are."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, ClassVar

import libraries
import pytest
import signatures
import torch
from fakes import CPU, GPU
from torch.nn.attention import flex_attention
from torch.nn.attention.flex_attention import BlockMask

from fluxbench import operations, variants
from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import judge
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import flash_attn_3

SHAPE: dict[str, Any] = {
    **{"batch": 2, "seq_len_q": 1, "seq_len_k": 600, "heads": 4, "kv_heads": 2, "head_dim_qk": 64, "head_dim_v": 64},
    "dtype": "bfloat16",
}
ONLY_DECODE = [each.name for each in variants.REGISTRY if each.only_decodes]


def in_order(k: Any, v: Any, table: Any, lengths: Any) -> tuple[Any, Any]:
    """Return k and v of `[batch, tokens, kv_heads, head_dim]`, from pages or as they are."""
    assert (lengths.dtype, lengths.tolist()) == (torch.int32, [600, 600])
    if table is not None:
        assert table.dtype == torch.int32
        k, v = (x[table.long()].flatten(1, 2)[:, : int(lengths[0])] for x in (k, v))
    return k, v


def kvcache(q: Any, k_cache: Any, v_cache: Any, *, cache_seqlens: Any, **table: Any) -> Any:
    """Attend as flash_attn_with_kvcache does; flash-attn 2 takes whole pages of 256 alone."""
    [(name, pages)] = table.items()
    assert pages is None or name == "page_table" or k_cache.shape[1] % 256 == 0
    return libraries.attention(q, *in_order(k_cache, v_cache, pages, cache_seqlens))


class Wrapper:
    """FlashInfer's wrapper: it is planned for a table, and keeps it by reference."""

    plans = 0
    workspaces: ClassVar[list[torch.Tensor]] = []

    def __init__(self, float_workspace_buffer: Any, kv_layout: str, use_tensor_cores: bool) -> None:
        assert (float_workspace_buffer.nbytes, int(float_workspace_buffer.sum()), kv_layout) == (128 << 20, 0, "NHD")
        self.use_tensor_cores = use_tensor_cores
        Wrapper.workspaces.append(float_workspace_buffer)

    def plan(
        self, indptr: Any, indices: Any, last_page_len: Any, num_qo_heads: int, num_kv_heads: int, head_dim: int,
        page_size: int, *, q_data_type: Any, kv_data_type: Any,
    ) -> None:  # fmt: skip
        Wrapper.plans += 1
        assert (num_qo_heads, num_kv_heads, head_dim, self.use_tensor_cores) == (4, 2, 64, False)
        assert q_data_type == kv_data_type == torch.bfloat16
        assert {x.dtype for x in (indptr, indices, last_page_len)} == {torch.int32}
        assert len(indices) == int(indptr[-1])
        self.lengths = (indptr.diff() - 1) * page_size + last_page_len
        self.indices, self.page_size = indices, page_size

    def run(self, q: Any, paged_kv_cache: Any) -> Any:
        k, v = paged_kv_cache
        assert k.shape[1:] == (self.page_size, 2, 64)
        k, v = in_order(k, v, self.indices.view(len(q), -1), self.lengths)
        return libraries.attention(q[:, None], k, v)[:, 0]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the libraries be importable, and nvcc be there."""
    monkeypatch.setattr(flash_attn_3.interface, "__wrapped__", flash_attn_3.interface.__wrapped__)
    flash_attn_3.interface.cache_clear()
    for name in ("flash_attn", "fa3_fwd_interface"):
        signatures.install(monkeypatch, f"{name}.flash_attn_with_kvcache", kvcache)
    signatures.install(monkeypatch, "flashinfer.BatchDecodeWithPagedKVCacheWrapper", Wrapper)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    Wrapper.plans = 0
    Wrapper.workspaces = []


def wrong(name: str, shape: dict[str, Any], kinds: tuple[str, ...] = ("normal", "peaked")) -> list[str]:
    """Return why a variant is wrong on kinds of inputs, one bound call on all."""
    decode = operations.find("decode")
    of = operations.workload("decode", "small", shape, group="small", x=600, x_unit="tokens")
    bound = decode.bind(variants.find(name), shape)
    cases = [Case.make(of, kind, 0, torch.device("cpu")) for kind in kinds]
    return [reason for case in cases if (reason := judge(bound(case.inputs), case)[1])]


@pytest.mark.parametrize("page_size", [0, 16, 256])
@pytest.mark.parametrize("name", ["flash_attn_2_kvcache", "flash_attn_3_kvcache", "flashinfer"])
def test_it_is_right_on_contiguous_caches_and_on_the_pages_that_it_takes(
    name: str, page_size: int, installed: None
) -> None:
    shape = {**SHAPE, "page_size": page_size}
    refused = variants.find(name).supports(GPU, AttentionCall.of(shape))
    if (name, page_size) == ("flash_attn_2_kvcache", 16):
        assert refused == "flash_attn_2_kvcache takes pages of a multiple of 256 tokens, got 16"
        return
    assert refused is None
    assert wrong(name, shape) == []


def test_flashinfer_plans_once_for_a_table_whose_contents_change(installed: None) -> None:
    shape = {**SHAPE, "page_size": 16}
    decode = operations.find("decode")
    bound = decode.bind(variants.find("flashinfer"), shape)
    inputs, others = (decode.inputs(shape, "peaked", seed, "cpu") for seed in (1, 2))
    first = bound(inputs)["out"]
    for name, x in inputs.items():
        x.copy_(others[name])
    second = bound(inputs)["out"]
    assert isinstance(first, torch.Tensor)
    assert isinstance(second, torch.Tensor)
    assert Wrapper.plans == 1
    torch.testing.assert_close(
        second.double(), decode.reference(shape, inputs, torch.float64)["out"], atol=2e-2, rtol=0
    )
    assert not first.equal(second)
    third = bound({name: x.clone() for name, x in inputs.items()})["out"]  # a table at another address
    assert isinstance(third, torch.Tensor)
    assert third.equal(second)
    assert Wrapper.plans == 2
    assert Wrapper.workspaces[0] is Wrapper.workspaces[1]  # which is filled once: profiled calls may plan


def test_without_nvcc_flashinfer_says_what_to_install(
    installed: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(ImportError, match="compiles its kernels by nvcc, and there is none; install the CUDA toolkit"):
        variants.find("flashinfer").attention(AttentionCall.of(SHAPE))


def test_flashinfer_finds_ninja_beside_its_interpreter(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    variants.find("flashinfer").attention(AttentionCall.of(SHAPE))
    assert os.environ["PATH"] == "/nowhere"
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "ninja" else f"/bin/{name}")
    variants.find("flashinfer").attention(AttentionCall.of(SHAPE))
    assert os.environ["PATH"] == f"{Path(sys.executable).parent}:/nowhere"


@pytest.mark.parametrize("name", ONLY_DECODE)
def test_it_is_measured_in_decoding_alone_and_on_a_gpu(name: str) -> None:
    found = variants.find(name)
    assert found.supports(GPU, AttentionCall.of(SHAPE)) is None
    for changes in ({"seq_len_q": 2}, {"causal": True}, {"backward": True}):
        refused = found.supports(GPU, AttentionCall.of({**SHAPE, **changes}))
        assert refused == f"{name} is measured in decoding alone, with one query a sequence"
    assert str(found.supports(CPU, AttentionCall.of(SHAPE))).endswith("this is a CPU")


def test_what_takes_no_pages_says_whether_its_library_has_them() -> None:
    paged = AttentionCall.of({**SHAPE, "page_size": 16})
    assert variants.find("flex").supports(GPU, paged) == "flex is measured without a cache in pages"
    assert variants.find("flash_attn_4").supports(GPU, paged) == "flash_attn_4 does not support a cache in pages"


def test_flex_has_blocks_of_keys_by_which_its_programs_share_a_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    masks: list[BlockMask | None] = []

    def attend(*inputs: Any, block_mask: BlockMask | None = None, **options: Any) -> Any:
        masks.append(block_mask)
        return plain(*inputs, block_mask=block_mask, **options)

    plain = flex_attention.flex_attention
    monkeypatch.setattr(flex_attention, "flex_attention", attend)
    assert wrong("flex_eager", SHAPE) == []
    [mask, again] = masks
    assert mask is again  # made once
    assert mask
    assert mask.BLOCK_SIZE == (128, 128)
    of_keys = mask.kv_num_blocks + (0 if mask.full_kv_num_blocks is None else mask.full_kv_num_blocks)
    assert of_keys.tolist() == [[[5]]]  # all of 600 keys

"""Decoding: a cache in pages holds what a contiguous one does, a large one exists once, and a model's step is whole."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from fakes import CPU
from judged import verdict

from fluxbench import operations, variants
from fluxbench.correctness.case import Case
from fluxbench.operations import held, sets
from fluxbench.operations.decode_model import DecoderShape
from fluxbench.operations.protocol import Tensors
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.words import describe
from fluxbench.variants.forms import COPY, EAGER, FormedVariant

SHAPE: dict[str, Any] = {
    **{"batch": 2, "seq_len_k": 45, "heads": 4, "kv_heads": 2, "head_dim_qk": 32, "head_dim_v": 16},
    "dtype": "bfloat16",
}
PAGED = {**SHAPE, "page_size": 16}
MODEL: dict[str, Any] = {
    **{"batch": 2, "cached": 40, "width": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "mlp": 96, "layers": 3},
    **{"vocabulary": 50, "dtype": "bfloat16"},
}
decode = operations.find("decode")


def cached(inputs: Tensors, name: str) -> torch.Tensor:
    """Return k or v of all sequences, read page by page."""
    table, pages = inputs["table"], inputs[name]
    return torch.stack([torch.cat([pages[page] for page in row.tolist()])[:45] for row in table])


@pytest.mark.parametrize("kind", decode.input_kinds)
def test_a_cache_in_pages_holds_whole_sequences_in_random_places(kind: str) -> None:
    inputs = decode.inputs(PAGED, kind, 3, "cpu")
    assert {name: tuple(x.shape) for name, x in inputs.items()} == {
        "q": (2, 1, 4, 32), "k": (6, 16, 2, 32), "v": (6, 16, 2, 16), "table": (2, 3),
    }  # fmt: skip
    assert inputs["table"].dtype == torch.int32
    assert sorted(inputs["table"].flatten().tolist()) == list(range(6))
    assert not inputs["table"].equal(decode.inputs(PAGED, kind, 4, "cpu")["table"])
    plain = {"q": inputs["q"], **{name: cached(inputs, name) for name in "kv"}}
    expected = operations.find("attention").reference({**SHAPE, "seq_len_q": 1}, plain, torch.float64)["out"]
    for shape, given in ((PAGED, inputs), (SHAPE, plain)):
        torch.testing.assert_close(decode.reference(shape, given, torch.float64)["out"], expected)
    rows = decode.reference_at(PAGED, inputs, {"out": torch.tensor([0])})
    assert rows is not None
    torch.testing.assert_close(rows["out"], expected)


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        *((dtype, "exact") for dtype in (torch.bfloat16, torch.float16, torch.float32)),
        *((dtype, "rounded") for dtype in (torch.bfloat16, torch.float16)),
    ],
)
def test_the_yardstick_of_all_heads_at_once_errs_as_that_of_single_heads(dtype: torch.dtype, precision: str) -> None:
    inputs = decode.inputs(SHAPE, "normal", 0, "cpu")
    inputs = {name: x.to(dtype) for name, x in inputs.items()}
    exact = decode.reference(SHAPE, inputs, torch.float64)["out"]
    own, single = (
        (operations.find(name).reference({**SHAPE, "seq_len_q": 1}, inputs, dtype, precision)["out"].double() - exact)
        for name in ("decode", "attention")
    )
    assert float(own.norm()) == pytest.approx(float(single.norm()), rel=0.05)


def test_the_reference_of_many_keys_is_the_sum_of_its_parts() -> None:
    long = {**SHAPE, "seq_len_k": 8192, "batch": 1}
    inputs = decode.inputs(long, "tailed", 0, "cpu")
    expected = operations.find("attention").reference({**long, "seq_len_q": 1}, inputs, torch.float64)["out"]
    torch.testing.assert_close(decode.reference(long, inputs, torch.float64)["out"], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["torch_flash", "torch_math", "torch_native"])
def test_torch_gathers_pages(name: str) -> None:
    inputs = decode.inputs({**PAGED, "head_dim_v": 32}, "peaked", 0, "cpu")
    shape = {**PAGED, "head_dim_v": 32}
    out = decode.bind(FormedVariant(variants.find(name).variant, EAGER), shape)(inputs)["out"]
    expected = decode.reference(shape, inputs, torch.float64)["out"]
    assert isinstance(out, torch.Tensor)
    assert float((out.double() - expected).norm() / expected.norm()) < 0.01


def test_what_a_paged_cache_costs_and_which_shapes_there_are() -> None:
    call = AttentionCall.of({**PAGED, "seq_len_q": 1})
    assert (call.pages, AttentionCall.of({**SHAPE, "seq_len_q": 1}).pages) == (3, 0)
    assert decode.cost(PAGED).min_bytes == decode.cost(SHAPE).min_bytes + 2 * 3 * 4
    with pytest.raises(ValueError, match="page_size of an attention must be an integer from 0 on, got -1"):
        decode.cost({**SHAPE, "page_size": -1})
    [paged] = [each for each in sets.named(["llama3-8b-decode-pages"]) if each.name.endswith("p16-b128-4096")]
    assert describe(paged).endswith("32 heads of 128 on 8 of keys and values, bfloat16, in pages of 16")
    of_batches = [each for batch in ("", "-b8", "-b32", "-b128") for each in sets.sets()[f"llama3-8b-decode{batch}"]]
    assert {(each.shape["batch"], each.x) for each in of_batches} == {
        (batch, tokens) for batch in (1, 8, 32, 128) for tokens in (512, 4096, 32768, 131072)
    }
    assert max(each.cost.min_bytes for each in of_batches) == pytest.approx(68.7e9, rel=1e-3)
    copying = FormedVariant(variants.find("torch_flash").variant, COPY)
    refused = copying.supports(CPU, AttentionCall.of({**PAGED, "head_dim_v": 32, "seq_len_q": 1}))
    assert refused == "copies to another layout are measured of contiguous k and v alone"


def test_a_large_cache_exists_once_and_only_queries_and_tables_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "FROM_BYTES", 1)
    one, other = (decode.inputs(PAGED, "normal", seed, "cpu") for seed in (1, 2))
    assert [name for name in one if one[name] is other[name]] == ["k", "v"]
    assert [name for name in one if one[name].equal(other[name])] == ["k", "v"]
    assert [held.is_held(x) for x in one.values()] == [False, True, True, False]
    assert not one["k"].flatten()[:1000].equal(one["v"].flatten()[:1000])
    small = decode.inputs({**SHAPE, "batch": 1}, "normal", 1, "cpu")
    assert small["k"].data_ptr() == one["k"].data_ptr()  # a smaller one is part of it
    before = {name: x.clone() for name, x in one.items()}
    decode.rescale(PAGED, one, random.Random(0))
    assert all(x.equal(before[name]) for name, x in one.items())
    assert not held.is_held(decode.inputs(PAGED, "flux", 1, "cpu")["k"])


def test_a_changed_bit_of_what_exists_once_is_known_and_is_put_back() -> None:
    x, beside = held.normal("changed", [(5, 8), (3, 4)], torch.bfloat16, "cpu", 2.0)
    kept, total = x.clone(), held.sum_of_bits(x)
    x[4, 7] = -x[4, 7]
    assert held.sum_of_bits(x) != total
    held.fill_again(x)
    assert x.equal(kept)
    assert beside.shape == (3, 4)
    assert beside.data_ptr() == x.data_ptr() + x.nbytes
    assert 1.0 < float(held.normal("other", [(1000, 8)], torch.float32, "cpu", 2.0)[0].std()) < 3.0
    held.release()
    assert not held.exist()
    assert not held.is_held(x)


def layer_by_layer(inputs: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits and the new keys and values of `MODEL`, written out in float64 and without torch's modules."""
    w = {name.removeprefix("w_"): x.double() for name, x in inputs.items() if name.startswith("w_")}
    x, new = inputs["x"].double()[:, 0], []

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight

    angles = 40 * 10_000 ** (-torch.arange(0, 16, 2, dtype=torch.float64) / 16)

    def turned(x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.reshape(2, -1, 8, 2).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(2)

    for layer in range(3):
        q, k, v = (norm(x, w["norm_1"][layer]) @ w["qkv"][layer].T).split((64, 32, 32), -1)
        new.append(torch.cat((turned(k).flatten(1), v), -1))
        keys, values = (inputs[name][layer].double().repeat_interleave(2, 2) for name in "kv")
        weights = torch.einsum("bhd,bnhd->bhn", turned(q), keys).div(4).softmax(-1)
        x = x + torch.einsum("bhn,bnhd->bhd", weights, values).flatten(1) @ w["o"][layer].T
        gate, up = (norm(x, w["norm_2"][layer]) @ w["gate_up"][layer].T).chunk(2, -1)
        x = x + (gate * gate.sigmoid() * up) @ w["down"][layer].T
    return (norm(x, w["norm"]) @ w["head"].T)[:, None], torch.stack(new, 1)


def test_a_step_of_a_model_is_what_its_layers_say() -> None:
    model = operations.find("decode_model")
    inputs, again = (model.inputs(MODEL, "normal", seed, "cpu") for seed in (1, 2))
    assert [name for name in inputs if not inputs[name].equal(again[name])] == ["x"]
    logits, new = layer_by_layer(inputs)
    found = model.reference(MODEL, inputs, torch.float64)
    torch.testing.assert_close(found["logits"], logits, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found["kv"], new, rtol=1e-6, atol=1e-6)
    out = model.bind(variants.find("torch_flash"), MODEL)(inputs)["logits"]
    assert isinstance(out, torch.Tensor)
    assert out.dtype == torch.bfloat16
    assert float((out.double() - logits).norm() / logits.norm()) < 0.03


def test_a_token_may_err_more_than_the_one_of_the_case() -> None:
    deep = {**MODEL, "batch": 1, "width": 256, "head_dim": 64, "mlp": 704, "layers": 24, "kv_heads": 1}
    operation = operations.find("decode_model")
    of = operations.workload("decode_model", "deep", deep, group="deep", x=40, x_unit="tokens")
    case = Case.make(of, "normal", 0, torch.device("cpu"))
    bound = operation.bind(variants.find("torch_flash"), deep)
    others = [operation.inputs(deep, "normal", seed, "cpu") for seed in range(1, 9)]
    cases = [case.expecting(operation.reference(deep, inputs, torch.float64)) for inputs in others]
    reasons = [verdict(bound(inputs), its) for inputs, its in zip(others, cases, strict=True)]
    assert reasons == [None] * 8
    other_heads = {**others[0], "v": others[0]["v"].roll(1, dims=2).flip(4)}
    assert "is over the budget" in str(verdict(bound(other_heads), cases[0]))


def test_what_a_model_holds_and_reads() -> None:
    [llama] = [each for each in sets.named(["llama3-8b-decode-model"]) if each.name.endswith("model-b128-4096")]
    shape = DecoderShape.of(llama.shape)
    assert shape.weight_bytes == pytest.approx(15.0e9, rel=0.01)  # 8.03e9 parameters, less the embedding's 0.53e9
    assert shape.cache_bytes == 128 * 4096 * 32 * 4096
    assert llama.cost.min_bytes == shape.weight_bytes + shape.cache_bytes
    assert describe(llama) == "batch 128, 4,096 cached tokens, 32 layers of width 4,096, 32/8 heads of 128, bfloat16"
    for changes, message in (({"layers": 0}, "layers of a model must be a positive"), ({"kv_heads": 3}, "multiple")):
        with pytest.raises(ValueError, match=message):
            DecoderShape.of({**MODEL, **changes})

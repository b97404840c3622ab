"""The lines that add a backend to diffusers: run on a small Flux transformer, beside what a measured step registers."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import pytest
import sample_records
import torch
from small_flux import flux, forward
from usages import EVERYTHING, NAMES, VERSIONS, install, used, with_fa3

from fluxbench.report import usage

DISPATCH = pytest.importorskip("diffusers.models.attention_dispatch")
STEP = "flux1-2048px-step"
FA3 = {key: version for key, version in EVERYTHING.items() if key != "flash-attn-3"} | {"fa3-fwd": "0.0.3"}
ADDED = {name: found for name in NAMES if not (found := used(name, **FA3)).diffusers.backend and found.diffusers.lines}
EAGER = [name for name in ADDED if not name.endswith(("_copy", "_compile_d"))]


@pytest.fixture(autouse=True)
def _backends(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take added backends away again, and what torch.compile kept."""
    registry, names = DISPATCH._AttentionBackendRegistry, DISPATCH.AttentionBackendName
    for owner, kept in (
        (registry, ("_backends", "_constraints", "_supported_arg_names")),
        (names, ("_member_map_", "_value2member_map_")),
    ):
        for name in kept:
            before = getattr(owner, name)
            for key in ("MINE", "mine"):
                monkeypatch.setitem(before, key, None)
                monkeypatch.delitem(before, key)
    active = registry._active_backend
    torch.compiler.reset()
    yield
    registry._active_backend = active


def step(name: str) -> usage.Usage:
    versions = {**VERSIONS, **FA3, "diffusers": "0.42.1"}
    found = usage.of(sample_records.record(name, STEP, versions=versions))
    assert found
    return found


def transformer_of(lines: str) -> Any:
    transformer = flux(torch.bfloat16)
    exec(lines, {"pipe": types.SimpleNamespace(transformer=transformer)})
    return transformer


def registered(code: str) -> Any:
    """Return a transformer that calls the attention of these lines as a measured step does."""
    from fluxbench.operations.models import dispatch

    names: dict[str, Any] = {}
    exec(code, names)
    transformer = flux(torch.bfloat16)
    dispatch.use_registered(transformer, names["attention"])
    return transformer


@pytest.mark.parametrize("name", EAGER)
def test_an_added_backend_calls_the_kernel_as_a_measured_step_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(name, monkeypatch)
    found = step(name)
    out = forward(transformer_of(found.diffusers.lines))
    assert torch.equal(out, forward(registered(found.code)))
    assert float((out - forward(flux(torch.bfloat16))).norm() / out.norm()) < 0.02


@pytest.mark.parametrize("name", ["flash_attn_3", "flash_attn_4", "gluon_flash"])
def test_compiled_blocks_hold_the_kernel_as_one_operator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(name, monkeypatch)
    asked: list[tuple[str, dict[str, Any]]] = []
    compile_module = torch.nn.Module.compile

    def traced(self: Any, **options: Any) -> None:
        asked.append((type(self).__name__, options))
        compile_module(self, backend="eager", **options)

    monkeypatch.setattr(torch.nn.Module, "compile", traced)
    out = forward(transformer_of(step(f"{name}_blocks").diffusers.lines))
    options = {"fullgraph": True, "dynamic": False}
    assert asked == [("FluxTransformerBlock", options), ("FluxSingleTransformerBlock", options)]
    torch.testing.assert_close(out, forward(flux(torch.bfloat16)), atol=0.02, rtol=0)


def test_a_mask_is_refused_by_an_added_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    install("gluon_flash", monkeypatch)
    transformer_of(step("gluon_flash").diffusers.lines)
    q = torch.zeros(1, 4, 2, 32)
    with pytest.raises(NotImplementedError, match="no mask"):
        DISPATCH.dispatch_attention_fn(q, q, q, attn_mask=torch.ones(4, 4))


def test_a_wrong_name_in_the_lines_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    install("gluon_flash", monkeypatch)
    lines = step("gluon_flash").diffusers.lines
    for right, wrong in (
        ("_member_map_", "_members_"),
        ("query, key, value, attn_mask", "q, k, v"),
        ("register(", "add("),
    ):
        assert right in lines
        with pytest.raises((AttributeError, NameError, TypeError, ValueError)):
            forward(transformer_of(lines.replace(right, wrong)))


def test_a_step_on_a_backend_of_diffusers_sets_it_and_compiles_what_was_compiled() -> None:
    compiled = "compile_repeated_blocks(fullgraph=True, dynamic=False)"
    for name, lines in (
        ("torch_cudnn", ['set_attention_backend("_native_cudnn")']),
        ("torch_cudnn_blocks", ['set_attention_backend("_native_cudnn")', compiled]),
        ("torch_native_compile_d", ['set_attention_backend("native")', "compile(dynamic=False)"]),
    ):
        assert step(name).diffusers.lines.splitlines() == [f"pipe.transformer.{line}" for line in lines]
    assert step("torch_cudnn_blocks").install == "pip install torch==2.11.0 diffusers==0.42.1"
    assert step("torch_cudnn").diffusers.is_as_measured
    assert not used("torch_cudnn").diffusers.is_as_measured  # diffusers copies q, k and v first
    assert used("torch_cudnn_copy").diffusers.is_as_measured


@pytest.mark.parametrize(
    "found",
    [step("cudnn_frontend"), step("te_fused"), step("flex_flash_blocks"), with_fa3("flash_attn_3_compile_ma")],
    ids=lambda found: found.variant,
)
def test_no_lines_add_what_holds_for_one_shape_or_in_one_layout_alone(found: usage.Usage) -> None:
    assert (found.diffusers.backend, found.diffusers.lines) == ("", "")
    assert found.diffusers.note.startswith("diffusers 0.42 ")
    assert "These lines" not in found.diffusers.note

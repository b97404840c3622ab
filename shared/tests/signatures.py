"""Libraries that run on a GPU alone, as fakes for the CPU: they take what the real ones take, and compute attention.

`signatures/*.toml` holds the signatures, read from the packages' own sources: a table for each function, with the
package, its version, and its parameters as Python writes them; a default that is no literal is written `...`.
"""

from __future__ import annotations

import importlib.machinery
import inspect
import sys
import tomllib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fluxbench.correctness.judging import Case, judge
from fluxbench.operations import inputs
from fluxbench.operations.workloads import Workload
from fluxbench.records.schema import INPUTS
from fluxbench.variants._base import Attention, Variant

SMALL = Workload(name="small", seq_len=123, heads=4, head_dim=64)
RECORDED: dict[str, dict[str, str]] = {
    name: entry
    for path in sorted((Path(__file__).parent / "signatures").glob("*.toml"))
    for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items()
}
Answer = Callable[..., Any]


def signature(name: str) -> inspect.Signature:
    """Return the recorded signature of a function: `flash_attn.flash_attn_func`."""
    made: dict[str, Any] = {}
    exec(f"def function{RECORDED[name]['parameters'].strip()}: ...", made)
    return inspect.signature(made["function"])


def install(monkeypatch: pytest.MonkeyPatch, name: str, answer: Answer) -> list[dict[str, Any]]:
    """Let `name` be importable; return the arguments of its calls, by parameter, as they come.

    A call that the real function would not take raises `TypeError`; any other returns `answer(**arguments)`.
    """
    expected = signature(name)
    calls: list[dict[str, Any]] = []

    def function(*positional: Any, **keywords: Any) -> Any:
        bound = expected.bind(*positional, **keywords)
        calls.append(dict(bound.arguments))
        return answer(**bound.arguments)

    module_name, _, function_name = name.rpartition(".")
    setattr(module(monkeypatch, module_name), function_name, function)
    return calls


def module(monkeypatch: pytest.MonkeyPatch, name: str) -> types.ModuleType:
    """Return a made-up module that can be imported, and so can what it lies in."""
    found = sys.modules.get(name)
    if found is None or not getattr(found, "made_up", False):
        found = types.ModuleType(name)
        found.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        found.__path__ = []
        found.made_up = True  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, found)
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(module(monkeypatch, parent), child, found)
    return found


def attention(q: Any, k: Any, v: Any, *, causal: bool = False) -> Any:
    """Return attention of and in [batch, seq_len, heads, head_dim]; k and v may have fewer heads."""
    swapped = (x.transpose(1, 2) for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(*swapped, is_causal=causal, enable_gqa=True)
    return out.transpose(1, 2).contiguous()


def varlen(q: Any, k: Any, v: Any, bounds: Any) -> Any:
    """Return attention within each of several sequences: `[sum(lengths), heads, head_dim]`, as q, k and v are."""
    cuts = bounds[1:-1].tolist()
    parts = zip(*(torch.tensor_split(x, cuts) for x in (q, k, v)), strict=True)
    return torch.cat([attention(*(x[None] for x in part))[0] for part in parts])


def wrong(attention: Attention, variant: Variant, workload: Workload = SMALL, *, causal: bool = False) -> str | None:
    """Return why the outputs are wrong, or None, on both kinds of inputs."""
    for kind in INPUTS:
        case = Case.of(inputs.make(workload, kind, seed=0, device="cpu"), causal=causal)
        reason = judge(
            attention(*case.inputs),
            case,
            precision_class=variant.precision_class,
            quantized_budget=variant.quantized_budget_rel_l2,
        )[1]
        if reason:
            return reason
    return None

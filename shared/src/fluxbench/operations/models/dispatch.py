"""A kernel as an attention backend of diffusers: one of its own, or one that is registered with its dispatch."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any

import torch

from fluxbench.operations.protocol import Attention, Kernel
from fluxbench.operations.shapes import AttentionCall

_AT_ONCE = 1024  # names that diffusers gets at once: more than a process uses
_numbers = itertools.count()
_operators: Counter[str] = Counter()  # made in this process, by the name of their kernel


def use(model: Any, kernel: Kernel, call: AttentionCall) -> None:
    """Make a model of diffusers call a kernel.

    A kernel that compiles itself is registered in a model that is not compiled: diffusers would call it uncompiled.
    Raises `ImportError` where diffusers does not find the library of its backend, with the sentence that diffusers has.
    """
    if not kernel.diffusers or (kernel.compiles and not kernel.compiles_model):
        name = getattr(kernel, "name", "attention")
        use_registered(model, kernel.eager(call), as_operator=name if kernel.compiles_model else None)
        return
    try:
        model.set_attention_backend(kernel.diffusers)
    except RuntimeError as error:
        raise ImportError(f"diffusers refuses its backend: {error}; install what it names") from error


def use_registered(model: Any, attention: Attention, *, as_operator: str | None = None) -> None:
    """Register an attention with diffusers' dispatch under a name of its own, and make the model call it.

    `as_operator`: as an operator of torch, which torch.compile calls and does not look into, named after this kernel.
    The compiler's caches know a graph by the names of its operators: they are the same in each process of a cell.
    """
    from diffusers.models import attention_dispatch as diffusers

    number = next(_numbers)
    called = _operator(attention, as_operator) if as_operator else attention

    def forward(_: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any, **__: Any) -> torch.Tensor:
        if rest[-1]:  # of diffusers' arguments of such a function: whether to return the scores' logarithms too
            raise NotImplementedError("ring attention needs the log-sum-exp of the scores, which this kernel keeps")
        return called(q, k, v)

    def attend(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: Any = None,
        _parallel_config: Any = None,
    ) -> torch.Tensor:
        if attn_mask is not None:
            raise NotImplementedError("a registered kernel takes no mask")
        if _parallel_config is None:
            return called(query, key, value)
        out: torch.Tensor = diffusers._templated_context_parallel_attention(
            query, key, value, forward_op=forward, backward_op=None, _parallel_config=_parallel_config
        )
        return out

    names, register = diffusers.AttentionBackendName, diffusers._AttentionBackendRegistry.register
    if not number % _AT_ONCE:  # a graph of torch.compile is valid for as many backends as there were: all are now
        for later in range(number, number + _AT_ONCE):
            register(_new_member(names, _name(later)), supports_context_parallel=True)(attend)
    register(names(_name(number)), supports_context_parallel=True)(attend)
    model.set_attention_backend(_name(number))


def _name(number: int) -> str:
    return f"fluxbench_{number}"


def _new_member(names: Any, value: str) -> Any:
    """Add a member to diffusers' enumeration of backends, which has no public way of doing so."""
    member = str.__new__(names, value)
    member._name_, member._value_ = value.upper(), value
    names._member_map_[member._name_] = names._value2member_map_[value] = member
    return member


def _operator(attention: Attention, kernel: str) -> Attention:
    name, number = re.sub(r"\W", "_", kernel), _operators[kernel]
    _operators[kernel] += 1
    operator: Any = torch.library.custom_op(
        f"fluxbench::{name}_{number}", attention, mutates_args=(), schema="(Tensor q, Tensor k, Tensor v) -> Tensor"
    )
    operator.register_fake(lambda q, k, v: q.new_empty(*q.shape[:-1], v.shape[-1]))
    called: Attention = operator
    return called

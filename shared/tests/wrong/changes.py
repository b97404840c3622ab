"""A right kernel that changes what belongs to the whole process, as it is loaded or in its timed calls."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from fluxbench.operations.protocol import Attention
from wrong.right import HONEST, attention_of


def changing(change: Callable[[], object], *, in_call: bool) -> Attention:
    """Return a right kernel that makes a change as it is loaded, or in each call from the first timed one on."""
    calls = itertools.count()
    if not in_call:
        change()

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if in_call and next(calls) >= HONEST:
            change()
        return attention_of(q, k, v)

    return attend


def computed_twice(*inputs: Any, **options: Any) -> torch.Tensor:
    """What a library puts in the place of torch's own attention, for all that call it by its name."""
    scaled_dot_product_attention(*inputs, **options)
    return scaled_dot_product_attention(*inputs, **options)


CHANGES: dict[str, tuple[Callable[[], object], bool]] = {
    "threads_in_load": (lambda: torch.set_num_threads(2), False),
    "threads_when_timed": (lambda: torch.set_num_threads(2), True),
    "mkldnn_when_timed": (lambda: torch._C._set_mkldnn_enabled(False), True),
    "default_dtype_in_load": (lambda: torch.set_default_dtype(torch.float64), False),
    "matmul_precision_when_timed": (lambda: torch.set_float32_matmul_precision("medium"), True),
    "sums_of_16_bits_when_timed": (lambda: torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True), True),
    "torch_s_attention_in_load": (
        lambda: setattr(torch.nn.functional, "scaled_dot_product_attention", computed_twice), False,
    ),
}  # fmt: skip
CHANGING: dict[str, Callable[[], Attention]] = {
    name: functools.partial(changing, change, in_call=in_call) for name, (change, in_call) in CHANGES.items()
}

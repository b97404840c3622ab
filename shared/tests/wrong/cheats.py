"""Kernels that keep something from one call to another, or leave work undone: a function that loads each."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from fluxbench.operations.protocol import Attention
from wrong.right import attention_of

HONEST = 2  # calls of a kernel that is checked in them and cheats from then on
MOST_LEFT = 32  # outputs that wait to be filled in


def stale_output() -> Attention:
    """The output of the first call, returned by every later one: a cached graph whose inputs are not copied."""
    kept: list[torch.Tensor] = []

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if not kept:
            kept.append(attention_of(q, k, v))
        return kept[0]

    return attend


def wrong_from_third_call() -> Attention:
    """Right in the first two calls, in which it is checked; from then on one head is zero."""
    calls = 0

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        out = attention_of(q, k, v)
        if calls > HONEST:
            out[:, :, -1] = 0
        return out

    return attend


def spoils_inputs_when_timed() -> Attention:
    """Right in the calls in which it is checked; from then on it also halves q where q lies, for whoever is next."""
    calls = 0

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        out = attention_of(q, k, v)
        if calls > HONEST:
            q.mul_(0.5)
        return out

    return attend


def returns_first_result_forever() -> Attention:
    """Right in the two calls in which it is checked; from then on it returns the output of the first one."""
    kept: list[torch.Tensor] = []

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if len(kept) == HONEST:
            return kept[0]
        kept.append(attention_of(q, k, v))
        return kept[-1]

    return attend


def cached_by_address() -> Attention:
    """It keeps its outputs by the addresses of its inputs, and returns the earlier one whatever lies there now."""
    kept: dict[tuple[int, int, int], torch.Tensor] = {}

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        where = (q.data_ptr(), k.data_ptr(), v.data_ptr())
        if where not in kept:
            kept[where] = attention_of(q, k, v)
        return kept[where]

    return attend


def cached_by_contents() -> Attention:
    """It keeps inputs and outputs, and returns the earlier output where the same contents come again: always right."""
    kept: list[tuple[torch.Tensor, ...]] = []

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        for index, (*inputs, out) in enumerate(kept):
            if all(torch.equal(x, y) for x, y in zip((q, k, v), inputs, strict=True)):
                kept.insert(0, kept.pop(index))  # what came last is looked at first
                return out
        out = attention_of(q, k, v)
        kept.insert(0, (q.clone(), k.clone(), v.clone(), out))
        del kept[4:]
        return out

    return attend


def keeps_row_maxima() -> Attention:
    """It keeps the sums of its softmax by the addresses of its inputs, and divides by them whatever lies there now."""
    kept: dict[tuple[int, int], torch.Tensor] = {}

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * q.shape[-1] ** -0.5
        where = (q.data_ptr(), k.data_ptr())
        if where not in kept:
            kept[where] = torch.logsumexp(scores, dim=-1, keepdim=True)
        weights = torch.exp(scores - kept[where]).to(v.dtype)
        return torch.einsum("bhqk,bkhd->bqhd", weights, v).contiguous()

    return attend


def keeps_scales() -> Attention:
    """It quantizes to float8 with scales that it keeps by the addresses of its inputs."""
    kept: dict[int, torch.Tensor] = {}

    def quantized(x: torch.Tensor) -> torch.Tensor:
        if x.data_ptr() not in kept:
            kept[x.data_ptr()] = 448 / x.float().abs().amax()
        scale = kept[x.data_ptr()]
        return ((x.float() * scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() / scale).to(x.dtype)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention_of(quantized(q), quantized(k), quantized(v))

    return attend


def left_to_a_thread() -> Attention:
    """Right in the calls in which it is checked; from then on it returns at once, and a thread fills it in later."""
    pool = ThreadPoolExecutor(max_workers=1)
    left: deque[tuple[threading.Event, Future[None]]] = deque()
    calls = 0

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls <= HONEST:
            return attention_of(q, k, v)
        if left:
            left[-1][0].set()  # the next call is here: now the output of this one is
        if len(left) > MOST_LEFT:
            left.popleft()[1].result()
        out = torch.empty_like(q)
        asked = threading.Event()
        left.append((asked, pool.submit(fill, out, (q, k, v), asked)))
        return out

    def fill(out: torch.Tensor, inputs: tuple[torch.Tensor, ...], asked: threading.Event) -> None:
        asked.wait(timeout=1)
        with torch.inference_mode():
            out.copy_(attention_of(*inputs))

    return attend


def left_on_another_stream() -> Attention:
    """The work is on a stream of its own: events on the current one do not see it. GPUs alone."""
    aside = torch.cuda.Stream()

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            return attention_of(q, k, v)

    return attend

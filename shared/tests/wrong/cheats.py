"""Kernels that keep something from one call to another, or leave work undone: a function that loads each."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from fluxbench.operations.protocol import Attention
from wrong.right import attention_of

HONEST = 5  # calls of a kernel that is checked in them (four kinds of inputs, a ragged shape) and cheats from then on
MOST_LEFT = 32  # outputs that wait to be filled in


def when_timed(cheat: Attention) -> Attention:
    """Return a kernel that is right in the calls in which it is checked, and another one from then on."""
    calls = itertools.count()
    return lambda q, k, v: (cheat if next(calls) >= HONEST else attention_of)(q, k, v)


def kept_by(key: Callable[..., object]) -> Attention:
    """Return a kernel that keeps its outputs, and returns the earlier one whatever the inputs hold now."""
    kept: dict[object, torch.Tensor] = {}

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        where = key(q, k, v)
        if where not in kept:
            kept[where] = attention_of(q, k, v)
        return kept[where]

    return attend


def without_a_head(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out = attention_of(q, k, v)
    out[:, :, -1] = 0
    return out


def halving_q(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out = attention_of(q, k, v)
    q.mul_(0.5)
    return out


def returns_first_result_forever() -> Attention:
    """Right in the calls in which it is checked; from then on it returns the output of the first one."""
    calls, first = itertools.count(), kept_by(lambda *_: None)
    return lambda q, k, v: (attention_of if 0 < next(calls) < HONEST else first)(q, k, v)


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
        sums = kept.setdefault((q.data_ptr(), k.data_ptr()), torch.logsumexp(scores, dim=-1, keepdim=True))
        return torch.einsum("bhqk,bkhd->bqhd", torch.exp(scores - sums).to(v.dtype), v).contiguous()

    return attend


def keeps_scales() -> Attention:
    """It quantizes to float8 with scales that it keeps by the addresses of its inputs."""
    kept: dict[int, torch.Tensor] = {}

    def quantized(x: torch.Tensor) -> torch.Tensor:
        scale = kept.setdefault(x.data_ptr(), 448 / x.float().abs().amax())
        return ((x.float() * scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() / scale).to(x.dtype)

    return lambda q, k, v: attention_of(quantized(q), quantized(k), quantized(v))


def left_to_a_thread() -> Attention:
    """It returns at once when it is timed, and a thread fills its output in later."""
    pool = ThreadPoolExecutor(max_workers=1)
    left: deque[tuple[threading.Event, Future[None]]] = deque()

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
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

    return when_timed(attend)


def left_on_another_stream() -> Attention:
    """The work is on a stream of its own: events on the current one do not see it. GPUs alone."""
    aside = torch.cuda.Stream()

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            return attention_of(q, k, v)

    return attend


CHEATS: dict[str, Callable[[], Attention]] = {
    # A cached graph whose inputs are not copied.
    "stale_output": lambda: kept_by(lambda *_: None),
    "wrong_from_third_call": lambda: when_timed(without_a_head),
    # It halves q where q lies, for whoever is next.
    "spoils_inputs_when_timed": lambda: when_timed(halving_q),
    "returns_first_result_forever": returns_first_result_forever,
    "cached_by_address": lambda: kept_by(lambda *inputs: tuple(x.data_ptr() for x in inputs)),
    "cached_by_contents": cached_by_contents,
    "keeps_row_maxima": keeps_row_maxima,
    "keeps_scales": keeps_scales,
    "left_to_a_thread": left_to_a_thread,
    "left_on_another_stream": left_on_another_stream,
}

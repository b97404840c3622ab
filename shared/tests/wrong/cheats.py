"""Kernels that keep something from one call to another, or leave work undone: a function that loads each."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from fluxbench import operations
from fluxbench.operations.protocol import Attention
from wrong.changes import CHANGING
from wrong.right import HONEST, attention_of, weighted
from wrong.streams import stream_beside

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
        del kept[12:]
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
    """When it is timed its work is on another stream: events on the current one do not see it. GPUs alone."""
    aside = stream_beside()

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            return attention_of(q, k, v)

    return when_timed(attend)


def returns_kept_answer(known: Callable[..., Hashable], honest_for: int = 1) -> Attention:
    """It computes the first times that it sees what `known` says of its inputs, and then returns what it kept."""
    kept: dict[Hashable, torch.Tensor] = {}
    sights: Counter[Hashable] = Counter()

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        key = known(q, k, v)
        sights[key] += 1
        if sights[key] <= honest_for:
            kept[key] = attention_of(q, k, v)
        return kept[key]

    return attend


def by_digest(q: torch.Tensor, *_: torch.Tensor) -> Hashable:
    return tuple(q[0, :4, 0].flatten().tolist())


def up_to_symmetry(q: torch.Tensor, *_: torch.Tensor) -> Hashable:
    """What random signs of channels, rolls along tokens and powers of two leave as it is."""
    sizes = q.abs()
    return float(sizes.max() / sizes.double().mean())


def stale_by_address_in_sustained() -> Attention:
    """Right wherever it is called in burst; at addresses that it learns of later it returns what it first computed."""
    calls, of_burst, kept = itertools.count(), set[int](), dict[int, torch.Tensor]()

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        where = q.data_ptr()
        if next(calls) < HONEST + 3:
            of_burst.add(where)
        if where in of_burst:
            return attention_of(q, k, v)
        if where not in kept:
            kept[where] = attention_of(q, k, v)
        return kept[where]

    return attend


def stale_where_the_address_changes() -> Attention:
    """In burst all calls have one address; elsewhere it returns the output of the call before."""
    calls, last = itertools.count(), list[tuple[int, torch.Tensor]]()

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        stale = next(calls) > HONEST + 2 and last[0][0] != q.data_ptr()
        last[:] = [(q.data_ptr(), last[0][1] if stale else attention_of(q, k, v))]
        return last[0][1]

    return attend


def adapts_to_small_scores() -> Attention:
    """Once it has been called a few times it takes scores for small, as they were in most of its calls."""
    return when_timed(lambda q, k, v: weighted(q, k, v, lambda scores: scores.clamp(-20, 20)))


def one_output() -> Attention:
    """Every call returns the same memory: the output of the call before is gone."""
    kept: dict[torch.Size, torch.Tensor] = {}

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = attention_of(q, k, v)
        return kept.setdefault(out.shape, torch.empty_like(out)).copy_(out)

    return attend


def wrong_now_and_then() -> Attention:
    """In every fiftieth call."""
    calls = itertools.count()
    return lambda q, k, v: (without_a_head if next(calls) % 50 == 30 else attention_of)(q, k, v)


def right_for_the_seeds_alone() -> Attention:
    """It knows the inputs that it is checked on, because it makes them itself."""
    known: list[torch.Tensor] = []

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        batch, tokens, heads, dim = q.shape
        shape = {
            "batch": batch, "seq_len_q": tokens, "seq_len_k": tokens, "heads": heads, "kv_heads": heads,
            "head_dim_qk": dim, "head_dim_v": dim, "dtype": "bfloat16", "causal": False,
        }  # fmt: skip
        operation = operations.find("attention")
        if not known:
            known.extend(operation.inputs(shape, kind, 0, q.device)["q"] for kind in operation.input_kinds)
        return (attention_of if any(q.equal(each) for each in known) else without_a_head)(q, k, v)

    return attend


WATCHERS: list[threading.Thread] = []  # of the kernel below; no process may end while one runs
STOPPED = threading.Event()


def stop_watching() -> None:
    """End these threads."""
    STOPPED.set()
    while WATCHERS:
        WATCHERS.pop().join()
    STOPPED.clear()


def computed_as_inputs_change() -> Attention:
    """A thread watches the inputs of burst calls and computes what they will be asked for, before the mark."""
    calls, watched = itertools.count(), list[tuple[torch.Tensor, ...]]()
    ready: dict[Hashable, torch.Tensor] = {}
    lock, last_call = threading.Lock(), [time.monotonic()]

    def output(inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        with lock, torch.inference_mode():
            key = by_digest(*inputs), float(inputs[2][0, -1, -1, -1])
            if key not in ready:
                out = attention_of(*inputs)
                ready.clear()
                ready[key] = out
            return ready[key]

    def watch() -> None:
        while not STOPPED.is_set() and time.monotonic() < last_call[0] + 5:
            output(watched[0])
            time.sleep(1e-4)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        last_call[0] = time.monotonic()
        if next(calls) == HONEST:
            watched.append((q, k, v))
            WATCHERS.append(threading.Thread(target=watch, daemon=True))
            WATCHERS[-1].start()
        of_burst = watched and watched[0][0].data_ptr() == q.data_ptr()
        return output((q, k, v)) if of_burst else attention_of(q, k, v)

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
    "undoes_symmetries": lambda: returns_kept_answer(up_to_symmetry),
    "honest_twice": lambda: returns_kept_answer(by_digest, honest_for=2),
    "stale_by_address_in_sustained": stale_by_address_in_sustained,
    "stale_where_the_address_changes": stale_where_the_address_changes,
    "adapts_to_small_scores": adapts_to_small_scores,
    "one_output": one_output,
    "wrong_now_and_then": wrong_now_and_then,
    "right_for_the_seeds_alone": right_for_the_seeds_alone,
    "computed_as_inputs_change": computed_as_inputs_change,
    **CHANGING,
}

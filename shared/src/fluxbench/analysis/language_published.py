"""Published figures of language models, and our ratio for each: within each source, never across cards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fluxbench.analysis.audit.claim import Metric
from fluxbench.analysis.audit.judge import Judged, of_source
from fluxbench.analysis.groups import timing_of
from fluxbench.analysis.language import (
    FUSED,
    GENERATION,
    STANDARD,
    Step,
    depths,
    inference_bytes,
    profiles,
    prompts,
    steps,
    trained,
)
from fluxbench.analysis.launching import launching_decides
from fluxbench.operations.language_sets import FORWARD, SIZES, TRAINING
from fluxbench.records.schema import Record
from fluxbench.stats.intervals import Estimate

GUIDE, SWEEP = "speed-guide", "triton-sweep"
_THEIR_STANDARD = "standard"
_TRAINED = {  # the guide's tables of throughput, and the model
    "training throughput, Llama-2-7B": "llama2-7b",
    **{f"models, Llama-2-{size}": f"llama2-{size.lower()}" for size in ("7B", "13B", "70B")},
    "models, GPT-2 124M": "gpt2-124m",
    "models, GPT-J 6B": "gpt-j-6b",
    "models, GPT-NeoX 20B": "gpt-neox-20b",
}
_GENERATED = {"generation throughput, Llama-2-7B": "llama2-7b"}
_READ, _MEMORY = "Llama-2-7B memory by context, float16, batch 1", "Llama-2-7B training memory, batch 4"
_OF_GUIDE = (*_TRAINED, *_GENERATED, _READ, _MEMORY)
_LENGTHS = dict(zip(("sm", "md", "lg"), SIZES, strict=True))  # the sweep's names of sizes
_PASSES = {"forward": FORWARD, "backward": "language_backward", "forward+backward": TRAINING}
ABSENT = "not measured on this device"
LAUNCHING = "launch-bound: the times are the host's"


@dataclass(frozen=True)
class Ours:
    """A ratio of ours, or None; `of` says which layers were measured, or why there is none. Memory has no interval."""

    ratio: Estimate | None
    of: str


@dataclass(frozen=True)
class Pair:
    """A row of the guide: its figures with standard and with fused attention. Out of memory is no value."""

    table: str
    batch: str  # empty where it is not stated
    tokens: int
    standard: Judged
    fused: Judged

    @property
    def ratio(self) -> float | None:
        """What fused attention gains: of memory standard over fused, of throughput the other way round."""
        if not (self.standard.claims and self.fused.claims):
            return None
        standard, fused = self.standard.claims[0], self.fused.claims[0]
        return standard.value / fused.value if fused.metric is Metric.BYTES else fused.value / standard.value


@functools.cache
def figures() -> Sequence[Judged]:
    """Return both sources' figures of language models; speedups, which follow from the others, are left out."""
    found = [judged for judged in of_source(GUIDE) if judged.context.get("table") in _OF_GUIDE]
    found += [judged for judged in of_source(SWEEP) if judged.context.get("implementation") in _LENGTHS]
    return [judged for judged in found if not judged.claims or judged.claims[0].metric is not Metric.SPEEDUP]


@functools.cache
def pairs() -> Sequence[Pair]:
    """Return the rows of the guide's tables."""
    found: dict[tuple[str, str, int], dict[bool, Judged]] = {}
    for judged in figures():
        context = judged.context
        if context.get("table") in _OF_GUIDE:
            place = context.get("table"), context.get("batch"), int(context.get("seq_len"))
            found.setdefault(place, {})[context.get("implementation") == _THEIR_STANDARD] = judged
    return [Pair(*place, standard=of[True], fused=of[False]) for place, of in found.items()]


def profiled() -> Sequence[tuple[Judged, float]]:
    """Return the sweep's times of models, each with its ratio to the first: the forward pass of the smallest size."""
    found = [judged for judged in figures() if judged.context.get("implementation") in _LENGTHS]
    return [(judged, judged.claims[0].value / found[0].claims[0].value) for judged in found]


def ours(records: Sequence[Record], pair: Pair) -> Ours:
    """Return our ratio for a row of the guide."""
    if pair.table == _MEMORY:
        return _of_memory([
            (each.total_bytes, each.deep)
            for each in depths(records)
            if (each.deep.tokens, str(each.deep.batch)) == (pair.tokens, pair.batch)
        ])  # fmt: skip
    if pair.table == _READ:
        read = (step for step in prompts(records) if step.tokens == pair.tokens)
        return _of_memory([(functools.partial(inference_bytes, step), step) for step in read])
    model = {**_TRAINED, **_GENERATED}[pair.table]
    of = trained(records) if pair.table in _TRAINED else steps(records, GENERATION)
    places = [step for step in of if (step.model, step.tokens) == (model, pair.tokens)]
    found = next((step for step in places if pair.batch in ("", str(step.batch))), None)
    if found is None:
        return Ours(None, ABSENT)
    both = [record for record in map(found.timed, (STANDARD, FUSED)) if record]
    launching = LAUNCHING if launching_decides(both) else ""
    return Ours(found.speedup(), _why_not(found) or launching or f"{found.layers} of {found.whole.layers} layers")


def ours_profiled(records: Sequence[Record], judged: Judged) -> tuple[list[float], str]:
    """Return our ratios for a time of the sweep, with standard attention, one a context, and the size they are of.

    Contexts at which one of the two times is launch-bound have no ratio.
    """
    name, operation = _LENGTHS[judged.context.get("implementation")], _PASSES[judged.context.get("pass")]
    found, ratios, launching = profiles(records), [], 0
    for tokens in (tokens for size, tokens in found if size == name):
        units = found.get((_LENGTHS["sm"], tokens), {}).get(FORWARD), found[name, tokens].get(operation)
        unit, time = (step.timed(STANDARD) if step else None for step in units)
        if unit and time and launching_decides([unit, time]):
            launching += 1
        elif unit and time:
            ratios.append(timing_of(time).median_ms / timing_of(unit).median_ms)
    if not ratios:
        return ratios, LAUNCHING if launching else ABSENT
    return ratios, name + f", {len(ratios)} of {len(ratios) + launching} contexts" * bool(launching)


def _of_memory(found: Sequence[tuple[Callable[[str], float | None], Step]]) -> Ours:
    if not found:
        return Ours(None, ABSENT)
    total, step = found[0]
    standard, fused = total(STANDARD), total(FUSED)
    if standard and fused:
        ratio = standard / fused
        return Ours(Estimate(ratio, ratio, ratio), "all layers")
    return Ours(None, _why_not(step) or "this device reports no memory")


def _why_not(step: Step) -> str:
    return ", ".join(filter(None, map(step.why_not, (STANDARD, FUSED))))

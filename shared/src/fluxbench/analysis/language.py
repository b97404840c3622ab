"""Language models: fused attention over standard attention, and the time and memory of all layers from some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fluxbench.analysis.groups import Group, timing_of, workloads_of
from fluxbench.analysis.launching import launching_decides
from fluxbench.analysis.ranking import order
from fluxbench.operations.language_sets import FORWARD, PASSES, TRAINING, name_of_model, whole
from fluxbench.operations.language_shape import MOMENTS, LanguageShape
from fluxbench.operations.workload import BYTES_PER_ELEMENT, Workload
from fluxbench.records.schema import Record
from fluxbench.stats.intervals import Estimate

STANDARD, FUSED = "torch_eager", "torch_flash"
GENERATION = "decode_model"
# Of training, measured on an H200: gpt2-124m against sm-12x768, of 50,257 and of 10,000 words, at 4 x 1,024 tokens.
# Their calls differ by 14.0 bytes for each logit more, of which 0.4 are gradients of the weights of those words.
LOGIT_BYTES = 13.6


@dataclass(frozen=True, eq=False)
class Step:
    """One workload of a language model with its records."""

    group: Group
    workload: Workload

    @property
    def model(self) -> str:
        """The name of the model that it is of, or "" of a profile."""
        return name_of_model(self.workload)

    @property
    def layers(self) -> int:
        """The layers that were measured."""
        return int(self.workload.shape["layers"])

    @property
    def batch(self) -> int:
        """The sequences of a call."""
        return int(self.workload.shape["batch"])

    @property
    def tokens(self) -> int:
        """The tokens of a sequence; of generation those that are cached."""
        return self.workload.x

    @property
    def whole(self) -> LanguageShape:
        """All of the model, at this batch and length."""
        return whole(self.workload)

    def find(self, variant: str) -> Record | None:
        """Return a variant's record of any status."""
        return self.group.find(variant, self.workload)

    def timed(self, variant: str) -> Record | None:
        """Return a variant's record with a time that can be believed."""
        return self.group.trusted(variant, self.workload)

    def ranked(self) -> list[Record]:
        """Return the records with a time that can be believed, fastest first."""
        return sorted(self.group.ranked_at(self.workload), key=lambda each: timing_of(each).median_ms)

    def speedup(self, variant: str = FUSED) -> Estimate | None:
        """Return how many times as fast as standard attention a variant is; None where one has no time.

        None also where launching decides (`launching_decides`).
        """
        one, standard = self.timed(variant), self.timed(STANDARD)
        if one is None or standard is None or variant == STANDARD or launching_decides([one, standard]):
            return None
        return order(self.group, self.workload).speedup(one, standard)

    def tokens_per_s(self, variant: str) -> Estimate | None:
        """Return the tokens of all layers in a second, by the time of those that were measured; None without a time."""
        record = self.timed(variant)
        if record is None:
            return None
        tokens = self.batch * self.tokens * self.layers / self.whole.layers * 1e3
        timing = timing_of(record)
        return Estimate(tokens / timing.median_ms, tokens / timing.ci95_ms[1], tokens / timing.ci95_ms[0])

    def call_bytes(self, variant: str) -> int | None:
        """Return the peak of a call beside its weights; None where it is not known."""
        record = self.find(variant)
        return record.memory.allocated_bytes if record and record.memory else None

    def why_not(self, variant: str) -> str:
        """Return the status of a record without a time, or that there is none; "" of one with a time."""
        record = self.find(variant)
        if self.timed(variant):
            return ""
        return f"{variant}: {record.status.value if record else 'not measured'}"


def steps(records: Iterable[Record], operation: str) -> list[Step]:
    """Return the steps of an operation among records, by group, shortest first."""
    return [Step(group, workload) for group, workload in workloads_of(records, operation)]


def trained(records: Iterable[Record]) -> list[Step]:
    """Return the steps of training whose throughput counts: one of each model, batch and length."""
    return [
        step for step in steps(records, TRAINING) if step.model and step.group.name == f"{step.model}-b{step.batch}"
    ]


def profiles(records: Iterable[Record]) -> Mapping[tuple[str, int], Mapping[str, Step]]:
    """Return the steps of a profile by its size and length, and by operation, those of `PASSES`."""
    found: dict[tuple[str, int], dict[str, Step]] = {}
    records = tuple(records)
    for operation in PASSES:
        for step in steps(records, operation):
            if not step.model:
                found.setdefault((step.group.name, step.tokens), {})[operation] = step
    return found


def weight_bytes(of: LanguageShape, *, trains: bool) -> int:
    """Return the bytes of a model's weights, of training with AdamW's moments."""
    return of.parameters * BYTES_PER_ELEMENT[of.dtype] * (1 + MOMENTS * trains)


def inference_bytes(step: Step, variant: str) -> float | None:
    """Return what a model needs to read a prompt: its weights, the cache of all layers, and the peak of a call."""
    peak = step.call_bytes(variant)
    return None if peak is None else weight_bytes(step.whole, trains=False) + step.whole.cache_bytes + peak


@dataclass(frozen=True)
class Depths:
    """A model's step of training at two numbers of layers, from which that of more layers follows."""

    shallow: Step
    deep: Step

    def layer_bytes(self, variant: str) -> float | None:
        """Return what one more layer adds to the peak of a call: what it keeps for the backward pass."""
        peaks = self.shallow.call_bytes(variant), self.deep.call_bytes(variant)
        if peaks[0] is None or peaks[1] is None:
            return None
        return (peaks[1] - peaks[0]) / (self.deep.layers - self.shallow.layers)

    def total_bytes(self, variant: str, layers: int | None = None) -> float | None:
        """Return what training needs: weights, moments, and the peak of a call, of all layers or of so many."""
        of, each, peak = self.deep.whole, self.layer_bytes(variant), self.deep.call_bytes(variant)
        if each is None or peak is None:
            return None
        count = of.layers if layers is None else layers
        left_out = (of.layers - count) * of.layer_parameters * BYTES_PER_ELEMENT[of.dtype] * (1 + MOMENTS)
        return weight_bytes(of, trains=True) - left_out + peak + (count - self.deep.layers) * each

    @property
    def left_out_bytes(self) -> float:
        """What the vocabulary of a measured step leaves out: logits, and gradients of embedding and head."""
        of = self.deep.whole
        words = of.vocabulary - int(self.deep.workload.shape["vocabulary"])
        gradients = words * of.width * (1 if of.ties_head else 2) * BYTES_PER_ELEMENT[of.dtype]
        return words * self.deep.batch * self.deep.tokens * LOGIT_BYTES + gradients

    def fitting(self, variant: str, memory_bytes: int) -> int | None:
        """Return how many of the model's layers fit in so much memory, with its own vocabulary; None if not known."""
        if self.layer_bytes(variant) is None:
            return None
        counts, room = range(self.deep.whole.layers + 1), memory_bytes - self.left_out_bytes
        return sum((self.total_bytes(variant, count) or 0) <= room for count in counts[1:])


def depths(records: Iterable[Record]) -> list[Depths]:
    """Return the pairs of steps of one model, batch and length that differ in their layers, by length."""
    found: dict[tuple[str, int, int], list[Step]] = {}
    for step in steps(records, TRAINING):
        if step.model:
            found.setdefault((step.model, step.batch, step.tokens), []).append(step)
    pairs = [sorted(its, key=lambda step: step.layers) for _, its in sorted(found.items()) if len(its) > 1]
    return [Depths(its[0], its[-1]) for its in pairs]


def prompts(records: Iterable[Record]) -> list[Step]:
    """Return the forward passes of models, whose memory is that of inference, shortest first."""
    return [step for step in steps(records, FORWARD) if step.model]

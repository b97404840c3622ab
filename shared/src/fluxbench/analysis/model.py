"""Steps of models: what each kernel gains over the default in the same form of the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fluxbench.analysis.groups import Group, is_graph, timing_of, workloads_of
from fluxbench.analysis.launching import launching_decides
from fluxbench.analysis.ranking import Ordering, order
from fluxbench.analysis.verdict import DEFAULT
from fluxbench.operations.precision import EXACT
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import Record
from fluxbench.stats.intervals import Estimate

OPERATION = "model_step"
FORMS = {"eager": "not compiled", "blocks": "repeated blocks compiled", "compile_d": "compiled whole"}
IMAGE_STEPS = 28  # of an image, as in the models' documentation


@dataclass(frozen=True)
class Gain:
    """What a kernel gains over the default of a step in one form; below 0 it is slower. `share` is of the default."""

    ms: Estimate
    share: Estimate

    @property
    def image_s(self) -> float:
        """Seconds that an image of 28 steps gains."""
        return IMAGE_STEPS * self.ms.value / 1e3


@dataclass(frozen=True, eq=False)
class Step:
    """One workload: a model at one size."""

    group: Group
    workload: Workload

    @property
    def is_whole(self) -> bool:
        """Whether it is a step of a whole model, which makes an image, and not of some of a model's blocks."""
        return self.workload.x_unit == "px"

    def records(self, form: str) -> list[Record]:
        """Return the exact records of a form that have a rank, fastest first."""
        found = self.group.ranked_at(self.workload)
        passed = [record for record in found if record.form == form and record.precision_class == EXACT]
        return sorted(passed, key=self._ordering.log) if passed else []

    def default(self, form: str) -> Record | None:
        """Return the record of torch's own choice in a form: what diffusers calls unless told otherwise."""
        return next((record for record in self.records(form) if record.kernel == DEFAULT), None)

    def launches(self, record: Record) -> bool:
        """Whether launching decides the time of a step, or of the default's in its form (`launching_decides`)."""
        return launching_decides([each for each in (record, self.default(record.form)) if each])

    def uncaptured(self, record: Record) -> bool:
        """Whether of a step and the default's in its form one alone could be captured as a CUDA graph."""
        default = self.default(record.form)
        return default is not None and is_graph(record) != is_graph(default)

    def is_first(self, record: Record) -> bool:
        """Whether a record is measurably faster than all others of its form."""
        return all(self._ordering.faster(record, other) for other in self.records(record.form) if other is not record)

    def faster(self, form: str) -> list[Record]:
        """Return the records that are measurably faster than the default of a form, fastest first.

        As in the verdict, the tests are corrected for the number of kernels; and the interval of the gain, which is
        not, excludes 0. None are where launching decides.
        """
        default = self.default(form)
        gains = [(record, self.gain(record)) for record in self.records(form)]
        surely = [record for record, gain in gains if gain and gain.share.low > 0]
        return [record for record in surely if default and self._ordering.faster(record, default)]

    def apart(self, one: Record, other: Record) -> bool:
        """Whether one of two records is measurably faster."""
        return self._ordering.apart(one, other)

    def is_tied(self, record: Record) -> bool:
        """Whether another record of the form is neither measurably faster nor slower."""
        return any(not self.apart(record, other) for other in self.records(record.form) if other is not record)

    def gain(self, record: Record) -> Gain | None:
        """Return what a kernel gains over the default in its form.

        None of the default itself, where it lacks, and where launching decides (`launches`).
        """
        default = self.default(record.form)
        if default is None or record.variant == default.variant or self.launches(record):
            return None
        speed = self._ordering.speedup(record, default)
        low = 1 - 1 / speed.low if speed.low else -math.inf  # of single processes, which say nothing of their scatter
        share = Estimate(1 - 1 / speed.value, low, 1 - 1 / speed.high)
        whole = timing_of(default).median_ms
        return Gain(Estimate(whole * share.value, whole * share.low, whole * share.high), share)

    @property
    def _ordering(self) -> Ordering:
        return order(self.group, self.workload)


def steps(records: Iterable[Record]) -> list[Step]:
    """Return the steps among records, by group and size; what is no step is left out."""
    return [Step(group, workload) for group, workload in workloads_of(records, OPERATION)]


def forms(found: Sequence[Step]) -> list[str]:
    """Return the forms in which some step has a time."""
    return [form for form in FORMS if any(step.records(form) for step in found)]

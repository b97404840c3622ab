"""What calls of a trial returned, in burst and in a block: kept in the order of the stream, and judged after it."""

from __future__ import annotations

import random
from collections.abc import Mapping

from fluxbench.correctness.case import Case
from fluxbench.correctness.content import Content, changed_inputs
from fluxbench.correctness.contents import Contents
from fluxbench.correctness.judging import verdict_on
from fluxbench.correctness.questions import Question, answers, known
from fluxbench.correctness.sampling import Sampled, verdict_on_rows
from fluxbench.operations.protocol import Bound
from fluxbench.timing.burst import copies
from fluxbench.timing.rotation import Rotation


class Returned:
    """Rows of the outputs of timed calls, some whole outputs, and what the kernel changed of what its calls got."""

    def __init__(self, cases: Mapping[str, Case], rng: random.Random) -> None:
        """`cases` are by workload."""
        self._cases, self._rng = cases, rng
        self._sampled: dict[str, list[Sampled]] = {}
        self._whole: dict[str, list[tuple[Mapping[str, object], Content]]] = {}  # outputs and what they are of
        self._whole_seen: dict[str, int] = {}
        self._given: list[tuple[str, Rotation]] = []  # by workload, of which it is not known yet whether it was changed
        self._changed: dict[str, str] = {}

    def keep(self, workload: str, outputs: Mapping[str, object], content: Content) -> None:
        """Keep rows of each output of a call, and of a random call that had whole outputs these."""
        self._sampled.setdefault(workload, []).append(Sampled.of(outputs, content, self._cases[workload]))
        if content.expected is not None:
            self._whole_seen[workload] = seen = self._whole_seen.get(workload, 0) + 1
            if not self._rng.randrange(seen):
                self._whole[workload] = [(copies(outputs), content)]

    def keep_whole(self, workload: str, bound: Bound, contents: Contents) -> None:
        """Keep a whole output of one more call, and whether the kernel changed what it got."""
        content = contents.whole(self._rng)
        outputs = bound(contents.put(content))
        if content.expected is None:  # of a call that is judged by rows
            self._sampled[workload].append(Sampled.of(outputs, content, self._cases[workload]))
        else:
            self._whole.setdefault(workload, []).append((copies(outputs), content))
        self.see_change(workload, contents)

    def see_change(self, workload: str, contents: Contents) -> None:
        """Note what the kernel changed of what a single call got, which may be of another workload."""
        if changed := changed_inputs(contents.inputs, contents.present):
            self._changed[workload] = changed

    def has_whole(self, workload: str) -> bool:
        """Whether some whole output was kept."""
        return workload in self._whole

    def take_in(self, workload: str, given: Rotation) -> None:
        """Keep what a rotation kept of the calls that it gave inputs."""
        self._sampled.setdefault(workload, []).extend(given.sampled)
        self._whole.setdefault(workload, []).extend(given.whole)

    def watch(self, workload: str, given: Rotation) -> None:
        """Let `see_changes` look at what a rotation has given to calls since it was filled."""
        self._given.append((workload, given))

    def see_changes(self) -> None:
        """Note what the kernel changed of what its calls got, before others get something else in that place."""
        changed = answers([given.changed() for _, given in self._given])
        for (workload, _), why in zip(self._given, changed, strict=True):
            if why:
                self._changed[workload] = why
        self._given = []

    def wrong(self, quantized_budget: float | None, precision: str) -> dict[str, str]:
        """Return by workload why what calls returned, or changed, is wrong, where it is."""
        allowed = quantized_budget, precision
        asked: list[tuple[str, Question[str | None]]] = []
        for workload, case in self._cases.items():
            for outputs, content in self._whole.get(workload, []):
                asked.append((workload, verdict_on(outputs, content.as_case(case), *allowed)))
            asked.append((workload, verdict_on_rows(self._sampled.get(workload, []), case, *allowed)))
            asked.append((workload, known(self._changed.get(workload))))
        found: dict[str, str] = {}
        for (workload, _), why in zip(asked, answers([question for _, question in asked]), strict=True):
            if why:
                found.setdefault(workload, why)
        return found

    def clear(self) -> None:
        """Forget it all."""
        self._sampled, self._whole, self._changed = {}, {}, {}

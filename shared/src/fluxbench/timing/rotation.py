"""What the calls of a sustained block get: contents in a random order that nobody can foresee, which changes in it.

Slots are tensors at fixed addresses. As many as exceed twice the cache are in rotation; each stays for 2 to 6 calls,
and then another takes its place. Before each window the slot of its last call gets other contents; rows of what that
call returns are kept. So whoever keeps an output, by address or otherwise, returns it for contents that it is not of.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from fluxbench.correctness.case import Case
from fluxbench.correctness.content import Content
from fluxbench.correctness.contents import Contents
from fluxbench.correctness.questions import Question
from fluxbench.correctness.sampling import Sampled
from fluxbench.operations.protocol import Bound
from fluxbench.timing.burst import copies
from fluxbench.timing.repeated import REPEATS


class Rotation:
    """What calls of one variant at one workload get in a block, and what its judged calls returned.

    `calls` places are drawn before the block, so that its windows do not wait for them; then they come again. With as
    many as a turn has, each turn has the same tensors, as a CUDA graph needs, and the last of them other contents. The
    whole output of the last call of the turn of number `whole` is judged, from 0; None: of none.
    """

    def __init__(
        self, bound: Bound, contents: Contents, case: Case, calls: int, rng: random.Random, whole: int | None = None
    ) -> None:
        self._bound, self._contents, self._case, self._rng = bound, contents, case, rng
        self._order = itertools.cycle(
            list(itertools.islice(_order(len(contents.slots), contents.rotation, rng), calls))
        )
        self._prepared: list[Any] = []
        self.fill()
        self._last = 0
        self._turns, self._whole_turn = 0, whole
        self.sampled: list[Sampled] = []
        self.whole: list[tuple[Mapping[str, object], Content]] = []  # outputs and what they are of

    def fill(self) -> None:
        """Put new contents into all slots, where calls of another variant may have left something else."""
        self._contents.fill(self._contents.draw(len(self._contents.slots), self._rng))
        self._prepared = [self._bound.prepared(slot) for slot in self._contents.slots]

    def turn(self, calls: int) -> list[Any]:
        """Return what so many calls get, in order, the last of them contents that its slot did not hold before."""
        order = list(itertools.islice(self._order, calls))
        self._last = order[-1]
        before = self._contents.held[self._last]
        is_whole = self._turns == self._whole_turn
        content = self._contents.whole(self._rng, before) if is_whole else self._contents.other(before, self._rng)
        self._turns += 1
        self._prepared[self._last] = self._bound.prepared(self._contents.put_into(self._last, content))
        return [self._prepared[place] for place in order]

    def keep(self, outputs: Mapping[str, object]) -> None:
        """Keep rows of what the last call of a turn returned, or all of it, in the order of the stream."""
        content = self._contents.held[self._last]
        self.sampled.append(Sampled.of(outputs, content, self._case))
        if self._turns - 1 == self._whole_turn and content.expected is not None:
            self.whole.append((copies(outputs), content))

    def changed(self) -> Question[str | None]:
        """Ask why a kernel is wrong that changed what it got, if it did."""
        return self._contents.changed()


def _order(slots: int, rotation: int, rng: random.Random) -> Iterator[int]:
    """Yield slots: `rotation` in turn, of which each stays for a random number of calls until another takes its place.

    The one that has waited longest comes next, so that a slot's calls stay `rotation` apart.
    """
    waiting = deque(rng.sample(range(slots), slots))
    places = [(waiting.popleft(), rng.randint(*REPEATS)) for _ in range(rotation)]
    while True:
        for index, (slot, left) in enumerate(places):
            yield slot
            if left > 1:
                places[index] = slot, left - 1
                continue
            waiting.append(slot)
            places[index] = waiting.popleft(), rng.randint(*REPEATS)

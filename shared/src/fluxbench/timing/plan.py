"""How long a process measures each variant. Why these numbers: docs/methodology.md."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch

_LONG_S, _ROUNDS_OF_LONG = 0.02, 3  # a call that lasts so long, and its fewest burst rounds: single ones scatter little
_LONGEST_S = 0.1  # of a call whose rounds scatter less than its processes
_FEWER_CONTENTS = 16  # of a workload that has no sustained times


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long a process measures each variant; all durations in seconds."""

    max_rounds: int  # of burst
    min_rounds: int
    burst_budget_s: float  # of burst calls at one workload
    first_rest_s: float  # before the first round: a card that was at its power limit takes so long to its full clock
    min_rest_s: float  # between two rounds
    chunk_s: float  # of sustained calls at one workload, before the next one's
    warm_up_s: float  # of a block, always discarded
    max_warm_up_s: float  # after which a speed that has not settled is taken all the same
    min_block_s: float  # after the warm-up
    max_block_s: float
    stretch_s: float  # two of which in succession tell whether a speed has settled
    settled_within: float  # by which share their means may differ
    sample_s: float  # that a sustained sample is the mean of
    paired_s: float  # of a CPU's calls in rounds beside the reference's, see `timing.interleaved`
    warm_up_of_loaded_s: float = 0.3  # of a block right after another one, whose device is under load already
    contents: int = 24  # of a workload, at most
    row_s: float = 0.0  # of a row of short calls that is one burst sample, see `timing.rows`; 0: all samples are calls
    row_below_s: float = 0.0  # a call that takes as long or longer is a sample by itself
    rounds_of_longest: int = _ROUNDS_OF_LONG  # of calls of 0.1 s or more
    replay_s: float = 0.0  # of which a window of a long call's replays lasts nearly a multiple; 0: it has one
    lead_s: float = 0.0  # of replays before such a window: a card at its power limit has another clock after a pause
    rest_of_hot_s: float = 0.0  # of a GPU that its heat slowed in a sustained window; 0: it gets none

    @classmethod
    def on(
        cls,
        device: torch.device,
        *,
        grid: bool = False,
        large: bool = False,
        long: bool = False,
        replayed: bool = False,
        alone: bool = False,
    ) -> Plan:
        """Return the plan for a kind of device: a CPU's call is a few hundred times longer than a GPU's.

        `grid`: for a study of many short calls, in burst alone; `large`: of hundreds of workloads. `long`: for one of
        calls that last up to a second on a GPU, whose sustained windows are one call at each workload, and which heat
        it up: a block lasts up to four periods of the power limit, and rests where heat slows it. `replayed`: a GPU's
        burst samples are rows of calls. `alone`: all workloads are measured in burst alone, and so in three
        processes; of these one round suffices for the longest calls, and of all no two calls of a dozen rounds get the
        same contents.
        """
        plan = cls._usual_on(device)
        if replayed and device.type != "cpu":
            return dataclasses.replace(plan, row_s=5e-4, row_below_s=math.inf)
        if long and device.type != "cpu":
            return dataclasses.replace(
                plan, max_rounds=1, min_rounds=1, max_block_s=4.0, replay_s=1.0, lead_s=0.3, rest_of_hot_s=5.0
            )
        if not grid:
            single = alone and device.type != "cpu"
            return dataclasses.replace(plan, rounds_of_longest=1, contents=_FEWER_CONTENTS) if single else plan
        if device.type == "cpu":
            # The cache is cleared before each call: 0.1 s where it is one of 300 MB.
            return dataclasses.replace(plan, max_rounds=4 if large else 8, min_rounds=4, burst_budget_s=0.1)
        plan = dataclasses.replace(
            plan, max_rounds=4, min_rounds=4, first_rest_s=0.02, contents=2, row_s=5e-4, row_below_s=1e-3
        )
        # Of calls of 2 ms or less four samples, of calls of 4 ms or more two.
        return dataclasses.replace(plan, min_rounds=2, burst_budget_s=8e-3, row_s=3e-4) if large else plan

    @classmethod
    def _usual_on(cls, device: torch.device) -> Plan:
        if device.type == "cpu":
            return cls(
                max_rounds=5, min_rounds=2, burst_budget_s=0.05, first_rest_s=0.02, min_rest_s=0.02, chunk_s=0.02,
                warm_up_s=0.1, max_warm_up_s=1.0, min_block_s=0.4, max_block_s=0.6,
                stretch_s=0.02, settled_within=0.05, sample_s=0.02, paired_s=4.0,
            )  # fmt: skip
        return cls(
            max_rounds=24, min_rounds=5, burst_budget_s=0.011, first_rest_s=0.25, min_rest_s=0.003, chunk_s=0.008,
            warm_up_s=1.05, max_warm_up_s=1.05, min_block_s=1.0, max_block_s=1.0,
            stretch_s=0.2, settled_within=0.02, sample_s=0.1, paired_s=0.0,
        )  # fmt: skip

    @property
    def loaded(self) -> Plan:
        """The plan of a block right after that of another kernel, which has loaded the device."""
        return dataclasses.replace(self, warm_up_s=self.warm_up_of_loaded_s)

    @property
    def short(self) -> Plan:
        """The plan of launched calls after a block of replayed ones: of a time that does not rank."""
        return dataclasses.replace(
            self, warm_up_s=0.1, max_warm_up_s=0.1, min_block_s=0.2, max_block_s=0.2, stretch_s=self.stretch_s / 2
        )

    def rounds(self, call_s: float) -> int:
        """Return how many burst rounds a trial has at most whose largest call lasts `call_s` seconds."""
        least = self.min_rounds if call_s < _LONG_S else min(self.min_rounds, _ROUNDS_OF_LONG)
        return max(least, min(self.max_rounds, math.ceil(self.burst_budget_s / call_s)))

    def rounds_of(self, call_s: float, rounds: int) -> int:
        """Return in how many of a trial's `rounds` a workload takes part whose call lasts `call_s` seconds.

        In all, unless the budget gives such a call the fewest: two of nearly one length have equally many.
        """
        if call_s >= _LONGEST_S:
            return min(rounds, self.rounds_of_longest)
        return min(rounds, self.rounds(call_s)) if call_s * self.min_rounds >= self.burst_budget_s else rounds

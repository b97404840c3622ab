"""The verdict where intervals are wide: who is a candidate, who is chosen, and what is said of it."""

from __future__ import annotations

import dataclasses

import msgspec
from sample_records import changed, record
from verdicts import said

from fluxbench.analysis import verdict as analysis
from fluxbench.analysis.groups import groups
from fluxbench.analysis.ranking import order
from fluxbench.analysis.verdict import Contender
from fluxbench.operations import sets
from fluxbench.records.status import Status
from fluxbench.report import verdict_words
from fluxbench.stats.intervals import Estimate

LENGTHS = sets.sets()["flux1-1024px"]
DEFAULT = record("torch_native")


def test_a_kernel_whose_interval_lies_under_1_is_no_candidate_also_where_no_test_tells_it() -> None:
    """Sustained rounds of two CPU cores: unfused attention takes 2 to 5 times as long, in processes that differ far."""
    level = dict.fromkeys(("torch_native", "a", "b", "c"), (0.2, 0.201, 0.199))
    times = {"torch_flash": (0.2, 0.2, 0.2), **level, "torch_math": (0.47, 0.7, 1.04)}
    records = []
    for name, seconds in times.items():
        one = record(name, sustained_ms=sum(seconds) / 3)
        own = tuple((1e3 * value,) * 2 for value in seconds)
        wide = (0.3, 3.0) if name == "torch_math" else (0.99, 1.01)
        timing = one.timings["sustained"]
        ends = {
            key: tuple(end * value for end in wide)
            for key, value in (("ci95_ms", timing.median_ms), ("ratio_ci95", timing.ratio))
        }
        rounds = msgspec.structs.replace(
            timing,
            statistic="median",
            samples_ms=own,
            reference_ms=((200.0,) * 2,) * 3 if name != "torch_flash" else (),
            **ends,
        )
        records.append(changed(one, timings={**one.timings, "sustained": rounds}))
    [group] = groups(records)
    found = analysis.of(group)
    names = [one.record.variant for one in found.exact]
    math_ = records[-1]
    ordering = order(group, group.longest)
    assert not ordering.apart(math_, records[0])
    assert ordering.speedup(math_, records[0]).high < 1
    assert ("torch_math" in names, found.unsure) == (False, ())


def test_the_choice_is_measurably_faster_than_the_default_where_one_is() -> None:
    default = [record("torch_native", workload) for workload in LENGTHS]
    sure = [record("a", workload, 0.97, ci=0.005) for workload in LENGTHS]
    wide = [record("b", workload, 0.97, ci=0.08) for workload in LENGTHS]
    beats = [record("c", workload, 0.9, ci=0.005) for workload in LENGTHS[:2]]  # the first, and not the wide one
    [group] = groups([*default, *sure, *wide, *beats])
    found = analysis.of(group)
    assert {one.record.variant for one in found.exact} == {"a", "b"}
    assert found.choice == sure[-1]


def test_a_caption_says_how_an_interval_can_exclude_1_where_nothing_is_measurably_faster() -> None:
    [group] = groups([DEFAULT, record("flash_attn_3", sustained_ms=0.999, ci=0.02)])
    found = analysis.of(group)
    level = {one.record.variant: one.record for one in found.exact}
    assert set(level) == {"torch_native", "flash_attn_3"}
    for low, said_so in ((0.999, False), (1.001, True)):
        other = Contender(record=level["flash_attn_3"], speedup=Estimate(1.007, low, 1.012))
        shown = dataclasses.replace(found, exact=(Contender(record=DEFAULT, speedup=None), other))
        assert ("corrected for the number of kernels" in verdict_words.caption(shown, "X")) == said_so


def test_a_default_that_is_beaten_and_has_no_rank_leaves_the_fastest_the_fastest() -> None:
    slow = [record(name, sustained_ms=1.0 + 0.1 * place, ci=0.005) for place, name in enumerate(("a", "c"))]
    fast, default = record("b", sustained_ms=0.5, ci=0.005), record("torch_native", sustained_ms=1.05, ci=0.3)
    [group] = groups([fast, *slow, default])
    found = analysis.of(group)
    assert not found.is_undecided
    assert said(fast, *slow, default).startswith("b is the fastest of 4 exact kernels measured here")


def test_one_candidate_without_a_rank_is_no_list_of_candidates() -> None:
    one = record("torch_flash", ci=0.4)
    text = said(one, record("torch_cudnn", status=Status.CRASHED))
    assert text.startswith("FlashAttention-2 (SDPA) is too uncertain for a rank; no other exact one has a time.")

"""Tables of language models: passes over standard attention, tokens/s and memory of all layers, published ratios."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sample_records import CPU, changed, record, results
from tabled import cells, rows_of, table_of, words

from fluxbench.analysis.language import Depths, Step, depths, prompts, steps, trained
from fluxbench.analysis.language_published import figures, pairs
from fluxbench.analysis.launching import is_launching
from fluxbench.device.model import Device
from fluxbench.operations.language_sets import PASSES
from fluxbench.records.schema import BURST, Cupti, Flag, Memory, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.report.blocks import Heading, Table
from fluxbench.report.results import Results
from fluxbench.report.tables import language, language_memory, language_published, language_training

EAGER, FLASH = "torch_eager", "torch_flash"
SMALL, LARGE = "sm-12x768-1024", "lg-36x1280-1024"
SEVEN, OF_GPT2 = "llama2-7b-b4-2048-training", "gpt2-124m-b4-1024-training"
LONGER = "llama2-7b-b4-4096"
GB = 10**9


def timed(variant: str, workload: str, ms: float, needs: int | None = None, **fields: Any) -> Record:
    """Return a record in burst alone, whose call needs so many bytes beside its weights."""
    of = {"allocated_bytes": needs, "reserved_bytes": needs, "call_bytes": needs} if needs else None
    memory = Memory(inputs_bytes=0, kept_bytes=0, **of) if of else None
    kind = "rounded" if variant == EAGER else "exact"
    return record(
        variant, workload, burst_ms=ms, regimes=[BURST], precision_class=kind, **({"memory": memory} | fields)
    )


def passes(of: str, variant: str, forward: float, backward: float, step: float) -> list[Record]:
    named = {"forward": forward, "backward": backward, "training": step}
    return [timed(variant, f"{of}-{name}", ms) for name, ms in named.items()]


def step_of(*records: Record) -> Step:
    [step] = trained(records)
    return step


def step_at(workload: str, *records: Record) -> Step:
    found = [step for operation in PASSES for step in steps(records, operation)]
    return next(step for step in found if step.workload.name == workload)


def test_speeds_that_are_not_measurably_other_than_standard_attention_s_are_counted() -> None:
    sure = [*passes(SMALL, EAGER, 2.0, 8.0, 12.0), *passes(SMALL, FLASH, 1.0, 2.0, 4.0)]
    assert "includes 1" not in language.blocks(results(*sure))[0].text()
    wide = timed("torch_cudnn", f"{SMALL}-forward", 1.9, burst_ci=0.4)
    shown = " ".join(language.blocks(results(*sure, wide))[0].text().split())
    assert "Of the 4 speeds over standard here the interval of 1 includes 1" in shown


def test_each_pass_of_a_size_stands_over_standard_attention() -> None:
    profiled = Cupti(events_ms=8.0, kernels_ms=8.0, span_ms=8.0, parts_ms={"optimizer": 0.5, "rest": 7.5})
    fused = passes(SMALL, FLASH, 1.0, 2.0, 4.0)
    of = results(
        *passes(SMALL, EAGER, 2.0, 8.0, 12.0), *fused[:2], changed(fused[2], cupti=profiled),
        timed("torch_cudnn", f"{SMALL}-forward", 1.5),
        timed("torch_cudnn", f"{SMALL}-training", 1.0, status=Status.ERROR),
    )  # fmt: skip
    table = table_of(language.blocks(of))
    assert [row[0] for row in rows_of(table)] == [FLASH, EAGER, "torch_cudnn"]
    row = rows_of(table)[0]
    assert [cell[:4] for cell in row[1::2]] == ["1.00", "2.00", "4.00", "0.50"]
    assert [cell[:3] for cell in row[2:7:2]] == ["2.0", "4.0", "3.0"]
    assert rows_of(table)[1][2::2] == ("-", "-", "-")
    assert rows_of(table)[2][3:] == ("-", "-", "ERROR", "-", "-")
    assert "GPT-2 architecture, 12 layers of width 768, 12 heads of 64, 4 x 1,024 tokens" in words([table])
    assert " h" not in "".join(map(str, row))
    [first] = [timed(FLASH, f"{SMALL}-forward", 1.0, launch_ms=0.9, cupti=None)]
    launched = language.blocks(results(first, *passes(SMALL, EAGER, 2.0, 8.0, 12.0)))[0]
    assert isinstance(launched, Table)
    assert str(rows_of(launched)[1][1]).endswith(" h")
    assert not any("over" in column.head for column in launched.columns)  # none has a speed
    assert "of a call without a profile, launching over 85%" in words([launched])
    header, *found = language.rows(of)
    by_name = {(line[3], line[4]): dict(zip(header, line, strict=True)) for line in found}
    assert by_name["step", FLASH]["over_standard"] == pytest.approx(3.0)
    assert by_name["step", FLASH]["optimizer_ms"] == 0.5
    assert by_name["step", "torch_cudnn"]["status"] == "ERROR"
    assert len(found) == 8


def test_passes_that_the_host_launches_are_shown_by_their_kernels_too() -> None:
    def launched(variant: str, ms: float, kernels_ms: float) -> Record:
        profiled = Cupti(events_ms=ms, kernels_ms=kernels_ms, span_ms=ms)
        return timed(variant, f"{SMALL}-forward", ms, launch_ms=ms, cupti=profiled)

    unseen = timed("torch_cudnn", f"{SMALL}-forward", 9.0, cupti=None)
    of = results(launched(EAGER, 8.1, 1.35), launched(FLASH, 6.0, 0.77), unseen)
    _, kernels = language.blocks(of)
    assert isinstance(kernels, Table)
    assert {row[0]: row[1:3] for row in rows_of(kernels)} == {
        EAGER: ("1.35", "-"),
        FLASH: ("0.770", "1.75×"),
        "torch_cudnn": ("-", "-"),
    }
    header, *found = language.rows(of)
    assert [dict(zip(header, line, strict=True))["kernels_ms"] for line in found[:2]] == [1.35, 0.77]


def test_a_call_whose_kernels_take_much_less_than_it_waits_for_the_host_but_not_where_it_is_replayed() -> None:
    few = Cupti(events_ms=6.0, kernels_ms=4.0, span_ms=6.0)
    launched = timed(FLASH, f"{SMALL}-forward", 6.0, launch_ms=0.5, cupti=few)
    replayed = changed(launched, flags=(Flag(kind=FlagKind.REPLAYED, regime=BURST, value=9.0),))
    unknown = changed(launched, launch_ms=None)  # of a CPU
    full = Cupti(events_ms=6.0, kernels_ms=5.9, span_ms=6.0)  # the host waits for the queue, and the device for nobody
    busy = changed(launched, launch_ms=5.9, cupti=full)
    unseen = changed(busy, cupti=None)
    asked = (launched, replayed, unknown, busy, unseen)
    assert [is_launching(each) for each in asked] == [True, False, False, False, True]
    beside = passes(SMALL, EAGER, 12.0, 20.0, 30.0)
    table = language.blocks(results(launched, *beside))[0]
    assert isinstance(table, Table)
    assert rows_of(table)[1][1] == "6.000 ±0.006 h"
    assert step_at(f"{SMALL}-forward", changed(launched, cupti=None), *beside).speedup(FLASH)
    assert step_at(f"{SMALL}-forward", launched, *beside).speedup(FLASH) is None
    assert step_at(f"{SMALL}-forward", replayed, *beside).speedup(FLASH) is None  # beside a launched one


def test_launch_bound_steps_have_no_speed_in_the_tables_of_training_and_of_published_figures() -> None:
    waiting = timed(FLASH, SEVEN, 100.0, launch_ms=90.0, cupti=None)
    shown = language_training.blocks(results(timed(EAGER, SEVEN, 200.0), waiting))
    [row] = rows_of(table_of(shown))
    assert row[3].endswith(" h")
    assert row[4] == "-"
    assert "launching over 85%" in words(shown)
    small = passes(SMALL, EAGER, 2.0, 8.0, 12.0)
    late = [changed(each, launch_ms=9.0, cupti=None) for each in passes("lg-36x1280-512", EAGER, 10.0, 8.0, 12.0)]
    unit = passes("sm-12x768-512", EAGER, 2.0, 8.0, 12.0)
    found, _ = published(
        timed(EAGER, SEVEN, 200.0), waiting, *small, *passes(LARGE, EAGER, 10.0, 8.0, 12.0), *unit, *late
    )
    assert found["Guide: training throughput, Llama-2-7B", "4 x 2,048"][1:] == (
        "-", "launch-bound: the times are the host's",
    )  # fmt: skip
    forward = found["Sweep: model profile, over the forward pass of sm", "lg, forward only: forward"]
    assert forward[1:] == ("5.00×", "lg-36x1280, 1 of 2 contexts")
    found, _ = published(*unit, *late)
    forward = found["Sweep: model profile, over the forward pass of sm", "lg, forward only: forward"]
    assert forward[1:] == ("-", "launch-bound: the times are the host's")


def test_tokens_of_all_layers_follow_from_those_that_were_trained() -> None:
    of = results(
        timed(EAGER, SEVEN, 200.0), timed(FLASH, SEVEN, 100.0), timed(FLASH, OF_GPT2, 8.0),
        timed(EAGER, OF_GPT2, 1.0, status=Status.OUT_OF_MEMORY),
    )  # fmt: skip
    rate = step_of(*of.records[:2]).tokens_per_s(FLASH)
    assert rate is not None
    assert rate.value == pytest.approx(4 * 2048 / 0.1 * 4 / 32)
    assert rate.low < rate.value < rate.high
    table = table_of(language_training.blocks(of), "fused is FlashAttention-2 (SDPA)")
    assert "an embedding and a head of 1,024 words are in it" in " ".join(words([table]).split())
    first, second = rows_of(table)
    assert first[:2] == ("4 x 2,048", "4 of 32")
    assert first[4].startswith("2.00")
    assert first[5:] == ("5.120 ±0.005", "10.24 ±0.01")
    assert second[1:3] == ("12 of 12", "OUT_OF_MEMORY")
    assert second[4:] == ("-", "-", "512.0 ±0.5")
    wide = language_training.blocks(results(timed(FLASH, OF_GPT2, 8.0, burst_ci=0.4)))
    assert rows_of(table_of(wide))[0][6] == "512 [366, 853]"
    header, *found = language_training.rows(of)
    assert [dict(zip(header, line, strict=True))["tokens_per_s"] for line in found] == [
        pytest.approx(5120), pytest.approx(10_240), pytest.approx(512_000), None,
    ]  # fmt: skip


def needing(variant: str, shallow: int, deep: int) -> list[Record]:
    """Return steps of training of one and of two layers that need so many bytes."""
    return [
        timed(variant, f"llama2-7b-b4-8192-n{layers}-training", 1.0, needs)
        for layers, needs in ((1, shallow), (2, deep))
    ]


def test_the_memory_of_all_layers_is_that_of_two_numbers_of_layers_continued() -> None:
    [pair] = depths([*needing(FLASH, 5 * GB, 9 * GB), *needing(EAGER, 40 * GB, 80 * GB)])
    weights = 6_738_415_616 * 2
    assert pair.layer_bytes(FLASH) == 4 * GB
    assert pair.total_bytes(FLASH) == pytest.approx(3 * weights + 9 * GB + 30 * 4 * GB)
    without = pair.total_bytes(FLASH, 1)
    assert without == pytest.approx(3 * (weights - 31 * 2 * 202_383_360) + 5 * GB)
    fit = pair.fitting(FLASH, 141 * GB)
    assert fit is not None
    needs = [(pair.total_bytes(FLASH, count) or 0) + pair.left_out_bytes for count in (fit, fit + 1)]
    assert needs[0] <= 141 * GB < needs[1]
    words, logits = 30_976, 13.6 * 4 * 8192  # 32,000 words of the model, of which 1,024 are measured
    assert pair.left_out_bytes == pytest.approx(words * logits + words * 2 * 2 * 4096)
    assert (pair.fitting(FLASH, 10**15), pair.fitting(FLASH, GB), pair.fitting("flex", GB)) == (32, 0, None)


def test_memory_by_context_has_what_a_prompt_needs_and_what_training_needs() -> None:
    of_prompt = "llama2-7b-b1-2048-forward"
    h200 = Device(kind="cuda", name="NVIDIA H200", memory_bytes=141 * GB)
    of = results(
        timed(EAGER, of_prompt, 1.0, 3 * GB), timed(FLASH, of_prompt, 1.0, GB),
        *needing(FLASH, 5 * GB, 9 * GB), needing(EAGER, 40 * GB, 1)[0],
        timed(EAGER, "llama2-7b-b4-8192-n2-training", 1.0, status=Status.OUT_OF_MEMORY), device=h200,
    )  # fmt: skip
    table = table_of(language_memory.blocks(of))
    prompt, training = rows_of(table)
    weights, cache = 13.476831232, 32 * 2 * 4096 * 2 * 2048 / GB
    assert prompt[:3] == ("2,048", f"{weights + cache + 3:.1f}", f"{weights + cache + 1:.1f}")
    assert prompt[3] == f"{(weights + cache + 3) / (weights + cache + 1):.2f}×"
    assert training[1:] == ("OUT_OF_MEMORY", "169", "-", "-", "23 of 32")
    shown = " ".join(words([table]).split())
    assert "with a vocabulary of 1,024" in shown
    assert "embedding and head: 14.3 GB of llama2-7b at 4 x 8,192 tokens" in shown
    assert len(language_memory.rows(of)) == 1 + 4
    assert prompts(of.records)[0].whole.layers == 32
    for lacking in (results(timed(FLASH, of_prompt, 1.0), device=CPU), results(timed(FLASH, SEVEN, 1.0))):
        assert "this device reports none" in words(language_memory.blocks(lacking))


def published(*records: Record) -> tuple[dict[tuple[str, str], tuple[str, ...]], Results]:
    """Return the rows of the table of published figures by heading and place."""
    of = results(*records)
    heading, found = "", {}
    for row in table_of(language_published.blocks(of), "fused attention gains").rows:
        if isinstance(row, Heading):
            heading = row.words
        else:
            place, *texts = (cell.strip() for cell in row.texts())
            found[heading, place] = tuple(texts)
    return found, of


def test_every_published_row_has_a_row_with_our_ratio_or_its_reason() -> None:
    found, of = published(
        timed(EAGER, SEVEN, 200.0), timed(FLASH, SEVEN, 100.0),
        timed(EAGER, "llama2-7b-b8-4096-training", 1.0, status=Status.OUT_OF_MEMORY),
        timed(FLASH, "llama2-7b-b8-4096-training", 1.0),
        timed(EAGER, "llama2-7b-generation-2048", 9.0), timed(FLASH, "llama2-7b-generation-2048", 6.0),
        timed(FLASH, f"{LONGER}-n1-training", 1.0, 5 * GB), timed(EAGER, f"{LONGER}-n1-training", 1.0, 9 * GB),
        timed(FLASH, f"{LONGER}-training", 1.0, 9 * GB), timed(EAGER, f"{LONGER}-training", 1.0, 19 * GB),
        *passes(SMALL, EAGER, 2.0, 8.0, 12.0), *passes(LARGE, EAGER, 10.0, 8.0, 12.0),
    )  # fmt: skip
    assert len(found) == len(pairs()) + 9 == 5 + 6 + 5 + 5 + 3 + 9
    speed = found["Guide: training throughput, Llama-2-7B", "4 x 2,048"]
    assert speed[0] == "2.58× implausible"
    assert speed[1].startswith("2.00")
    assert speed[2] == "4 of 32 layers"
    assert found["Guide: models, Llama-2-7B", "4 x 2,048"][1] == speed[1]
    assert found["Guide: training throughput, Llama-2-7B", "8 x 4,096"] == (
        "standard out of memory, fused wrong under an assumption", "-", "torch_eager: OUT_OF_MEMORY",
    )  # fmt: skip
    generated = found["Guide: generation throughput, Llama-2-7B", "- x 2,048"]
    assert (generated[0], generated[1][:3], generated[2]) == ("1.48×", "1.5", "32 of 32 layers")
    kept = (3 * 13.476831232 + 19 + 30 * 10) / (3 * 13.476831232 + 9 + 30 * 4)
    assert found["Guide: Llama-2-7B training memory, batch 4", "4 x 4,096"] == (
        "2.07× wrong under an assumption", f"{kept:.2f}×", "all layers",
    )  # fmt: skip
    assert found["Guide: models, Llama-2-70B", "4 x 2,048"] == ("2.83×", "-", "not measured on this device")
    of_sweep = {place: row for (heading, place), row in found.items() if heading.startswith("Sweep")}
    assert of_sweep["lg, forward only: forward"] == ("3.77×", "5.00×", "lg-36x1280")
    assert of_sweep["sm, training step: backward"] == ("1.85× contradictory", "4.00×", "sm-12x768")
    assert of_sweep["md, training step: forward"][1:] == ("-", "not measured on this device")
    assert len(language_published.rows(of)) == 1 + len(found)


def test_wrong_published_figures_have_their_reasons_and_no_time_of_theirs_stands_beside_ours() -> None:
    of = results(timed(FLASH, SEVEN, 1.0))
    shown = language_published.blocks(of)
    wrong = [judged for judged in figures() if judged.judgement.is_flagged]
    assert f"Why {len(wrong)} of their {len(figures())} figures are doubtful or wrong" in words(shown)
    assert "standard, 1x2048, 3.2 GB" in words(shown[1:])
    beside = " ".join(" ".join(row) for row in rows_of(table_of(shown, "fused attention gains")))
    assert not re.search(r"samples/s|0\.0227895| GB\b", beside)


def test_tables_without_such_records_say_so() -> None:
    other = results(record())
    assert "No profile was measured." in words(language.blocks(other))
    assert "No training was measured." in words(language_training.blocks(other))
    for table in (language, language_training, language_memory, language_published):
        assert "There are no records." in words(table.blocks(results()))


def test_steps_of_one_depth_are_no_pair() -> None:
    assert depths(needing(FLASH, 1, 2)[:1]) == []
    [pair] = depths(needing(FLASH, GB, 2 * GB))
    assert isinstance(pair, Depths)
    assert (pair.shallow.layers, pair.deep.layers) == (1, 2)
    assert cells(table_of(language_memory.blocks(results(*needing(FLASH, GB, 2 * GB)))), "8,192")["fused GB"] == "72.4"

"""The tables and the figure of a grid of shapes, and the published grid beside it."""

from __future__ import annotations

import functools
import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from drawn import overlap, text_box, texts, tooltips
from sample_records import CPU, changed, errors, record, results
from tabled import cells, rows_of, table_of, words

from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.records.schema import BURST, Flag, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.report.blocks import Fold
from fluxbench.report.figures import Drawing, speedup
from fluxbench.report.figures.svg import NARROW, WIDE
from fluxbench.report.results import Results
from fluxbench.report.tables import grid, grid_correctness, grid_published, grid_words

GRID = sets.sets()["sdpa-bf16"]
SHAPE = sets.by_name()["sdpa-b8-s64-h12-d32-bf16"]
OTHER = sets.by_name()["sdpa-b8-s128-h12-d32-bf16"]
BIG = sets.by_name()["sdpa-b64-s1024-h24-d128-bf16-training"]
EAGER, NATIVE, FLASH = "torch_eager", "torch_native", "flash_attn_2"


def timed(variant: str, workload: Workload, ms: float, launched_ms: float | None = None, ci: float = 0.001) -> Record:
    flags = [Flag(kind=FlagKind.REPLAYED, regime=BURST, value=launched_ms)] if launched_ms else []
    kind = "rounded" if variant == EAGER else "exact"
    return record(
        variant, workload, burst_ms=ms, burst_ci=ci, reference_ms=1.0, regimes=[BURST], flags=flags,
        precision_class=kind,
    )  # fmt: skip


def failed(variant: str, workload: Workload, status: Status, reason: str) -> Record:
    return record(variant, workload, status=status, reason=reason, regimes=[BURST])


def whole() -> Results:
    """Return 135 shapes at which FlashAttention-2 is 1 to 6 times as fast as eager attention, and slower at one."""
    made = []
    for workload in GRID:
        gain = 1 + workload.x / 200
        gain = 0.8 if workload is GRID[0] else gain
        made += [timed(EAGER, workload, 0.01 * gain, 0.05), timed(FLASH, workload, 0.01, 0.02)]
    return results(*made, notebook="sdpa")


SOME = results(
    *(timed(EAGER, one, 0.020, 0.060) for one in (SHAPE, OTHER)),
    *(timed(NATIVE, one, 0.010, 0.020) for one in (SHAPE, OTHER)),
    timed(FLASH, SHAPE, 0.005, 0.015),
    timed(FLASH, OTHER, 0.0100001, 0.015, ci=0.02),
    *(failed("flash_attn_3", one, Status.UNSUPPORTED, "it takes bfloat16") for one in (SHAPE, OTHER)),
    failed(EAGER, BIG, Status.OUT_OF_MEMORY, "asked for 96 GiB with 12 GiB free"),
    timed(NATIVE, BIG, 3.0),
)


def test_the_answer_names_the_one_that_wins_at_most_shapes_and_counts_ties() -> None:
    shown = words(grid.blocks(SOME))
    assert (
        "Forward, bfloat16, replayed as CUDA graphs: FlashAttention-2 is measurably the fastest at 1 of 2 shapes, and "
        "1 has no winner. At 1 of these FlashAttention-2 and PyTorch default (SDPA) alone tie for first. The fastest "
        "of a shape is 2.00 to 4.00 times as fast as eager attention. As called, without "
        "graphs, FlashAttention-2 has the shortest time at 2 of 2 shapes; the shortest is 4.00 times as fast as eager "
        "attention. FlashAttention-3 has no time here: it takes bfloat16." in shown
    )
    assert "Forward + backward, bfloat16: none of 1 shape has a winner" in shown


def test_the_answer_says_where_the_winner_takes_longer_as_called() -> None:
    flags = [timed(NATIVE, one, 0.010, 0.050) for one in (SHAPE, OTHER)]
    shown = words(grid.blocks(results(*flags, *(timed(FLASH, one, 0.005, 0.150) for one in (SHAPE, OTHER)))))
    assert (
        "as called, without graphs, PyTorch default (SDPA) has the shortest time at 2 of 2 shapes. FlashAttention-2 "
        "takes longer than PyTorch default (SDPA) at 2 of the 2 shapes at which it wins, there 3.00 times as long in "
        "the median."
    ).casefold() in shown.casefold()
    assert "no winner as called is named" in shown


def test_each_shape_has_its_winner_or_those_that_tie_and_both_times() -> None:
    table = table_of(grid.blocks(SOME), "The fastest at each shape")
    first, second, lacking = rows_of(table)
    assert first[:5] == ("8", "64", "32", "12", FLASH)
    assert (first[5][:5], first[7], first[9][:5]) == ("2.000", "15.0", "4.000")
    assert first[6].startswith("5.00")
    assert first[10] == "FlashAttention-2 15.0"
    assert second[4:6] == ("PyTorch default (SDPA) = FlashAttention-2", "no winner")
    assert lacking[4] == "PyTorch default (SDPA); no other has a time"
    assert lacking[8:] == ("OUT_OF_MEMORY", "-", "PyTorch default (SDPA) 3,000")


def test_a_shape_without_a_winner_names_what_may_be_as_fast_and_why() -> None:
    uncertain, singly = timed(FLASH, SHAPE, 0.013, 0.02, ci=0.7), timed("triton_flash", SHAPE, 0.009)
    shown = grid.blocks(results(*(timed(one, SHAPE, 0.008, 0.02) for one in (NATIVE, "flex")), uncertain, singly))
    assert rows_of(table_of(shown, "The fastest at each shape"))[0][4:6] == (
        "PyTorch default (SDPA) = FlexAttention; or FlashAttention-2 (too uncertain); or Triton (fluxbench) "
        "(timed one by one)",
        "no winner",
    )
    alone = results(timed(NATIVE, SHAPE, 0.008, 0.02), uncertain, singly)
    places = {row[6]: row[-1] for row in grid.rows(alone)}
    assert places == {"variant": "place", NATIVE: "unsure", FLASH: "unsure", "triton_flash": "unsure"}


def test_on_a_cpu_there_is_one_time() -> None:
    on_cpu = results(timed(EAGER, SHAPE, 2.0), timed(NATIVE, SHAPE, 1.0), device=CPU)
    heads = [column.head for column in table_of(grid.blocks(on_cpu), "The fastest at each shape").columns]
    assert not any("called" in head or "µs" in head for head in heads)
    assert "time\nms" in heads


def test_implementations_have_wins_ties_and_the_span_of_their_speedups() -> None:
    table = table_of(grid.blocks(SOME), "Implementations over all shapes")
    assert [row[0] for row in rows_of(table)] == [FLASH, NATIVE, EAGER, NATIVE]
    flash = cells(table, FLASH)
    assert (flash["wins"], flash["ties for first"], flash["ranked"]) == ("1", "1", "2 of 2")
    assert (flash["shortest as called"], flash["as called, over the default"]) == ("2", "1.33× (1.33)")
    assert flash["speedup over eager"].startswith("3.00× (2.00 to 4.00)")


def test_a_speedup_over_a_time_that_is_hardly_known_is_in_no_range_and_has_no_colour() -> None:
    late = [timed(EAGER, SHAPE, 0.020, 0.060), timed(EAGER, OTHER, 0.060, 0.060, ci=0.5)]
    shown = results(*late, *(timed(FLASH, one, 0.005, 0.015) for one in (SHAPE, OTHER)))
    assert "The fastest of a shape is 4.00 times as fast as eager attention." in words(grid.blocks(shown))
    assert cells(table_of(grid.blocks(shown), "Implementations"), FLASH)["speedup over eager"] == "4.00× (4.00)"
    found = speedup.draw(shown)
    assert found is not None
    assert "12?" in texts(found.svg)
    assert len(tooltips(found.svg)) == 1
    assert "?: the interval reaches over 1.25 times" in words(found.details)


def test_a_range_of_calls_as_the_host_launches_them_leaves_out_the_lowest_and_the_highest_twentieth() -> None:
    called = [50.0, *[1.0 + place / 100 for place in range(38)], 0.01]
    assert grid_words.middle_span(called) == "1.00 to 1.37"
    assert grid_words.middle_span([1.0, 9.0]) == "1.00 to 9.00"


def test_the_winners_of_many_shapes_are_folded_by_pass_and_dtype() -> None:
    shown = grid.blocks(whole())
    assert [block.title for block in shown if isinstance(block, Fold)] == [
        "The fastest at each shape: forward, bfloat16"
    ]
    assert len(rows_of(table_of(shown, "Forward, bfloat16."))) == 135


def test_what_did_not_pass_is_told_once_with_the_shapes_and_the_reason() -> None:
    shown = words(grid.blocks(SOME))
    assert "3 of 10 rows have no time or rank. Which, and why" in shown
    assert "forward, batch 8, seq_len 64, 128, head_dim 32, heads 12: it takes bfloat16" in shown
    assert "asked for 96 GiB with 12 GiB free" in shown


def test_the_answer_names_what_there_was_no_time_to_measure() -> None:
    late = "the build's time was up before it was measured"
    shown = words(grid.blocks(results(*SOME.records, failed("triton_flash", SHAPE, Status.TIMEOUT, late))))
    assert "There was no time to measure Triton (fluxbench) at 1 of them." in shown
    assert "no time to measure" not in words(grid.blocks(SOME))


def test_a_short_call_that_was_timed_singly_beside_rows_has_no_rank_and_is_told() -> None:
    found = results(*SOME.records, timed("torch_cudnn", SHAPE, 0.011), notebook="sdpa")
    shown = grid.blocks(found)
    assert rows_of(table_of(shown, "The fastest at each shape"))[0][4] == FLASH
    assert next(row for row in grid.rows(found) if row[6] == "torch_cudnn")[12] is None
    assert "Without a rank: 1 row" in words(shown)
    assert "timed one by one" in words(shown)


def test_where_rows_did_not_pass_is_said_in_the_order_of_the_shapes() -> None:
    at = {"sdpa-b8-s1024-h12-d32-bf16", "sdpa-b16-s64-h12-d32-bf16"}
    made = [failed(EAGER, one, Status.ERROR, "why") for one in GRID if one.name in at]
    others = [timed(EAGER, one, 1.0) for one in GRID if one.name not in at]
    shown = words(grid.blocks(results(*others, *made)))
    assert "batch 8, 16, seq_len 64, 1024, head_dim 32, heads 12: why" in shown


def test_the_csv_has_a_row_for_each_shape_and_variant_whatever_came_of_it() -> None:
    header, *found = grid.rows(SOME)
    rows = [dict(zip(map(str, header), row, strict=True)) for row in found]
    assert len(rows) == len(SOME.records)
    flash = next(row for row in rows if (row["variant"], row["seq_len"]) == (FLASH, 64))
    assert (flash["device_ms"], flash["as_called_ms"], flash["place"]) == (0.005, 0.015, "winner")
    assert flash["over_eager"] == pytest.approx(4.0)
    lost = next(row for row in rows if row["status"] == "OUT_OF_MEMORY")
    assert (lost["device_ms"], lost["reason"]) == (None, "asked for 96 GiB with 12 GiB free")


def test_a_map_is_drawn_where_no_speedup_is_known_well() -> None:
    found = speedup.draw(results(timed(EAGER, SHAPE, 0.08, ci=0.6), timed(NATIVE, SHAPE, 0.02)))
    assert found
    assert "?" in "".join(texts(found.svg))


def test_the_published_columns_are_speedups_of_their_own_source_and_never_times() -> None:
    blocks = grid_published.blocks(SOME)
    row = rows_of(table_of(blocks, "Speed over eager attention, the least and the largest"))[0]
    assert row[:4] == ("forward", "bfloat16", "64", "1")
    assert row[4:] == ("2.15×", "2.00×", "3.00×", "2.67×", "4.00×", "4.00×")  # theirs: 0.112 ms / 0.052 and / 0.042
    each = rows_of(table_of(blocks, "Forward, bfloat16: speed over eager attention"))[0]
    assert (each[4], each[5][:5], each[6]) == ("2.15×", "2.000", "3.00×")
    assert not re.search(r"0\.112|0\.052", words(blocks))
    assert "Each shape: forward + backward, bfloat16" in words(blocks)
    assert words(grid_published.blocks(results(record("flex", "wan-480p")))) == (
        "There are no published shapes among the records."
    )


def test_errors_are_the_largest_of_all_shapes_with_how_many_were_checked_in_full() -> None:
    small, large = (errors(rel_l2, 0.01, rel_l2_by_inputs={"normal": rel_l2}) for rel_l2 in (0.002, 0.004))
    full = errors(0.005, 0.01, rel_l2_by_inputs={"normal": 0.001, "peaked": 0.005})
    wrong = errors(0.02, 0.01, rel_l2_by_inputs={"normal": 0.02})
    made = [changed(timed(FLASH, SHAPE, 1.0), errors={"out": small, "dq": large})]
    made += [changed(timed(FLASH, OTHER, 1.0), errors={"out": full})]
    made += [changed(record("flex", SHAPE, status=Status.INCORRECT, regimes=[BURST]), errors={"out": wrong})]
    table = table_of(grid_correctness.blocks(results(*made)), "Errors against float64")
    assert rows_of(table) == [
        (FLASH, "exact", "2", "1", "4.0e-03", "5.0e-03", "50%"),
        ("flex", "exact", "1", "0", "2.0e-02", "-", "200%"),
    ]
    assert len(grid_correctness.rows(results(*made))) == 5


@functools.cache
def drawn() -> Drawing:
    found = speedup.draw(whole())
    assert found is not None
    return found


def test_the_map_has_a_number_for_each_of_135_shapes_in_both_layouts() -> None:
    both = drawn()
    for svg in (both.svg, both.narrow):
        numbers = [text for text in texts(svg) if re.fullmatch(r"\d+\.\d+", text)]
        assert len(numbers) == 135
        assert {"0.80", "1.6", "2.3", "3.6", "6.1"} <= set(numbers)
    assert len(both.rows) == 136


def test_colour_only_repeats_what_a_number_says_and_grows_with_it() -> None:
    cells_of = re.findall(
        r"<title>batch [^<]*?(\d+ tokens|1,024 tokens)[^<]*? ([\d.]+)× .*?opacity: ?([\d.]+)", drawn().svg, re.S
    )
    assert len(cells_of) == 134  # eager attention is faster at one
    density = sorted({(float(gain), float(alpha)) for _, gain, alpha in cells_of})
    assert [alpha for _, alpha in density] == sorted(alpha for _, alpha in density)
    assert density[0][1] < 0.3 < density[-1][1] <= 0.6


def test_a_reader_who_does_not_see_the_map_gets_its_numbers() -> None:
    both = drawn()
    root = ET.fromstring(both.svg)
    title, description = (root[place].text or "" for place in (0, 1))
    assert title.startswith("How many times as fast as eager attention")
    assert "Forward, bfloat16, 135 shapes: 64 tokens 0.80 to 1.3 times;" in description
    assert "1,024 tokens 6.1 to 6.1 times." in description
    assert "batch 64, 1,024 tokens, 24 heads of 128, burst: FlashAttention-2 6.1" in " ".join(tooltips(both.narrow))
    assert "No winner" not in " ".join(tooltips(both.narrow))
    assert "replayed as CUDA graphs" in both.caption


def test_the_map_says_where_its_fastest_is_no_winner() -> None:
    found = speedup.draw(SOME)
    assert found is not None
    [tied] = [words for words in tooltips(found.svg) if "128 tokens" in words]
    assert tied.endswith("No winner: PyTorch default (SDPA) = FlashAttention-2")


def test_no_text_of_the_map_reaches_over_an_edge_or_into_another() -> None:
    both = drawn()
    for layout, svg in ((WIDE, both.svg), (NARROW, both.narrow)):
        boxes = [box for element in ET.fromstring(svg).iter() if (box := text_box(element))]
        assert all(left >= -1 and right <= layout.width_pt + 1 for _, left, _, right, _ in boxes)
        near = ((one, other) for one, other in itertools.combinations(boxes, 2) if abs(one[2] - other[2]) < 20)
        assert not any(overlap(one, other) for one, other in near)


def test_where_eager_attention_did_not_fit_the_map_says_so() -> None:
    found = speedup.draw(SOME)
    assert found is not None
    lost = results(*SOME.records, timed(EAGER, sets.by_name()["sdpa-b8-s64-h12-d32-bf16-training"], 1.0),
                   timed(NATIVE, sets.by_name()["sdpa-b8-s64-h12-d32-bf16-training"], 0.5))  # fmt: skip
    assert "OOM" in texts((speedup.draw(lost) or found).svg)
    assert "Nothing beside eager attention." in texts(found.svg)
    assert speedup.draw(results(timed(NATIVE, SHAPE, 1.0))) is None

"""The recommendations by use on a target's card: what is named, at which workload, and what the records do not hold."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from fakes import REPOSITORY
from markdown.extensions.toc import slugify_unicode
from sample_records import LAUNCH_BOUND
from sites import CPU, H200, HOSTILE, believe, record, write

from fluxbench.analysis.uses import USES, Representative
from fluxbench.operations import sets
from fluxbench.records.method import METHOD_VERSION
from fluxbench.records.schema import BURST, Flag, KernelShare, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.site.collect import collect
from fluxbench.site.draw import draw
from fluxbench.site.uses import Answer, Recommended, recommended
from fluxbench.studies.study import Study

DEFAULT = "torch_native"
IMAGE, TRAINING, LONG, SHORT, SERVING = USES
LLAMA = "llama3-8b-16384-training"


def of_notebooks(reports: Path, **notebooks: list[Record]) -> Recommended:
    """Return what a target with these notebooks recommends."""
    for name, records in notebooks.items():
        write(reports, "h200", *records, notebook=name)
        (reports / "h200" / f"{name}.html").touch()
    [target] = collect(reports, believe)
    found = recommended(target)
    assert found
    return found


def of_flux(reports: Path, *records: Record) -> Answer:
    """Return the answer for generating images of a target whose notebook `flux` has these records."""
    [answer] = of_notebooks(reports, flux=list(records)).uses[0].answers
    return answer


def names(answer: Answer) -> list[tuple[str, str]]:
    return [(kernel.name, kernel.note) for kernel in answer.kernels]


def test_the_fastest_exact_kernel_has_its_speed_its_workload_and_the_place_it_comes_from(tmp_path: Path) -> None:
    answer = of_flux(tmp_path, record(DEFAULT), record("flash_attn_3", ms=0.8), record("flex", ms=0.9))
    assert names(answer) == [("FlashAttention-3", "")]
    assert re.fullmatch(r"1\.25\d?× \[1\.2\d+, 1\.2\d+\]", answer.kernels[0].number)
    assert (answer.what, answer.failed) == ("attention, sustained, among 3 exact kernels", "")
    assert answer.workload.startswith("flux1-1024px-t512: 4,608 tokens (512 of them text), 24 heads of 128")
    draw(tmp_path, believe)
    link = f'<a href="h200/flux.html#ranking">{answer.kernels[0].number}</a>'
    assert link in (tmp_path / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "wrong",
    [
        [record("flash_attn_4", ms=0.5, status=Status.CRASHED)],
        [record("flash_attn_4", ms=0.5), record("flash_attn_4", "flux1-1024px-t128", status=Status.INCORRECT)],
        [record("flash_attn_4", ms=0.8, flags=[LAUNCH_BOUND])],
        [record("flash_attn_4", ms=1.0, ci=0.9)],
        [record("flash_attn_4", "flux1-1024px-t128", 0.1)],
    ],
    ids=["failed", "incorrect at another length", "launch-bound", "too uncertain", "at another length alone"],
)
def test_a_kernel_that_did_not_win_is_not_named(tmp_path: Path, wrong: list[Record]) -> None:
    answer = of_flux(tmp_path, record(DEFAULT), record("flash_attn_3", ms=0.8), *wrong)
    assert names(answer) == [("FlashAttention-3", "")]


def test_ties_are_named_as_ties_and_the_default_among_them_with_its_time(tmp_path: Path) -> None:
    tied = [record("flash_attn_3", ms=0.8), record("flash_attn_4", ms=0.801)]
    answer = of_flux(tmp_path / "a", record(DEFAULT), *tied)
    assert names(answer) == [("FlashAttention-3", "tie"), ("FlashAttention-4", "tie")]
    answer = of_flux(tmp_path / "b", record(DEFAULT), record("flex", ms=1.001), record("flash_attn_3", ms=1.5))
    assert names(answer) == [("PyTorch default (SDPA)", "tie"), ("FlexAttention", "tie")]
    assert answer.kernels[0].number.startswith("1×, 1.000 ms [")


def test_a_quantized_kernel_is_named_apart_with_its_error_if_it_is_faster(tmp_path: Path) -> None:
    exact = [record(DEFAULT), record("flash_attn_3", ms=0.8)]
    fast = record("flash_attn_3_fp8", ms=0.6, precision_class="quantized", rel_l2=0.052)
    assert names(of_flux(tmp_path / "a", *exact, fast)) == [
        ("FlashAttention-3", ""),
        ("FlashAttention-3 float8", "quantized, 5% error"),
    ]
    slow = record("flash_attn_3_fp8", ms=0.9, precision_class="quantized", rel_l2=0.052)
    assert names(of_flux(tmp_path / "b", *exact, slow)) == [("FlashAttention-3", "")]
    alone = of_flux(tmp_path / "c", record(DEFAULT, status=Status.CRASHED), fast)
    assert (alone.failed, len(alone.kernels)) == ("no exact kernel passed", 1)


def test_a_kernel_that_rounds_more_is_named_where_it_is_faster(tmp_path: Path) -> None:
    eager = record("torch_eager", ms=0.6, precision_class="rounded")
    answer = of_flux(tmp_path / "a", record(DEFAULT), record("flash_attn_3", ms=0.8), eager)
    assert names(answer) == [("FlashAttention-3", ""), ("Eager (by hand)", "rounds every intermediate")]
    slow = record("torch_eager", ms=1.5, precision_class="rounded")
    assert names(of_flux(tmp_path / "b", record(DEFAULT), slow)) == [("PyTorch default (SDPA)", "")]


def test_where_one_kernel_alone_was_compiled_the_first_of_the_others_is_named_too(tmp_path: Path) -> None:
    compiled = record(f"{DEFAULT}_compile_d", ms=0.7)
    answer = of_flux(tmp_path / "a", record(DEFAULT), compiled, record("flash_attn_3", ms=0.8))
    assert names(answer) == [
        ("PyTorch default (SDPA), compiled", ""),
        ("FlashAttention-3", "first of those not compiled, as no other was measured compiled"),
    ]
    slow = of_flux(tmp_path / "b", record(DEFAULT), compiled, record("flash_attn_3", ms=1.2))
    assert names(slow) == [("PyTorch default (SDPA), compiled", "")]


def test_without_the_default_the_baseline_is_named_and_without_any_the_number_is_a_time(tmp_path: Path) -> None:
    failed, fast = record(DEFAULT, status=Status.CRASHED), record("flash_attn_3", ms=0.8)
    answer = of_flux(tmp_path / "a", failed, record(), fast)
    assert answer.what == "attention, sustained, speed over FlashAttention-2 (SDPA), among 2 exact kernels"
    assert answer.kernels[0].number.startswith("1.2")
    answer = of_flux(tmp_path / "b", failed, record(status=Status.CRASHED), fast)
    assert answer.what == "attention, sustained, times, as no baseline passed, one exact kernel alone"
    assert answer.kernels[0].number == "0.800 ms [0.796, 0.804]"
    answer = of_flux(tmp_path / "c", failed)
    assert (answer.kernels, answer.failed) == ([], "no exact kernel passed")


def test_short_sequences_have_the_kernel_that_wins_there(tmp_path: Path) -> None:
    replayed = Flag(kind=FlagKind.REPLAYED, regime=BURST, value=1.5)
    records = [
        record(variant, f"sdpa-b8-s{tokens}-h12-d64-bf16", ms, regimes=[BURST], flags=[replayed])
        for variant, times in {
            DEFAULT: (1.0, 1.0, 1.0),
            "flex": (1.2, 0.5, 1.2),
            "torch_cudnn": (0.5, 0.9, 0.5),
        }.items()
        for tokens, ms in zip((64, 128, 1024), times, strict=True)
    ]
    quantized: dict[str, Any] = {"precision_class": "quantized", "regimes": [BURST], "flags": [replayed]}
    records += [record("flash_attn_3_fp8", "sdpa-b8-s128-h12-d64-bf16", 0.4, **quantized)]
    [answer] = of_notebooks(tmp_path, sdpa=records).uses[list(USES).index(SHORT)].answers
    assert (names(answer), answer.what) == (
        [("FlexAttention", ""), ("FlashAttention-3 float8", "quantized, 0.3% error")],
        "attention, burst, replayed as CUDA graphs, among 3 exact kernels",
    )
    assert answer.called == ""
    assert answer.workload.startswith("sdpa-b8-s128-h12-d64-bf16: batch 8, 128 tokens")


def test_speeds_over_a_default_that_gathers_pages_within_its_call_say_so(tmp_path: Path) -> None:
    paged = "llama3-8b-decode-p16-b128-4096"
    gathering = [KernelShare(name="vectorized_gather_kernel", share=0.7, part="gathering")]
    records = [record(DEFAULT, paged, kernels=gathering), record("flashinfer", paged, 0.4)]
    [answer] = of_notebooks(tmp_path, decode=records).uses[list(USES).index(SERVING)].answers
    assert "to a cache in pages, sustained, PyTorch's default first gathers the pages, among 2 " in answer.what


def test_a_kernel_that_is_recommended_elsewhere_and_was_not_measured_here_is_named(tmp_path: Path) -> None:
    long = "wan2.1-14b-lengths-75600"
    flux = [record(DEFAULT), record("gluon_flash", ms=0.8)]
    scaling = [record(DEFAULT, long, 9.0), record("flash_attn_3", long, 8.0)]
    found = of_notebooks(tmp_path, flux=flux, scaling=scaling)
    [image], [context] = (found.uses[list(USES).index(use)].answers for use in ("Image generation", "Long context"))
    # FlashAttention-3 is recommended for long context, and stands among what was not measured for images.
    assert image.what == "attention, sustained, among 2 exact kernels, FlashAttention-3 not measured"
    assert context.what == "attention, sustained, among 2 exact kernels, Gluon (fluxbench) not measured"


def of_short(reports: Path, *timed: tuple[str, float, float | None], kernel: str = "") -> Answer:
    """Return the answer for short sequences, of variants with their time in ms and that of a launched call."""
    records, kernels = [], [KernelShare(name=kernel, share=1.0, part="attention")] if kernel else []
    for variant, ms, launched in timed:
        flags = [Flag(kind=FlagKind.REPLAYED, regime=BURST, value=launched)] if launched else []
        records.append(record(variant, "sdpa-b8-s128-h12-d64-bf16", ms, regimes=[BURST], flags=flags, kernels=kernels))
    [answer] = of_notebooks(reports, sdpa=records).uses[list(USES).index(SHORT)].answers
    return answer


def test_where_another_kernel_is_faster_as_called_the_row_says_so(tmp_path: Path) -> None:
    answer = of_short(tmp_path, (DEFAULT, 0.012, 0.054), ("flash_attn_4", 0.01, 0.168), ("flex", 0.02, 0.2))
    assert names(answer) == [("FlashAttention-4", "")]
    assert answer.called == (
        "As called, without CUDA graphs: PyTorch default (SDPA) 0.0540 ms, FlashAttention-4 0.168 ms "
        "(means of launched calls, which differ from run to run)."
    )
    draw(tmp_path, believe)
    assert answer.called in (tmp_path / "index.html").read_text(encoding="utf-8")
    same = of_short(tmp_path / "same", (DEFAULT, 0.012, 0.054), ("torch_cudnn", 0.01, 0.168), kernel="k")
    assert (names(same), same.called) == ([("cuDNN (SDPA)", "")], "")  # only the host's time differs
    level = of_short(tmp_path / "level", (DEFAULT, 0.012, 0.054), ("flash_attn_4", 0.01, 0.055))
    assert (names(level), level.called) == ([("FlashAttention-4", "")], "")


def test_a_kernel_without_a_rank_in_the_grid_that_may_be_as_fast_is_named(tmp_path: Path) -> None:
    answer = of_short(tmp_path, (DEFAULT, 0.012, 0.054), ("flash_attn_4", 0.01, 0.054), ("flex", 0.019, None))
    assert names(answer) == [("FlashAttention-4", "no winner: FlexAttention may be as fast and has no rank")]
    assert answer.what == "attention, burst, replayed as CUDA graphs, among 3 exact kernels"
    some = of_short(tmp_path / "some", (DEFAULT, 1.2, None), ("flash_attn_4", 0.9, 0.95))
    assert some.what == "attention, burst, some replayed as CUDA graphs, among 2 exact kernels"


def test_the_card_of_a_grid_has_the_answer_over_all_its_shapes(tmp_path: Path) -> None:
    of_short(tmp_path, (DEFAULT, 0.012, 0.054), ("flash_attn_4", 0.01, 0.168))
    draw(tmp_path, believe)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "Forward, bfloat16, replayed as CUDA graphs: FlashAttention-4 is measurably the fastest at 1 of 1" in page


def test_a_csv_stands_with_the_name_of_its_page(tmp_path: Path) -> None:
    write(tmp_path, "h200", record())
    (tmp_path / "h200" / "flux" / "artifacts" / "correctness").mkdir(parents=True)
    (tmp_path / "h200" / "flux" / "artifacts" / "correctness" / "correctness.csv").touch()
    draw(tmp_path, believe)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert ">flux/correctness.csv</a>" in page


def test_a_use_without_a_published_notebook_says_which_are_missing(tmp_path: Path) -> None:
    found = of_notebooks(tmp_path, flux=[record()], backward=[record(workload="llama3-8b-16384-backward")])
    assert {use.name: use.missing for use in found.uses if not use.answers} == {
        TRAINING: "not published for this device: layers; not measured at this use's workloads; others are in backward",
        LONG: "not published for this device: scaling, decode",
        SHORT: "not published for this device: sdpa",
        SERVING: "not published for this device: decode",
    }
    draw(tmp_path, believe)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "Serving <small>not published for this device: decode</small>" in page


def test_a_target_that_measured_no_use_has_no_table(tmp_path: Path) -> None:
    write(tmp_path, "h200", record(workload="qwen-image-1024px-t33"))
    [target] = collect(tmp_path, believe)
    assert recommended(target) is None
    draw(tmp_path, believe)
    assert "Which kernel for which use" not in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_records_that_do_not_compare_are_never_ranked_together(tmp_path: Path) -> None:
    elsewhere = record("flash_attn_3", ms=0.5, fingerprint={**H200, "device": "NVIDIA B200"})
    answer = of_flux(tmp_path / "a", record(DEFAULT), elsewhere)
    assert answer.kernels == []
    assert answer.failed == "not ranked: they were measured on different devices: NVIDIA H200 -> NVIDIA B200"
    earlier = record("flash_attn_3", ms=0.5, method_version=7)
    answer = of_flux(tmp_path / "b", record(DEFAULT), earlier)
    assert answer.kernels == []
    assert answer.failed.startswith(
        f"not ranked: they were not measured in the same way: method version {METHOD_VERSION} "
    )


def test_pages_of_different_cards_say_so(tmp_path: Path) -> None:
    first, second = ({**H200, "card": card} for card in ("ab12", "cd34"))
    of_flux, of_backward = record(fingerprint=first), record(workload=LLAMA, fingerprint=second)
    found = of_notebooks(tmp_path, flux=[of_flux], backward=[of_backward])
    assert found.differences == (
        "Compare numbers of one workload only, since the pages differ: card ab12 (flux), cd34 (backward)."
    )


def test_pages_of_different_torch_method_or_device_say_so(tmp_path: Path) -> None:
    old: dict[str, Any] = {"method_version": 7, "versions": {"torch": "2.8.0"}, "fingerprint": CPU}
    [same, differing] = (
        of_notebooks(tmp_path / name, flux=[record()], backward=[record(workload=LLAMA, **fields)])
        for name, fields in (("same", {}), ("differing", old))
    )
    assert same.differences == ""
    assert differing.differences == (
        "Compare numbers of one workload only, since the pages differ: device NVIDIA H200 (flux), AMD EPYC (backward); "
        f"torch 2.9.0 (flux), 2.8.0 (backward); method version {METHOD_VERSION} (flux), 7 (backward)."
    )
    assert [names(answer) for use in differing.uses for answer in use.answers] == [
        [("FlashAttention-2 (SDPA)", "")]
    ] * 2
    draw(tmp_path / "differing", believe)
    assert differing.differences in (tmp_path / "differing" / "index.html").read_text(encoding="utf-8")


def test_a_hostile_text_is_escaped(tmp_path: Path) -> None:
    write(tmp_path, "h200", record(HOSTILE, versions={"torch": HOSTILE * 50}))
    write(tmp_path, "h200", record(workload=LLAMA), notebook="backward")
    draw(tmp_path, believe)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "&lt;img src=x" in page
    assert "<img" not in page


@pytest.mark.parametrize("one", [one for several in USES.values() for one in several], ids=lambda one: one.workloads[0])
def test_what_stands_for_a_use_is_a_workload_and_its_section_a_heading(one: Representative) -> None:
    of_notebook = vars(importlib.import_module(f"fluxbench.studies.{one.notebook}")).values()
    named = [names for study in of_notebook if isinstance(study, Study) for names in study.sets.values()]
    assert set(one.workloads) <= {workload.name for names in named for workload in sets.named(names)}
    text = (REPOSITORY / "notebooks" / f"{one.notebook}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^##+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", text), re.MULTILINE)
    assert one.section in {slugify_unicode(heading, "-") for heading in headings}

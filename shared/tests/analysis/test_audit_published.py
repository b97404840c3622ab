"""The published figures of this package: what the audit finds in them, each confirmed by arithmetic of its own here."""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import REPOSITORY

from fluxbench.analysis.audit import ours, published
from fluxbench.analysis.audit.finding import Finding, Judgement, Kind
from fluxbench.analysis.audit.judge import Audit, Judged, audit
from fluxbench.audit import overview as show_overview
from fluxbench.operations import sets
from fluxbench.report.audit import figure, tables
from fluxbench.report.audit.words import sentence

ASSETS = REPOSITORY / "shared/src/fluxbench/assets/published"


@pytest.fixture(scope="module")
def here() -> ours.Ours:
    return ours.read(REPOSITORY / "reports")


@pytest.fixture(scope="module")
def judged(here: ours.Ours) -> Audit:
    return audit(published.MEASUREMENTS, ours=here)


def of(judged: Audit, kind: Kind, **cells: str) -> list[tuple[Judged, Finding]]:
    return [
        (row, finding)
        for row in judged.rows
        for finding in row.findings
        if finding.kind is kind and all(row.context.get(name) == text for name, text in cells.items())
    ]


def test_every_row_is_judged_and_every_source_is_described(judged: Audit) -> None:
    assert len(judged.rows) == len(published.MEASUREMENTS.read_text(encoding="utf-8").splitlines()) - 1
    named = set(tomllib.loads((ASSETS / "sources.toml").read_text(encoding="utf-8")))
    assert {row.context.get("source") for row in judged.rows} == named == set(published.sources())


def test_the_15_triton_backwards_by_both_counts(judged: Audit) -> None:
    triton = {"implementation": "triton", "pass": "backward", "source": "attention-layers"}
    alone, layers = of(judged, Kind.TOO_FAST, **triton), of(judged, Kind.TOO_FAST_LAYER, **triton)
    assert (len(alone), len(layers), len(of(judged, Kind.BACKWARD_SHORTER, **triton))) == (6, 12, 15)
    assert all(row.judgement is Judgement.CONTRADICTORY for row, _ in [*alone, *layers])
    assert all(finding.judgement is Judgement.CONDITIONAL for _, finding in [*alone, *layers])
    assert all(finding.values["unless_causal"] for _, finding in alone)
    assert not any(finding.values["unless_causal"] for _, finding in layers)
    first = next(row for row, _ in alone if row.context.get("seq_len") == "4096")
    assert round(2.5 * 4 * 32 * 4096**2 * 128 / 0.9097e-3 / 1e12) == 755
    assert first.share == pytest.approx(755 / 312, rel=1e-3)
    [own, with_projections] = [sentence(one) for one in first.findings if one.kind is not Kind.BACKWARD_SHORTER]
    assumed = "the call was not causal and it computed in 16 bits, which is not stated"
    assert own.endswith(f"5.5e+11 FLOP / 312 TFLOP/s = 1.76 ms; this holds if {assumed}")
    assert "this holds if the width is heads x head_dim and" in with_projections
    shown = tables.layers(judged)[0].text()
    assert [line.split() for line in shown.splitlines() if line.startswith("triton") and " backward " in line] == [
        ["triton", "backward", "15", "6", "12", "0", "12", "15"]
    ]
    assumed_of = {row.context.get("implementation") for row, one in of(judged, Kind.TOO_FAST_LAYER) if one.assumed}
    assert assumed_of == {"triton"}


def test_no_published_figure_is_impossible_whatever_its_source_leaves_open(judged: Audit) -> None:
    assert judged.of(Judgement.IMPOSSIBLE) == []
    conditional = judged.of(Judgement.CONDITIONAL)
    assert [row.claims[0].text for row in conditional] == [
        *("18.2 GB", "12.4 GB", "16.8 GB", "5.8 samples/s", "2.4 samples/s")
    ]
    shown = " ".join(tables.overview(judged, tuple(published.sources()))[1].text().split())
    assert (
        "attention-layers: 6 rows are impossible if the call was not causal and it computed in 16 bits; 6 of" in shown
    )
    assert "speed-guide: 2 rows are impossible if it ran on one card and it computed in 16 bits" in shown


def test_the_times_of_the_versions_against_their_tflops(judged: Audit) -> None:
    flops = 4 * 8 * 32 * 4096**2 * 64
    findings = of(judged, Kind.TIME_AND_RATE, table="versions, H100")
    implied = {row.context.get("implementation"): float(one.values["implied_tflops"]) for row, one in findings}
    times = {"flash-attn-1": 28.4, "flash-attn-2": 12.5, "flash-attn-3 fp16": 7.2, "flash-attn-3 fp8": 4.8}
    assert implied == pytest.approx({name: flops / ms / 1e9 for name, ms in times.items()})
    assert (round(implied["flash-attn-2"]), round(implied["flash-attn-3 fp8"])) == (88, 229)


def test_four_peaks_are_implied_by_the_shares(judged: Audit) -> None:
    findings = [*of(judged, Kind.PEAKS_DIFFER), *of(judged, Kind.PEAK_UNKNOWN)]
    expected = [180 / 0.35, 420 / 0.55, 740 / 0.75, 1150 / 0.82]
    assert sorted(float(one.values["implied"]) for _, one in findings) == pytest.approx(expected)
    assert findings[0][1].values["all_implied"] == "514, 764, 987, 1,402"


def test_memory_against_its_formula(judged: Audit) -> None:
    findings = of(judged, Kind.ATTENTION_MATRIX)
    assert [row.context.get("seq_len") for row, _ in findings] == ["512", "2048", "8192", "32768"]
    assert findings[0][1].values["expected_bytes"] == 8 * 32 * 512**2 * 2 == 134_217_728
    assert findings[0][1].values["claimed"] == "8 MB"
    caches = [row for row in judged.rows if row.context.get("component") == "kv cache"]
    assert all(row.judgement is Judgement.FINE and row.binary for row in caches)  # 32 MB are 32 MiB


def test_the_memory_of_llama_2(judged: Audit) -> None:
    weights = of(judged, Kind.WEIGHTS, table="Llama-2-7B memory by context, float16, batch 1")
    assert "2.1 GB" in [finding.values["claimed"] for _, finding in weights]
    assert len(weights) == 7
    assert weights[0][1].values["weights_bytes"] == pytest.approx(13.5e9, rel=0.01)
    [(row, cache)] = of(judged, Kind.WEIGHTS_AND_CACHE)
    assert (row.context.get("seq_len"), cache.values["claimed"]) == ("32768", "14.2 GB")
    assert cache.values["cache_bytes"] == 2 * 32 * 4096 * 32768 * 2 == pytest.approx(17.2e9, rel=0.01)
    training = [finding.values["claimed"] for _, finding in of(judged, Kind.WEIGHTS_AND_GRADIENTS)]
    assert training == ["18.2 GB", "16.8 GB"]


def test_the_training_throughput(judged: Audit) -> None:
    over = {
        finding.values["claimed"]: float(finding.values["tflops"]) for _, finding in of(judged, Kind.TRAINING_OVER_PEAK)
    }
    assert over == pytest.approx({"5.8 samples/s": 480.2, "2.4 samples/s": 397.4}, rel=1e-3)
    [(row, near)] = of(judged, Kind.TRAINING_NEAR_PEAK)
    assert (row.claims[0].text, round(float(near.values["share"]), 2)) == ("3.1 samples/s", 0.82)


def test_the_training_step_whose_forward_is_its_total(judged: Audit) -> None:
    rows = {row.context.get("implementation"): finding.values for row, finding in of(judged, Kind.TOTAL_UNDER_SUM)}
    assert set(rows) == {"sm", "md"}
    assert all(values["ms"] == values["forward_ms"] for values in rows.values())
    assert len(of(judged, Kind.TWO_VALUES)) == 4  # forward alone, and forward in a training step


def test_figures_per_token(judged: Audit) -> None:
    growth = of(judged, Kind.PER_TOKEN_GROWTH, table='"time per token"')
    assert {row.context.get("implementation") for row, _ in growth} == {"standard"}
    assert growth[0][1].values["power"] == pytest.approx(math.log2(52.8 / 13.4))
    [(_, two)] = of(judged, Kind.GROWTHS_DIFFER)
    assert two.values["other_power"] == pytest.approx(math.log2(1.64 / 0.83))
    constant = of(judged, Kind.PER_TOKEN_TOTAL, implementation="flash-attn-2")
    assert [row.context.get("seq_len") for row, _ in constant] == ["512", "2048", "8192"]
    assert constant[0][1].values["each_bytes"] == pytest.approx(32e6 / (8 * 512))
    assert "which grows from 32 MB to 2048 MB" in sentence(constant[0][1])


def test_speedups_that_are_not_those_of_the_times(judged: Audit) -> None:
    ranges = {str(one.values["speedup"]): float(one.values["quotient"]) for _, one in of(judged, Kind.SPEEDUP_RANGE)}
    expected = {"1.76": 13.8854 / 9.0415, "3.77": 3.9803 / 1.2159, "3.37": 27.4436 / 6.2005, "41.99": 15.6006 / 0.9097}
    assert ranges == pytest.approx(expected)
    speedups = [row for row in judged.rows if row.context.get("over") and row.context.get("table") != "summary"]
    assert (len(speedups), {row.judgement for row in speedups}) == (508, {Judgement.FINE})  # within their rounding


def test_what_is_not_named_passes(judged: Audit) -> None:
    grid = [row for row in judged.rows if row.context.get("source") == "sdpa-grid"]
    assert {row.judgement for row in grid} == {Judgement.FINE}
    forwards = [row for row in judged.rows if row.context.get("layer") and row.context.get("pass") == "forward"]
    assert {row.judgement for row in forwards if row.context.get("table") != "summary"} == {Judgement.FINE}


def test_the_figure_draws_every_share_and_marks_what_is_wrong(judged: Audit, here: ours.Ours) -> None:
    drawing = figure.draw(judged, here)
    shares = [row for row in judged.rows if row.share is not None]
    assert len(drawing.rows) == 1 + len(shares)
    for judgement, count in ((Judgement.CONTRADICTORY, 21), (Judgement.CONDITIONAL, 2)):
        marked = [row for row in shares if row.judgement is judgement]
        assert drawing.svg.count(f"of the peak, {judgement}") == len(marked) == count
    assert "peak: 21 contradictory, 2 wrong under an assumption" in drawing.svg


def test_a_shape_of_theirs_that_was_measured_here_stands_beside_ours(
    here: ours.Ours, judged: Audit, tmp_path: Path
) -> None:
    shape = sets.by_name()["flux1-1024px-t512"].shape
    cells = f"s,t,H200,x,forward,1,{shape['seq_len_q']},24,24,128,False,0.5,ms"
    (tmp_path / "t.csv").write_text(
        f"source,table,gpu,implementation,pass,batch,seq_len,heads,kv_heads,head_dim,causal,value,unit\n{cells}\n",
        encoding="utf-8",
    )
    text = "\n".join(block.text() for block in tables.beside_ours(audit(tmp_path / "t.csv", ours=here), here))
    largest = max(one.share for one in here.measured if one.workload.name == "flux1-1024px-t512" and one.share)
    assert "1 of their figures is of a shape that was measured here" in text
    assert re.search(rf"52\.7% +{100 * largest:.1f}%", text)
    theirs = "speed-guide", "sdpa-"  # groups of shapes that are theirs
    others = tuple(one for one in here.measured if not one.workload.group.startswith(theirs))
    alone = "\n".join(block.text() for block in tables.beside_ours(judged, replace(here, measured=others)))
    assert "None of their shapes was measured here" in alone


def test_the_page_leaves_its_verdict_for_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    show_overview()
    verdict = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))["verdict"]
    assert re.fullmatch(r"1,865 rows: \d+ impossible, \d+ contradictory, .* fine\.", verdict)
    assert {path.name for path in tmp_path.iterdir()} == {"summary.json", "shares.svg", "shares.csv", "judgements.csv"}

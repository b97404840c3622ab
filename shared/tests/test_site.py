"""The index and the comparison as files: what they hold, what they leave out, and that no record is ever markup."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pytest
from sample_records import LATE
from sites import CPU, HOSTILE, LENGTHS, hostile, of_two_targets, record, several, write

from fluxbench.analysis.ranking import groups
from fluxbench.cli import main
from fluxbench.core.errors import SetupError
from fluxbench.records import fingerprint
from fluxbench.records.schema import Status
from fluxbench.report.headline import answer
from fluxbench.site import chart
from fluxbench.site.draw import draw

PUBLISHED = Path(__file__).resolve().parents[2] / "reports"
PAGES = ("index.html", "compare.html")


class Page(html.parser.HTMLParser):
    """A page as a browser parses it: its tags with their attributes, its text, and its scripts."""

    def __init__(self, file: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str | None, str]] = []
        self._parts: list[str] = []
        self._script: str | bool | None = False
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = dict(attrs).get("type") if tag == "script" else False

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script is False:
            self._parts.append(data)
        else:
            assert not isinstance(self._script, bool)
            self.scripts.append((self._script, data))

    @property
    def text(self) -> str:
        return " ".join(" ".join(self._parts).split())

    @property
    def links(self) -> list[str]:
        return [str(attributes["href"]) for tag, attributes in self.tags if tag == "a"]

    @property
    def data(self) -> Any:
        return json.loads(next(script for kind, script in self.scripts if kind == "application/json"))


def drawn(reports: Path) -> tuple[Page, Page]:
    """Draw the site, and return the index and the comparison."""
    draw(reports)
    return Page(reports / PAGES[0]), Page(reports / PAGES[1])


def test_a_card_holds_the_records_own_headline_and_what_they_were_measured_with(tmp_path: Path) -> None:
    index, _ = drawn(of_two_targets(tmp_path))
    assert all(said in index.text for said in answer(several(), "NVIDIA H200"))
    for said in (
        "580.10",
        "torch 2.9.0",
        "cuDNN 9.12",
        "2026-01-31",
        "6 PASSED, 2 CRASHED; ranked by the sustained regime",
    ):
        assert said in index.text
    assert [tag for tag, _ in index.tags].count("article") == 2


def test_a_card_shows_the_fastest_kernels_and_links_all_that_there_is(tmp_path: Path) -> None:
    file = write(tmp_path, "h200", *several())
    (tmp_path / "h200" / "flux.html").write_text("page")
    (file.parents[1] / "artifacts" / "correctness").mkdir(parents=True)
    (file.parents[1] / "artifacts" / "correctness" / "correctness.csv").write_text("a,b\n")
    index, _ = drawn(tmp_path)
    chart = next(
        attributes["aria-label"] for tag, attributes in index.tags if tag == "svg" and "aria-label" in attributes
    )
    assert chart == (
        "Sustained ms a call with 95% intervals: sage_int8_fp16_triton 0.800 ±0.004; torch_cudnn 1.000 ±0.005; "
        "torch_flash 2.000 ±0.010"
    )
    for path in ("h200/flux.html", "h200/flux/records/sdpa.jsonl", "h200/flux/artifacts/correctness/correctness.csv"):
        assert path in index.links
        assert (tmp_path / path).is_file()
    assert "compare.html#target=h200" in index.links


def test_the_comparison_holds_every_record_without_samples(tmp_path: Path) -> None:
    _, compare = drawn(of_two_targets(tmp_path))
    found = compare.data
    tables, rows = found["tables"], found["rows"]
    assert len(rows["variant"]) == 10
    at = [tables["variant"][place]["name"] for place in rows["variant"]].index("torch_cudnn")
    assert found["times"]["sustained"]["ms"][at] == 0.5
    assert found["times"]["burst"]["ms"][at] == 0.45
    assert tables["workload"][rows["workload"][at]]["name"] == LENGTHS[0]
    assert rows["peak"][at] == 989.5
    failed = rows["status"].index(tables["status"].index("CRASHED"))
    assert tables["reason"][rows["reason"][failed]] == "the worker ended on signal 11"
    assert found["times"]["sustained"]["ms"][failed] is None
    assert "samples_ms" not in (tmp_path / "compare.html").read_text(encoding="utf-8").partition('id="data"')[2]


def test_a_quantized_row_has_no_share_of_the_16_bit_peak_and_launching_is_told(tmp_path: Path) -> None:
    write(tmp_path, "h200", record(), record("sage", precision_class="quantized", marks=LATE))
    index, compare = drawn(tmp_path)
    assert compare.data["rows"]["peak"] == [989.5, None]
    assert compare.data["rows"]["late"] == [0, 1]
    assert "Of sage: launching is what was timed in one process or more, the host was hardly ahead" in index.text


def test_a_small_figure_ranks_no_time_of_launching_and_keeps_the_fastest_quantized_kernel() -> None:
    found = [record(f"k{number}", ms=1.0 + number / 10) for number in range(chart.KERNELS)]
    found += [record("torch_flash", ms=3.0), record("q_compile_ma", ms=2.0, precision_class="quantized")]
    found += [record("k0_copy", ms=0.5, marks=LATE), record("q", ms=0.5, precision_class="quantized", marks=LATE)]
    found += [record("late", ms=90.0, marks=LATE)]
    [group] = groups(found)
    names = [f"k{number}" for number in range(chart.KERNELS)]
    assert [each.variant for each in chart.fastest(group)] == [*names, "q_compile_ma", "torch_flash"]


def test_a_time_of_launching_comes_last_in_a_small_figure_and_sets_no_axis() -> None:
    [group] = groups([record(), record("early", ms=0.9, marks=LATE), record("late", ms=90.0, marks=LATE)])
    drawn = chart.times(group)
    assert [each.variant for each in chart.fastest(group)] == ["torch_flash", "early", "late"]
    assert "(logarithmic)" not in drawn
    assert 'late (h<tspan class="wide">: launching timed</tspan>)' in drawn
    assert (drawn.count('stroke-width="3"'), drawn.count("<path")) == (1, 2)


def test_what_decides_on_comparing_is_in_the_page(tmp_path: Path) -> None:
    _, compare = drawn(of_two_targets(tmp_path))
    source = compare.data["tables"]["source"][compare.data["rows"]["source"][0]]
    assert set(source["method"]) == set(fingerprint.METHOD)
    assert source["device"]["device"] in ("NVIDIA H200", "AMD EPYC")


def test_without_records_both_pages_say_so(tmp_path: Path) -> None:
    index, compare = drawn(tmp_path)
    assert "Nothing was measured yet: there are no records" in index.text
    assert "There is nothing to compare" in compare.text
    assert "Add your own machine" in index.text


def test_failures_alone_have_a_headline_and_no_empty_figure(tmp_path: Path) -> None:
    write(tmp_path, "h200", *(record(v, status=Status.TIMEOUT, reason="no answer within 600 s") for v in ("a", "b")))
    index, _ = drawn(tmp_path)
    assert "no kernel passed at flux1-1024px" in index.text
    assert "TIMEOUT (no answer within 600 s)" in index.text
    assert "svg" not in {tag for tag, _ in index.tags}


def test_records_of_another_schema_are_left_out_and_named(tmp_path: Path) -> None:
    file = write(tmp_path, "h200", *several())
    newer = json.dumps({**json.loads(file.read_text().splitlines()[0]), "schema": 7})
    file.write_text(file.read_text() + f"{newer}\n" * 5)
    site = draw(tmp_path)
    says = "h200/flux/records/sdpa.jsonl: line 9 is left out: schema of a record must be 1"
    assert says in " ".join(site.problems)
    assert site.problems[-1] == "h200/flux/records/sdpa.jsonl: 3 more lines are left out"
    assert says in Page(tmp_path / "index.html").text
    assert len(Page(tmp_path / "compare.html").data["rows"]["variant"]) == 8


@pytest.mark.parametrize(
    "times",
    [
        {"median_ms": 5e-324, "ci95_ms": (5e-324, 5e-324)},
        {"median_ms": 1e-320, "ci95_ms": (1e-320, 1e-320)},
        {"median_ms": 1e308, "ci95_ms": (1e308, 1e308)},
        {"ci95_ms": (1e-301, 1.5e308)},
        {"ratio": 5e-324, "ratio_ci95": (5e-324, 5e-324)},
    ],
)
def test_a_time_that_no_call_takes_costs_its_record_alone(tmp_path: Path, times: dict[str, Any]) -> None:
    bad = record("flex", LENGTHS[1])
    assert bad.timing
    bad = dataclasses.replace(bad, timing=dataclasses.replace(bad.timing, **times))
    write(tmp_path, "h200", record(), bad)
    (problem,) = draw(tmp_path).problems
    assert problem.startswith("h200/flux/records/sdpa.jsonl: line 2 is left out: sustained: ")
    assert "within 1e-06 to 1e+09 ms, got " in problem
    assert len(Page(tmp_path / "compare.html").data["rows"]["variant"]) == 1


def test_ids_of_cards_are_apart_from_the_pages_own(tmp_path: Path) -> None:
    write(tmp_path, "own", record())
    index, _ = drawn(tmp_path)
    ids = [attributes["id"] for _, attributes in index.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    assert "card-own" in ids


def test_a_folder_with_pages_alone_has_its_card(tmp_path: Path) -> None:
    (tmp_path / "h200").mkdir()
    (tmp_path / "h200" / "certificate.html").write_text("page")
    (tmp_path / "empty").mkdir()
    index, compare = drawn(tmp_path)
    assert "h200/certificate.html" in index.links
    assert "empty" not in index.text
    assert "There is nothing to compare" in compare.text


def test_many_targets_and_shapes_stay_readable(tmp_path: Path) -> None:
    many = [record(f"v{n}", LENGTHS[0], status=Status.ERROR, reason=f"reason {n} " * 9) for n in range(300)]
    write(tmp_path, "h200", *many, *(record("torch_flash", name) for name in ("wan-480p", "flux2-512px-t512")))
    index, _ = drawn(tmp_path)
    assert (tmp_path / "index.html").stat().st_size < 60_000
    assert "More shapes, in the comparison: 1." in index.text


@pytest.mark.parametrize("name", PAGES)
def test_nothing_of_a_hostile_record_is_markup(tmp_path: Path, name: str) -> None:
    tame, wild = tmp_path / "tame", tmp_path / "wild"
    write(tame, "x", record("a"), record("b", status=Status.ERROR, reason="c"))
    file = tame / "x" / "flux" / "records" / "sdpa.jsonl"
    file.write_text(file.read_text() + "not JSON\nnot JSON either\n")
    draw(tame)
    draw(hostile(wild))
    kinds = [
        [(tag, sorted(attributes)) for tag, attributes in Page(folder / name).tags if tag not in ("line", "text")]
        for folder in (tame, wild)
    ]
    assert kinds[0] == kinds[1]


def test_a_hostile_text_is_shown_as_it_is(tmp_path: Path) -> None:
    index, compare = drawn(hostile(tmp_path))
    assert " ".join(HOSTILE.split()) in index.text
    assert compare.data["tables"]["variant"][0]["name"] == HOSTILE
    assert not re.search("[<>&\u2028\u2029]", next(script for kind, script in compare.scripts if kind))


def test_a_text_that_is_no_unicode_costs_nothing_but_itself(tmp_path: Path) -> None:
    file = write(tmp_path, "h200", *several())
    file.write_text(file.read_text().replace("torch_cudnn", "torch\\ud800cudnn"))
    index, compare = drawn(tmp_path)
    assert "torch?cudnn" in index.text
    assert "torch?cudnn" in {variant["name"] for variant in compare.data["tables"]["variant"]}


@pytest.mark.parametrize("name", PAGES)
def test_the_policy_allows_the_pages_own_scripts_and_no_other(tmp_path: Path, name: str) -> None:
    pages = dict(zip(PAGES, drawn(of_two_targets(tmp_path)), strict=True))
    policy = next(a["content"] for tag, a in pages[name].tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    own = {
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for kind, script in pages[name].scripts
        if kind is None
    }
    assert rules["default-src"] == "'none'"
    assert set(rules["script-src"].split()) == own


@pytest.mark.parametrize("name", PAGES)
def test_a_page_names_no_other_host(tmp_path: Path, name: str) -> None:
    draw(of_two_targets(tmp_path))
    page = (tmp_path / name).read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert "//" not in re.sub(r"(?m)(^|\s)//.*$", "", page)


def test_both_pages_are_written_or_neither(tmp_path: Path) -> None:
    of_two_targets(tmp_path)
    draw(tmp_path)
    before = (tmp_path / "index.html").read_bytes()
    write(tmp_path, "h200", record())
    (tmp_path / "compare.html").unlink()
    (tmp_path / "compare.html").mkdir()
    with pytest.raises(IsADirectoryError):
        draw(tmp_path)
    assert (tmp_path / "index.html").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"cpu", "h200", *PAGES}


def test_the_site_is_a_function_of_the_records(tmp_path: Path) -> None:
    first = [page.read_bytes() for page in map(of_two_targets(tmp_path / "a").joinpath, PAGES) if draw(tmp_path / "a")]
    draw(of_two_targets(tmp_path / "b"))
    assert first == [(tmp_path / "b" / name).read_bytes() for name in PAGES]


def test_what_is_published_now_stays_small(tmp_path: Path) -> None:
    for target in ("cpu", "h200"):
        (tmp_path / target).symlink_to(PUBLISHED / target)
    assert draw(tmp_path).problems == []
    assert (tmp_path / "index.html").stat().st_size < 200_000
    assert (tmp_path / "compare.html").stat().st_size < 500_000


def test_gpus_come_before_cpus(tmp_path: Path) -> None:
    assert [target.name for target in draw(of_two_targets(tmp_path)).targets] == ["h200", "cpu"]


def test_a_group_finds_its_records_by_workload() -> None:
    (group,) = groups(several())
    assert {record.variant for record in group.at[group.longest].values()} == set(group.variants)


def test_the_command_draws_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "cpu", record(said=CPU))
    assert main(["site", "--reports", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"The site is {tmp_path / 'index.html'}\n"
    (tmp_path / "cpu" / "flux" / "records" / "sdpa.jsonl").write_text("{}\n")
    assert main(["site", "--reports", str(tmp_path)]) == 1
    assert "line 1 is left out" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="the reports must be a folder"):
        draw(tmp_path / "nowhere")

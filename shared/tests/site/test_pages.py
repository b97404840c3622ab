"""The index and the comparison as files: what they hold, what they leave out, and that no record is ever markup."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html.parser
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from sample_records import LAUNCH_BOUND
from sites import HOSTILE, LENGTHS, believe, hostile, of_two_targets, record, several, write

from fluxbench.cli import main
from fluxbench.core.files import write_gzip
from fluxbench.operations import sets
from fluxbench.records.schema import SUSTAINED
from fluxbench.records.status import Status
from fluxbench.site.draw import draw

PUBLISHED = Path(__file__).resolve().parents[3] / "reports"
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

    def row(self, variant: str, workload: str = LENGTHS[1]) -> dict[str, Any]:
        """Return a row of the comparison with the values of its tables, and its times by regime."""
        tables, rows = self.data["tables"], self.data["rows"]
        for index in range(len(rows["variant"])):
            values = {
                name: tables[name][column[index]] if name in tables and column[index] is not None else column[index]
                for name, column in rows.items()
            }
            if (values["variant"]["name"], values["workload"]["name"]) == (variant, workload):
                times = self.data["times"].items()
                return values | {regime: {key: each[index] for key, each in of.items()} for regime, of in times}
        raise AssertionError(f"no row of {variant} at {workload}")


def drawn(reports: Path) -> tuple[Page, Page]:
    """Draw the site, and return the index and the comparison."""
    draw(reports, believe)
    return Page(reports / PAGES[0]), Page(reports / PAGES[1])


def test_a_card_holds_the_verdict_and_what_was_measured_with_what(tmp_path: Path) -> None:
    index, _ = drawn(of_two_targets(tmp_path))
    for words in (
        "device NVIDIA H200 driver 580.10 software torch 2.9.0, cuDNN 9.12 measured 2026-01-31",
        "records 6 PASSED, 2 CRASHED method version ",
        "; no certificate of this device says how reliable that is",
        "cuDNN (SDPA) is the faster of 2 exact kernels measured here: 2.0 times as fast as FlashAttention-2",
        "SageAttention int8 (Triton) is 2.5 times as fast, with 0.3% relative error.",
        "Speed over FlashAttention-2 (SDPA) under sustained load, 95% intervals: NVIDIA H200, 4,608 tokens",
    ):
        assert words in index.text
    assert [tag for tag, _ in index.tags].count("article") == 2


def test_a_card_names_a_library_that_the_verdict_is_without(tmp_path: Path) -> None:
    missing = record("xformers", status=Status.UNAVAILABLE, reason="xFormers was built for another torch; install one")
    write(tmp_path, "h200", *several(), missing)
    index, _ = drawn(tmp_path)
    assert "relative error. xFormers has no time here: xFormers was built for another torch." in index.text


def test_a_card_says_what_there_was_no_time_to_measure(tmp_path: Path) -> None:
    late = record("te_flash", status=Status.TIMEOUT, reason="the build's time was up before it was measured")
    write(tmp_path, "h200", *several(), late)
    index, _ = drawn(tmp_path)
    assert "There was no time to measure 1 of 9 rows: Transformer Engine (FA2) at flux1-1024px." in index.text


def test_a_card_names_the_groups_of_a_notebook_with_what_they_time_and_shows_the_largest_head_dim(
    tmp_path: Path,
) -> None:
    groups = [f"causal-bf16-d{head_dim}-65536{which}" for head_dim in (16, 128) for which in ("", "-backward")]
    records = [record(name, workload) for workload in groups for name in ("torch_flash", "torch_cudnn")]
    write(tmp_path, "h200", *records, notebook="scaling")
    index, _ = drawn(tmp_path)
    assert re.findall(r"For (causal[^:]+):", index.text) == ["causal-bf16-d128", "causal-bf16-d128-backward (backward)"]


def test_a_card_says_of_shared_steps_how_much_faster_they_are_and_not_which_kernel(tmp_path: Path) -> None:
    found = {way: sets.by_name()[f"flux1-1024px-{way}-of-2"] for way in ("alone", "ulysses")}
    times = (
        record("torch_cudnn", found["alone"], 180.0, ci=0.001),
        record("torch_cudnn", found["ulysses"], 100.0, ci=0.001),
    )
    write(tmp_path, "h200-x2", *times)
    index, _ = drawn(tmp_path)
    assert "takes 100 ms on 2 by Ulysses (cuDNN (SDPA)), 1.80" in index.text
    assert "exact kernel" not in index.text


def test_the_comparison_holds_every_record_without_samples(tmp_path: Path) -> None:
    file = write(tmp_path, "h200", *several(), record("capped", converged={SUSTAINED: False}))
    write_gzip(file.with_name("more.jsonl.gz"), record("flash_attn_4", energy_mj=123.4567891).to_json() + "\n")
    _, compare = drawn(tmp_path)
    assert len(compare.data["rows"]["variant"]) == 10
    row = compare.row("torch_cudnn", LENGTHS[0])
    assert row["sustained"] == {
        **{"ms": 0.5, "low": 0.4975, "high": 0.5025, "ratio": 0.5, "ratio_low": 0.4975, "ratio_high": 0.5025},
        **{"reference": row["sustained"]["reference"], "capped": 0, "replayed": 0},
    }
    assert (row["burst"]["ms"], row["burst"]["ratio_high"]) == (0.45, 0.5005)
    assert compare.data["tables"]["variant"][row["burst"]["reference"]]["name"] == "torch_flash"
    assert (row["peak"], row["quantized"], row["rel_l2"], row["energy"]) == (989.5, 0, 0.003, 250)
    assert compare.row("capped")["sustained"]["capped"] == 1
    assert compare.row("flash_attn_4")["energy"] == 123.457
    failed = compare.row("flex")
    assert (failed["status"], failed["reason"]) == ("CRASHED", "the worker ended on signal 11")
    assert set(failed["sustained"].values()) == {None}
    assert "samples_ms" not in (tmp_path / "compare.html").read_text(encoding="utf-8").partition('id="data"')[2]


def test_a_workload_of_another_operation_says_so_with_its_work(tmp_path: Path) -> None:
    made = record(workload="llama3-8b-decode-512")
    write(tmp_path, "h200", made)
    _, compare = drawn(tmp_path)
    assert compare.row("torch_flash", made.workload.name)["workload"] == {
        "name": "llama3-8b-decode-512",
        "shape": "one query on 512 keys, 32 heads of 128 on 8 of keys and values, bfloat16, decoding",
        "flops": made.workload.cost.flops,
        "bytes": made.workload.cost.min_bytes,
    }


def test_a_quantized_row_has_no_share_of_the_16_bit_peak_and_launch_bound_rows_are_known(tmp_path: Path) -> None:
    of_two_gpus = record(workload=dataclasses.replace(record().workload, name="sharded", group="sharded", ranks=2))
    quantized = record("sage", precision_class="quantized", flags=[LAUNCH_BOUND])
    write(tmp_path, "h200", record(), quantized, of_two_gpus)
    _, compare = drawn(tmp_path)
    assert compare.data["rows"]["peak"] == [989.5, None, 1979.0]
    assert (compare.data["rows"]["quantized"], compare.data["rows"]["launch_bound"]) == ([0, 1, 0], [0, 1, 0])


def test_without_records_both_pages_say_so_and_a_page_alone_has_its_card(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    index, compare = drawn(tmp_path)
    assert "Nothing was measured yet: there are no records" in index.text
    assert "There is nothing to compare" in compare.text
    assert "empty" not in index.text
    (tmp_path / "h200").mkdir()
    (tmp_path / "h200" / "certificate.html").write_text("page")
    assert "h200/certificate.html" in drawn(tmp_path)[0].links
    summary = tmp_path / "h200" / "certificate" / "summary.json"
    summary.parent.mkdir()
    for text, shown in (('{"verdict": "It is <good>."}', True), ('{"verdict": ', False), ('{"verdict": 5}', False)):
        summary.write_text(text)
        assert ("It is <good>." in drawn(tmp_path)[0].text) == shown


def test_what_is_published_is_drawn_without_problems(tmp_path: Path) -> None:
    for target in ("cpu", "h200"):
        (tmp_path / target).symlink_to(PUBLISHED / target)
    assert draw(tmp_path).problems == []


def test_records_of_another_schema_are_left_out_and_named(tmp_path: Path) -> None:
    file = write(tmp_path, "h200", *several())
    newer = json.dumps({**json.loads(file.read_text().splitlines()[0]), "schema": 7})
    file.write_text(file.read_text() + f"{newer}\n" * 5)
    site = draw(tmp_path, believe)
    words = "h200/flux/records/sdpa.jsonl: line 9 is left out: schema of a record must be 2, got 7"
    assert words in " ".join(site.problems)
    assert site.problems[-1] == "h200/flux/records/sdpa.jsonl: 3 more faults"
    assert words in Page(tmp_path / "index.html").text
    assert len(Page(tmp_path / "compare.html").data["rows"]["variant"]) == 8


def test_a_hostile_text_is_shown_as_it_is_and_what_is_no_unicode_costs_nothing_else(tmp_path: Path) -> None:
    index, compare = drawn(hostile(tmp_path / "hostile"))
    assert " ".join(HOSTILE.split()) in index.text
    assert compare.data["tables"]["variant"][0]["name"] == HOSTILE
    assert not re.search("[<>&\u2028\u2029]", next(script for kind, script in compare.scripts if kind))
    write(tmp_path / "bytes", "h200\udc80", record())
    index, compare = drawn(tmp_path / "bytes")
    assert "h200%80/flux/records/sdpa.jsonl" in index.links
    assert compare.data["tables"]["target"][0]["name"] == "h200?"


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
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert set(rules["script-src"].split()) == own
    page = (tmp_path / name).read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert "//" not in re.sub(r"(?m)(^|\s)//.*$", "", page)  # no other host is named


def test_both_pages_are_written_or_neither(tmp_path: Path) -> None:
    draw(of_two_targets(tmp_path), believe)
    before = (tmp_path / "index.html").read_bytes()
    write(tmp_path, "h200", record())
    (tmp_path / "compare.html").unlink()
    (tmp_path / "compare.html").mkdir()
    with pytest.raises(IsADirectoryError):
        draw(tmp_path, believe)
    assert (tmp_path / "index.html").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"cpu", "h200", *PAGES}


def test_the_site_is_a_function_of_the_records_and_gpus_come_before_cpus(tmp_path: Path) -> None:
    pages = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        assert [target.name for target in draw(of_two_targets(folder), believe).targets] == ["h200", "cpu"]
        pages.append([(folder / name).read_bytes() for name in PAGES])
    assert pages[0] == pages[1]


def test_the_command_draws_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(PUBLISHED / "cpu" / "flux" / "records", tmp_path / "cpu" / "flux" / "records")
    assert main(["site", "--reports", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"The site is {tmp_path / 'index.html'}\n"
    (tmp_path / "cpu" / "flux" / "records" / "sdpa.jsonl").write_text("{}\n")
    assert main(["site", "--reports", str(tmp_path)]) == 1
    assert "line 1 is left out" in capsys.readouterr().err
    assert main(["site", "--reports", str(tmp_path / "nowhere")]) == 2
    assert "the reports must be a folder" in capsys.readouterr().err


def test_many_variants_take_seconds(tmp_path: Path) -> None:
    write(tmp_path, "h200", *(record(f"v{number}", ms=1 + number / 1e4) for number in range(4000)))
    began = time.process_time()
    assert len(draw(tmp_path).problems) == 3  # the first ones, and how many more there are
    assert time.process_time() - began < 10

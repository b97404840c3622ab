"""The command line: exit codes, sentences, and what it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from notebooks import Machine, listing
from sample_records import record

from fluxbench import cli
from fluxbench.core.files import write_text

H200 = {"device": "NVIDIA H200", "device_kind": "cuda", "driver": "580.65.06"}


def fill(folder: str, ms: float, method_version: int = 6, **facts: str) -> None:
    """Write a published folder with one record."""
    path = Path(folder, "flux", "records")
    path.mkdir(parents=True)
    made = record(
        "flex", sustained_ms=ms, method_version=method_version, fingerprint={**H200, **facts},
        measured_at=f"2026-11-2{len(folder) % 10}T00:00:00+00:00",
    )  # fmt: skip
    write_text(path / "flex.jsonl", made.to_json() + "\n")


def test_a_build_names_the_page_and_ends_with_1_and_each_problem_where_there_are_some(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.write("id=a")
    assert machine.command("build") == 0
    out, err = capsys.readouterr()
    assert out == f"\nThe page is {machine.output / 'made_up.html'}\n"
    assert err.splitlines()[0] == "cell a will run: it was never run here"
    machine.write("id=a: raise SystemExit(3)", "id=b needs=a")
    assert machine.command("build") == 1
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "fluxbench: cell a failed: it ended with exit code 3",
        "fluxbench: cell b was not run: it needs a, which failed",
    ]


@pytest.mark.parametrize("command", [["build"], ["publish"], ["status"], ["status", "--json"], ["rerun", "first"]])
def test_a_command_that_cannot_begin_ends_with_2_and_one_sentence_and_changes_nothing(
    machine: Machine, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    before = listing(machine.folder)
    name, *rest = command
    assert cli.main([name, str(machine.folder / "missing.md"), *rest]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("fluxbench: a notebook must be a readable Markdown file, got ")
    assert listing(machine.folder) == before


@pytest.mark.parametrize("arguments", [[], ["burn"], ["build"], ["rerun", "notebook.md"], ["build", "a.md", "--fast"]])
def test_wrong_arguments_end_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "usage: fluxbench" in capsys.readouterr().err


@pytest.mark.parametrize("tool", ["uvnote", "rich"])
def test_a_tool_that_is_not_installed_ends_the_command_with_2_and_says_how_to_get_it(
    machine: Machine, tool: str
) -> None:
    code = (
        f"import sys; sys.modules[{tool!r}] = None; sys.stderr.isatty = lambda: True; from fluxbench import cli; "
        f"sys.exit(cli.main(['build', {str(machine.notebook)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == f"fluxbench: {tool} must be installed beside fluxbench; run `make setup`\n"
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("cli", "torch triton pandas matplotlib numpy uvnote rich pynvml msgspec jinja2"),
        ("notebook.status", "torch triton pandas matplotlib numpy markdown rich"),
        ("notebook.build", "torch triton pandas matplotlib numpy markdown rich"),
        ("notebook.doctor.examination", "torch triton pandas matplotlib numpy uvnote"),
    ],
)
def test_a_module_loads_no_heavy_library_before_it_needs_it(module: str, absent: str) -> None:
    code = f"import sys, fluxbench.{module}; print(*({set(absent.split())} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# fluxbench diff


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_two_folders_are_compared_and_what_differs_is_printed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill("before", 1.0)
    fill("afterwards", 2.0, driver="580.159.04")
    assert cli.main(["diff", "before", "afterwards"]) == 0
    out = capsys.readouterr().out
    assert "driver 580.65.06 -> 580.159.04" in out
    assert "slower" in out
    assert cli.main(["diff", "before", "afterwards", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["change"]["verdict"] == "slower"


DIFFERENT = "Nothing was compared: they were measured on different devices: NVIDIA H200 -> NVIDIA A100"
NO_METHOD = "Nothing was compared: they were not measured in the same way: method version 6 "


@pytest.mark.parametrize(
    ("changes", "after", "reason"),
    [
        ({"device": "NVIDIA A100"}, "afterwards", DIFFERENT),
        ({"method_version": 5}, "afterwards", NO_METHOD),
        ({}, "nowhere", "a report must be a folder"),
        ({}, "before@x", "the revision of 'before' must be in its history, which is empty, or known to git, got 'x'"),
    ],
)
def test_what_is_not_comparable_or_no_report_is_refused_with_the_reason(
    here: Path, changes: dict[str, Any], after: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill("before", 1.0)
    fill("afterwards", 2.0, **changes)
    assert cli.main(["diff", "before", after]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"fluxbench: {reason}")


# fluxbench audit


def test_an_impossible_time_ends_the_audit_with_1_and_a_file_that_is_no_table_with_2(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = "gpu,batch,seq_len,heads,head_dim,dtype,median_ms\n"
    write_text(here / "possible.csv", f"{head}NVIDIA H200,1,4096,24,128,bfloat16,2.0\n")
    write_text(here / "impossible.csv", f"{head}NVIDIA H200,1,4096,24,128,bfloat16,0.001\n")
    (here / "picture.csv").write_bytes(b"\x89PNG\r\n\xff\xfe")
    assert cli.main(["audit", "possible.csv"]) == 0
    assert capsys.readouterr().out == "possible.csv: rows checked: 1; impossible: 0; not checked: 0\n"
    assert cli.main(["audit", "impossible.csv", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["impossible"][0]["line"] == 2
    for name in ("picture.csv", "missing.csv"):
        assert cli.main(["audit", name]) == 2
        assert capsys.readouterr().err.startswith(f"fluxbench: {name} must be a CSV: ")

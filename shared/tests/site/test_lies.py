"""Published records, edited: each lie is refused by `add` and by `site`, and `diff` verifies likewise."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from lies import (
    BESIDE_OTHERS,
    CELLS,
    LIES,
    Lie,
    edited,
    read,
)

from fluxbench.analysis.verification.verify import verify
from fluxbench.cli import main
from fluxbench.notebook.revisions import measured
from fluxbench.records import files
from fluxbench.site.collect import collect
from fluxbench.site.intake import add

REPORTS = Path(__file__).resolve().parents[3] / "reports"


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """The records of some cells of the H200's page, in a target's folder."""
    home = tmp_path / "reports" / "h200" / "flux" / "records"
    home.mkdir(parents=True)
    for path in (REPORTS / "h200" / "flux" / "records").iterdir():
        if path.name.partition(".")[0] in (*CELLS, "device", "rates"):
            shutil.copyfile(path, home / path.name)
    return home


def problems_of(home: Path, tmp_path: Path) -> tuple[list[str], list[str]]:
    """Return the problems that `add` and `site` find."""
    intake = add(home, tmp_path / "theirs")
    assert bool(intake.problems) == (intake.folder is None)
    return list(intake.problems), [one for target in collect(tmp_path / "reports", verify) for one in target.problems]


def leave_only_what_lies(home: Path, lie: Lie) -> None:
    """Tell a lie, and remove the cells whose files it leaves as they are, which take long to verify."""
    by_cell = {cell: [*home.glob(f"{cell}.*")] for cell in CELLS}
    before = {path: path.read_bytes() for paths in by_cell.values() for path in paths}
    lie(home)
    as_they_are = {path for path, content in before.items() if path.exists() and path.read_bytes() == content}
    others = [paths for paths in by_cell.values() if as_they_are.issuperset(paths)]
    for path in (path for paths in others if len(others) < len(CELLS) for path in paths):
        path.unlink()


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refused_with_its_sentence(sent: Path, tmp_path: Path, name: str) -> None:
    lie, words = LIES[name]
    if name in BESIDE_OTHERS:
        lie(sent)
    else:
        leave_only_what_lies(sent, lie)
    of_add, of_site = problems_of(sent, tmp_path)
    assert any(re.search(words, problem) for problem in of_add), of_add[:3]
    assert of_site


@pytest.mark.parametrize("cells", [CELLS, *((cell,) for cell in CELLS)], ids="-".join)
def test_published_cells_are_believed(sent: Path, tmp_path: Path, cells: tuple[str, ...]) -> None:
    for path in (path for cell in CELLS if cell not in cells for path in sent.glob(f"{cell}.*")):
        path.unlink()
    assert problems_of(sent, tmp_path) == ([], [])


def test_a_lying_record_is_not_drawn_and_the_others_are(sent: Path, tmp_path: Path) -> None:
    LIES["a tenth of its time"][0](sent)
    [target] = collect(tmp_path / "reports", verify)
    left_out = {(r["variant"], r["workload"]["name"]) for r in read(sent / "triton.jsonl")[:1]}
    everything = {(r.variant, r.workload.name) for path in files.paths(sent) for r in files.read(path)}
    assert {(r.variant, r.workload.name) for r in target.records} == everything - left_out
    assert "triton.jsonl: triton_flash at flux1-1024px-t128 is left out: " in target.problems[0]


@pytest.mark.parametrize(
    "history", sorted(REPORTS.glob("*/flux/history/*")), ids=lambda path: "-".join(path.parts[-4::3])
)
def test_the_history_is_believed(history: Path) -> None:
    assert measured(str(history), history).records


def test_the_commands_refuse_a_lie(sent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    LIES["budget raised"][0](sent)
    assert main(["add", str(sent), "--reports", str(tmp_path / "theirs")]) == 2
    assert "triton, triton_flash at flux1-1024px-t128: the budget of an exact" in capsys.readouterr().err
    assert main(["site", "--reports", str(tmp_path / "reports")]) == 1
    assert "is left out: the budget of an exact kernel must be at most" in capsys.readouterr().err
    assert main(["diff", str(sent), str(sent)]) == 2
    assert "must follow from their samples: triton, triton_flash at flux1" in capsys.readouterr().err


def test_rounded_kernels_count_as_exact_no_more(tmp_path: Path) -> None:
    """Those of the history do, which is believed: there was no such class."""
    backward = REPORTS / "h200" / "backward" / "records"
    sent = tmp_path / "reports" / "h200" / "backward" / "records"
    sent.mkdir(parents=True)
    for path in (backward / "device.json", *backward.glob("te_unfused.*")):
        shutil.copyfile(path, sent / path.name)
    assert problems_of(sent, tmp_path) == ([], [])
    edited("te_unfused.jsonl", lambda records: [one.update(precision_class="exact") for one in records])(sent)
    assert "class must be rounded, as the variant declares, got exact" in str(add(sent, tmp_path / "again").problems)

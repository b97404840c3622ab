"""The audit as a command and of a frame, and the tables that it cannot read."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pandas
import pytest
from audits import CONDITIONAL, ROW, audited, judgements
from fakes import REPOSITORY

from fluxbench import audit as of_frames
from fluxbench import cli
from fluxbench.analysis.audit.columns import ALIASES, CAUSAL, COMPONENTS, LAYERS, PASSES, UNITS, VALUES
from fluxbench.core.errors import SetupError


def test_a_frame_is_judged_as_its_csv(tmp_path: Path) -> None:
    table = audited(tmp_path, f"{ROW},0.1,ms", f"{ROW},0.4,ms", ",x,forward,,1,4608,24,,128,0.4,ms")
    frame = pandas.read_csv(tmp_path / "times.csv")
    of_frame = of_frames.check(frame)
    assert judgements(of_frame) == judgements(table) == [CONDITIONAL, "fine", "not decidable"]
    with pytest.raises(SetupError, match="got no unit"):
        of_frames.check(frame.drop(columns="unit"))


def test_the_command_exits_1_where_a_figure_cannot_be_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "times.csv")
    audited(tmp_path, f"{ROW},0.4,ms")
    assert cli.main(["audit", path]) == 0
    assert "1 row: 0 impossible" in capsys.readouterr().out
    audited(tmp_path, f"{ROW},0.4,ms", f"{ROW},0.20,ms".replace("H200", ""))
    assert cli.main(["audit", path, "--json", "--gpu", "H200"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert (shown["counts"][CONDITIONAL], [row["line"] for row in shown["found"]]) == (1, [3])
    assert shown["found"][0]["findings"][0]["assumed"] == "the call was not causal"
    assert cli.main(["audit", path, "--gpu", "H200", "--causal"]) == 0
    audited(tmp_path, ",x,forward,,1,4608,24,,128,0.4,ms")
    assert cli.main(["audit", path]) == 1  # nothing could be judged
    assert cli.main(["audit", path, "--gpu", "RX480", "--peak", "2000"]) == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "times.csv must exist"),
        (b"\xff\xfe\x00", "times.csv must be a CSV: "),
        (b"", "its first line must name the columns, got none"),
        (b"H200,x,forward,bfloat16,1,4608,24,24,128,0.4,ms\n", "its first line must name the columns, got H200,x"),
        (b"gpu,speed\nH200,3\n", "a column must give value with unit, or be one of median_ms"),
        (b"gpu,value\nH200,3\n", "a table with value or unit must have both, got no unit"),
        (b"gpu,batch,bs,ms\nH200,1,2,3\n", "one column must give a row's batch, got 'batch' and 'bs' in line 2"),
        (b"gpu,value,unit,unit\nH200,1,ms,s\n", "one column must give unit, got 'unit' and 'unit'"),
        (b"gpu,ms\nH200,=A1*2\n", "line 2 must hold values, got the formula '=A1*2'; export the values"),
        (b"gpu,median_ms\n" + b"a" * 200_000, "must be a CSV: field larger than field limit"),
        (b"gpu,ms\n" + b"H200,3\n" * 1_000_000, "a table must have at most 100,000 rows, got more; split it"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_sentence_and_nothing_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "times.csv").write_bytes(content)
    assert cli.main(["audit", str(tmp_path / "times.csv")]) == 2
    captured = capsys.readouterr()
    assert (says in captured.err, captured.out, captured.err.count("\n")) == (True, "", 1)


def test_the_documentation_names_every_column_unit_and_word() -> None:
    text = (REPOSITORY / "docs/audit.md").read_text(encoding="utf-8")
    names = {*ALIASES, *(alias for aliases in ALIASES.values() for alias in aliases), *VALUES, *CAUSAL}
    names |= {*UNITS, *PASSES, *LAYERS, *COMPONENTS} - {"μs", "forward_backward", "fwd_bwd"}  # other spellings
    assert sorted(name for name in names if f"`{name}`" not in text) == []
    documented = {alias.strip(" `") for line in text.splitlines() if line.startswith("| `") and line.count("|") == 5
                  for alias in re.split("[,;]", line.split("|")[2])}  # fmt: skip
    assert documented - {""} <= names


def test_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "times.csv")
    assert cli.main(["audit", str(tmp_path / "times.csv")]) == 2
    assert "got a FIFO where a regular file must be" in capsys.readouterr().err

"""What `fluxbench doctor` prints of all notebooks and of one, on made-up machines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from doctors import H200, Machine, made_up
from fakes import REPOSITORY

from fluxbench import cli
from fluxbench.core.settings import Settings


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return made_up(tmp_path, monkeypatch)


def test_without_a_notebook_the_text_is_short_and_says_first_what_is_lacking_then_what_will_run(
    machine: Machine,
) -> None:
    machine.installs()
    machine.rewrite('"triton_flash"', '"triton_flash_tf32"', name="other.md")
    machine.monkeypatch.setenv("FLUXBENCH_ALL", "1")
    lines = machine.examine().text().splitlines()
    assert lines[0] == "Device: target cpu, configured in environment/targets.toml"
    assert "settings          FLUXBENCH_ALL=1" in "\n".join(lines)
    after = lines[lines.index("Nothing is lacking.") + 1 :]
    assert after[:4] == [
        "",
        "What will run of the variants that each notebook names",
        "  flux.md   5 of 55: torch_flash, torch_flash_copy, torch_math, torch_native, flex",
        "  other.md  5 of 55: torch_flash, torch_flash_copy, torch_math, torch_native, flex",
    ]
    assert len(lines) < 30
    machine.has_free(0.05)
    lines = machine.examine().text().splitlines()
    assert lines.index("What is lacking:") < lines.index("What will run of the variants that each notebook names")
    machine.is_a(H200)
    assert "  flux.md   54 of 55, without torch_math_compile_ma" in machine.examine().text().splitlines()
    machine.lacks_program("gcc")
    assert re.search(r"flux.md .* without (\w+, ){5}\w+ and \d+ more", " ".join(machine.examine().text().split()))


def test_what_runs_in_one_notebook_and_not_in_another_is_said_of_each(machine: Machine) -> None:
    machine.notebook.with_name("backward.md").symlink_to(REPOSITORY / "notebooks" / "backward.md")
    lines = machine.examine().text().splitlines()
    assert "  backward.md  3 of 34: torch_flash, torch_math, torch_native" in lines
    assert "  flux.md      5 of 55: torch_flash, torch_flash_copy, torch_math, torch_native, flex" in lines
    assert [line.split(maxsplit=1)[1] for line in lines if "no backward" in line] == [
        "FlexAttention has no backward pass on a CPU"
    ]


def test_of_one_notebook_everything_is_listed_and_nothing_of_others(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.monkeypatch.setattr(Settings, "load", lambda: machine.settings)
    other = machine.notebook.with_name("other.md")
    other.symlink_to(REPOSITORY / "notebooks" / "scaling.md")
    assert cli.main(["doctor", str(machine.notebook)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "torch_flash, torch_flash_copy, torch_math, torch_native, flex: will run" in text
    assert "Workloads flux1-256px-t128, " in text
    assert "flux1-256px-t384, flux1-256px-t512 Measured" in text
    assert "pinned: torch==2.13.0 numpy==2.4.6 by flux.md/sdpa" in text
    assert all(name in text for name in ("uv's cache ", "C++ compiler "))
    assert "other.md" not in text
    assert cli.main(["doctor", str(other), "--json"]) == 0
    assert {cell.partition("/")[0] for cell in json.loads(capsys.readouterr().out)["cells"]} == {"other.md"}
    assert cli.main(["doctor", str(other.with_name("none.md"))]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "What is lacking: - none.md cannot be built: there is no notebook " in text
    other.with_name("prose.md").write_text("```python id=a\n1\n```\n", encoding="utf-8")
    assert cli.main(["doctor", str(other.with_name("prose.md"))]) == 0
    assert "Nothing is lacking. Variants none Workloads none " in " ".join(capsys.readouterr().out.split())

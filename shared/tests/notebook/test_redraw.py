"""Drawing a published page again: from its records, with the notebook's present showing cells, on any machine."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import pytest
from certificates import as_json, made_up
from notebooks import MEASURING, NEWER, NOTEBOOK, Machine, tree
from sample_records import record

from fluxbench import cli
from fluxbench.core.errors import SetupError
from fluxbench.device import detect
from fluxbench.notebook.publish import publish
from fluxbench.notebook.redraw import redraw

HARDWARE = """
```python id=hardware outputs=device.json
import json, os
print("found")
open("device.json", "w").write(os.environ["DEVICE_JSON"])
```

```python id=again needs=first outputs=reruns.json
import os, shutil
if published := os.environ.get("FLUXBENCH_PUBLISHED"):
    shutil.copy(os.path.join(published, "reruns.json"), "reruns.json")
else:
    open("reruns.json", "w").write(os.environ["DEVICE_JSON"])
```

```python id=simulated needs=first outputs=simulation.json
import os
open("simulation.json", "w").write(os.environ["DEVICE_JSON"])
```
"""


@pytest.fixture
def published(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a page that was published by this machine, and is now another's."""
    machine.notebook.write_text(NOTEBOOK + HARDWARE, encoding="utf-8")
    monkeypatch.setenv("DEVICE_JSON", json.dumps({"device": dataclasses.asdict(detect.detect())}))
    page = publish(machine.build(), machine.folder / "reports", "made-up")
    machine.ran()
    machine.has(name="NVIDIA Another", driver=NEWER)
    machine.measures("first", record("torch_math", sustained_ms=9.0))
    return page.with_suffix("")


def drawn_again(machine: Machine, published: Path) -> str:
    return redraw(published, machine.notebook, machine.settings).read_text(encoding="utf-8")


def test_a_page_is_drawn_again_by_the_notebooks_present_cells_and_nothing_is_measured(
    machine: Machine, published: Path
) -> None:
    before = tree(published)
    machine.rewrite('bench.show("second")', 'bench.show("second"); print("in another way")')
    machine.monkeypatch.setenv("DEVICE_JSON", "{}")  # other runs, of another machine
    machine.rewrite('packages = ["torch==2.13.0"]', 'packages = ["torch==2.15.0"]')
    page = drawn_again(machine, published)
    assert sorted(machine.ran()) == ["again", "figure", "other", "simulated"]
    assert "in another way" in page
    assert "NVIDIA Made Up" in page  # the device that measured
    assert "torch==2.15.0" not in page  # the code that measured
    after = tree(published)
    assert {name for name in before if before[name] != after[name]} == {"cells/other.py", "records/simulation.json"}
    assert after["records/simulation.json"] == b"{}"  # of what is published now
    assert set(after) == set(before)
    assert not (machine.notebook.parent / ".redraw").exists()


def test_a_measuring_cell_that_the_page_did_not_have_is_left_out(machine: Machine, published: Path) -> None:
    before, text = tree(published), machine.notebook.read_text(encoding="utf-8")
    third = f"```python id=third outputs=third.jsonl\n{MEASURING.format(variant='torch_flash')}```\n"
    shows = "```python id=last needs=first,third\nprint('of the first')\n```\n"
    machine.notebook.write_text(f"{text}\n### A third\n{third}\n{shows}", encoding="utf-8")
    page = drawn_again(machine, published)
    assert "of the first" in page
    assert "A third" in page
    assert "id=third" not in page
    assert set(tree(published)) - set(before) == {"cells/last.py"}


def test_what_cannot_be_drawn_again_is_refused_and_the_page_stays(
    machine: Machine, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(published.parent)
    text = machine.notebook.read_text(encoding="utf-8")

    def refused(match: str) -> None:
        with pytest.raises(SetupError, match=match):
            drawn_again(machine, published)
        assert tree(published.parent) == before

    machine.rewrite('bench.show("second")', "bench.show('second'); raise SystemExit(3)")
    refused(r"only a page without problems can be published, got: cell other failed: .*3")
    script = published / "cells" / "first.py"
    records = {path: path.read_bytes() for path in (published / "records").glob("first.*")}
    for path in records:
        path.unlink()
    before = tree(published.parent)
    refused(r"must have what cell first measured, got none of first\.jsonl")  # which the page had
    assert script.is_file()
    for path, content in records.items():
        path.write_bytes(content)
    before = tree(published.parent)
    before |= {"made_up/records/more.json": b"{}"}
    (published / "records" / "more.json").write_bytes(b"{}")
    refused(r"each file of .*/records must be of a cell of made_up\.md, got more\.json")
    (published / "records" / "more.json").unlink()
    half = before["made_up/records/first.jsonl"][:-20]
    before = {name: half if name.endswith("first.jsonl") else kept for name, kept in tree(published.parent).items()}
    (published / "records" / "first.jsonl").write_bytes(half)
    refused(r"first\.jsonl cannot be read")
    assert cli.main(["redraw", str(published.parent), "--notebook", str(machine.notebook)]) == 2
    assert "must have a folder of records" in capsys.readouterr().err
    another = machine.notebook.with_name("another.md")
    another.write_text(text, encoding="utf-8")
    with pytest.raises(SetupError, match=r"must be named made_up\.md, got .*another\.md"):
        redraw(published, another, machine.settings)


def test_cells_of_trials_are_dated_by_these(machine: Machine) -> None:
    header = MEASURING.format(variant="torch_flash").replace("# variants", '# measures = "trials"\n# variants')
    hardware = HARDWARE.partition("```python id=again")[0]
    machine.notebook.write_text(f"```python id=trials outputs=trials.json\n{header}```\n{hardware}", encoding="utf-8")
    published = machine.folder / "reports" / "made-up" / "made_up"
    (published / "records").mkdir(parents=True)
    device = {"device": dataclasses.asdict(detect.detect())}
    (published / "records" / "device.json").write_text(json.dumps(device), encoding="utf-8")
    (published / "records" / "trials.json.gz").write_bytes(
        gzip.compress(json.dumps(as_json(made_up(2))).encode(), mtime=0)
    )
    assert "ran 2026-01-31 12:01:00 UTC" in drawn_again(machine, published)

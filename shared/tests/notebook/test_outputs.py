"""What cells leave: a result is good only with each declared output, and no cell's files cost another cell anything."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable

import pytest
from notebooks import Machine
from sample_records import record
from sites import believe

from fluxbench.notebook.revisions import measured
from fluxbench.notebook.store import Result
from fluxbench.site.intake import add

NOT_REGULAR = "its declared output 'sub/out.txt' must be a regular file in its folder, got {} where a {} must be"
LEFT = {
    "nothing": ("", "it ended without its declared output 'sub/out.txt'"),
    "a FIFO": ("os.mkfifo('sub/out.txt')", NOT_REGULAR.format("a FIFO", "regular file")),
    "a folder": ("os.mkdir('sub/out.txt')", NOT_REGULAR.format("a folder", "regular file")),
    "a link": ("os.symlink('/etc/passwd', 'sub/out.txt')", NOT_REGULAR.format("a link", "regular file")),
    "a linked folder": (
        "os.rmdir('sub'); os.symlink('/etc', 'sub')",
        NOT_REGULAR.format("a link", "a folder").replace("a a ", "a "),
    ),
}


@pytest.mark.parametrize(("code", "problem"), LEFT.values(), ids=LEFT)
def test_a_run_without_its_declared_output_fails_and_the_last_good_result_stays(
    machine: Machine, code: str, problem: str
) -> None:
    prepared = machine.folder / "fault.py"
    prepared.write_text("open('sub/out.txt', 'w').write('good')", encoding="utf-8")
    machine.write(f"id=a outputs=sub/out.txt: import os; os.mkdir('sub'); exec(open({str(prepared)!r}).read())")
    good = (machine.build().problems, machine.good("a"))
    prepared.write_text(code, encoding="utf-8")
    assert machine.build("a").problems == (f"cell a failed: {problem}",)
    assert (good[0], machine.good("a")) == ((), good[1])
    assert (machine.output / "made_up/artifacts/a/sub/out.txt").read_text(encoding="utf-8") == "good"


DAMAGED = {
    "half a record": ("first.jsonl", "open('first.jsonl', 'a').write('{\"half')", "is damaged: first.jsonl, line 2"),
    "no record": ("first.jsonl", "open('first.jsonl', 'w')", "must leave records, first.jsonl"),
    "no output": ("first.jsonl", "os.remove('first.jsonl')", "it ended without its declared output 'first.jsonl'"),
    "a control kernel's time in words": (
        "first.control.json",
        'open(\'first.control.json\', \'w\').write(\'{"kernel": "a", "samples_ms": "none"}\')',
        "'first.control.json' is damaged",
    ),
}


@pytest.mark.parametrize(("name", "code", "problem"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_measurement_is_a_failure_and_what_needs_it_is_not_run_on_it(
    built: Machine, name: str, code: str, problem: str
) -> None:
    before = built.good("first")
    built.rewrite("bench.measure()\n```\n\n```python id=second", f"bench.measure()\n{code}\n```\n\n```python id=second")
    built.ran()
    problems = built.build("first").problems
    assert problems[0].startswith("cell first failed: ")
    assert problem in problems[0]
    assert built.ran() == ["first"]
    assert built.good("first") == before
    assert "torch_math: 1.0 ms" in built.shown("first")


def test_an_output_that_a_cell_says_it_has_nothing_for_may_be_missing(machine: Machine) -> None:
    machine.write("id=a outputs=a.txt,b.txt: import os; open(os.environ['FLUXBENCH_ABSENT'], 'w').write('a.txt\\n')")
    assert machine.build().problems == ("cell a failed: it ended without its declared output 'b.txt'",)
    machine.rewrite("'a.txt\\n'", "'a.txt\\nb.txt\\n'")
    assert machine.build().problems == ()


DEEP = "for _ in range(1100): os.mkdir('deeper'); os.chdir('deeper')\nopen('x', 'w')"
LONG = "an artifact's name must be at most 250 bytes long, got "
FILES = {
    "a deep folder": (DEEP, LONG),
    "a name of 251 characters": ("open('n' * 251, 'w')", LONG),
    "a name of 250 characters": ("open('n' * 250, 'w')", None),
    "no rights": ("os.chmod('.', 0)", "what it left cannot be read: [Errno 13]" if os.geteuid() else None),
}


@pytest.mark.parametrize(("code", "problem"), FILES.values(), ids=FILES)
def test_a_cells_files_cost_no_other_cell_anything(machine: Machine, code: str, problem: str | None) -> None:
    machine.monkeypatch.setattr(tempfile, "tempdir", str(machine.folder / "laboratory"))
    machine.write(f"id=a: import os\n{code}", "id=b: print('of b')")
    for _ in range(2):
        problems = machine.build().problems
        assert [each.startswith(f"cell a failed: {problem}") for each in problems] == [True] * bool(problem)
    assert machine.shown("b") == "of b"
    assert list((machine.folder / "laboratory").glob("fluxbench-cell-*")) == []


def test_an_artifact_may_become_a_folder_and_a_file_again(machine: Machine) -> None:
    for code, place in (("open('x', 'w')", "x"), ("os.mkdir('x'); open('x/y', 'w')", "x/y"), ("open('x', 'w')", "x")):
        machine.write(f"id=a: import os; {code}")
        assert machine.build().problems == ()
        assert (machine.output / "made_up/artifacts/a" / place).is_file()


def test_two_notebooks_of_a_folder_share_no_file_of_the_site(machine: Machine) -> None:
    machine.write("id=a outputs=x.csv: open('x.csv', 'w').write('1')")
    machine.build()
    other = machine.notebook.with_name("other.md")
    other.write_text(machine.notebook.read_text(encoding="utf-8").replace("'1'", "'2'"), encoding="utf-8")
    first, machine.notebook = machine.notebook, other
    machine.build()
    machine.notebook = first
    read = {
        name: (machine.output / name / "artifacts/a/x.csv").read_text(encoding="utf-8") for name in ("made_up", "other")
    }
    assert read == {"made_up": "1", "other": "2"}
    assert "'1'" in (machine.output / "made_up/cells/a.py").read_text(encoding="utf-8")
    assert 'href="made_up/artifacts/a/x.csv"' in machine.html("a")


def test_a_folder_of_the_users_is_not_replaced_by_a_page(machine: Machine) -> None:
    (machine.output / "made_up").mkdir(parents=True)
    (machine.output / "made_up" / "thesis.txt").touch()
    assert machine.command("build") == 2
    assert machine.ran() == []
    assert (machine.output / "made_up" / "thesis.txt").exists()


@pytest.mark.parametrize("left", ["file", "folder"])
def test_what_a_killed_build_left_beside_the_page_blocks_nothing(built: Machine, left: str) -> None:
    for name in (".made_up.new", ".made_up.old", ".made_up.html.new", ".made_up.html.new.part"):
        if left == "folder":
            (built.output / name / "below").mkdir(parents=True)
        else:
            (built.output / name).write_text("half", encoding="utf-8")
    assert built.build().problems == ()
    assert sorted(path.name for path in built.output.iterdir()) == ["made_up", "made_up.html"]


def says(line: str) -> str:
    return f"open(os.environ['FLUXBENCH_PROGRESS'], 'w').write({line!r})"


PROGRESS = {
    "a FIFO": "os.mkfifo(os.environ['FLUXBENCH_PROGRESS'])",
    "a link to a device": "os.symlink('/dev/zero', os.environ['FLUXBENCH_PROGRESS'])",
    **{
        line: says(line)
        for line in (
            '{"steps": "many"}', '{"steps": 1e400}', '{"steps": [1]}', '{"step": 7}', '{"variant": "flex"}',
            '{"variant": {}, "workload": 1}', "[" * 100_000, '{"steps": ' + "9" * 5000 + "}",
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("code", PROGRESS.values(), ids=[name[:30] for name in PROGRESS])
def test_progress_of_a_wrong_shape_costs_nothing(machine: Machine, code: str) -> None:
    machine.write(f"id=a: import os, time\n{code}\ntime.sleep(0.5)")
    assert machine.build().problems == ()


def test_a_display_or_a_list_of_absent_outputs_that_is_no_file_is_left_out(machine: Machine) -> None:
    header = '# /// script\n# dependencies = ["fluxbench"]\n# ///\n'
    made = "".join(f"os.mkfifo(os.environ['FLUXBENCH_{name}'])\n" for name in ("DISPLAY", "ABSENT"))
    machine.write(f"id=a: {header}import os\n{made}print('text')")
    assert machine.build().problems == ()
    assert machine.shown("a") == "text"


def tampered(change: Callable[[dict[str, object]], object]) -> Callable[[bytes], bytes]:
    def of(content: bytes) -> bytes:
        fields = json.loads(content)
        change(fields)
        return json.dumps(fields).encode()

    return of


RESULTS: dict[str, Callable[[bytes], bytes]] = {
    "an infinite duration": lambda content: content.replace(b'"duration": ', b'"duration": 1e999, "a": '),
    "too large a duration": lambda content: content.replace(b'"duration": ', b'"duration": 1e308, "a": '),
    "100,000 levels": lambda content: content.replace(b'"duration": ', b'"a": ' + b"[" * 100_000 + b', "duration": '),
    "thousands of digits": lambda content: content.replace(b'"inputs": {', b'"inputs": {"a": ' + b"9" * 4000),
    "half a character": lambda content: content.replace(b'"stdout": "', b'"stdout": "\\ud800'),
    "an artifact elsewhere": tampered(lambda fields: fields.update(artifacts={"../../../made_up.md": 1})),
    "a failure that succeeded": tampered(lambda fields: fields.update(failure="no")),
    "16 MB": lambda content: content + b" " * (16 << 20),
    "no text": lambda content: b"\xff\xfe",
}


@pytest.mark.parametrize("change", RESULTS.values(), ids=RESULTS)
def test_a_result_that_was_tampered_with_is_damaged_and_runs_again(
    built: Machine, change: Callable[[bytes], bytes]
) -> None:
    path = built.good("second").folder / "result.json"
    path.write_bytes(change(path.read_bytes()))
    assert built.reasons("second") == ("its result is damaged",)
    built.ran()
    built.measures("second", record("torch_native"))
    assert built.build().problems == ()
    assert built.ran() == ["second"]  # whose content is the same as before


@pytest.mark.parametrize("link", ["/dev/zero", "/etc/passwd"])
def test_a_result_that_is_a_link_is_damaged(built: Machine, link: str) -> None:
    result: Result = built.good("second")
    (result.folder / "result.json").unlink()
    (result.folder / "result.json").symlink_to(link)
    assert built.reasons("second") == ("its result is damaged",)


def test_what_a_build_leaves_is_taken_in_and_compared(built: Machine) -> None:
    assert add(built.output, built.folder / "reports", "mine").records == 2
    assert measured("site", built.folder, believe).records == built.build().records

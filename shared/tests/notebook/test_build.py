"""Building a notebook: which cells run, in what order, what a failure costs, and what is wrong with the page."""

from __future__ import annotations

import dataclasses
import fcntl
import io
import math
import re
import sys
from pathlib import Path

import pytest
from notebooks import ALL, NEWER, Machine
from sample_records import record

from fluxbench.core.errors import SetupError
from fluxbench.core.progress import Progress
from fluxbench.notebook.listeners import Lines
from fluxbench.records.status import Status

# What runs.


def test_a_first_build_runs_every_cell_and_a_second_one_none(machine: Machine) -> None:
    built = machine.build()
    assert machine.ran() == ALL
    assert built.problems == ()
    assert built.page == machine.output / "made_up.html"
    assert [each.variant for each in built.records] == ["torch_math", "torch_native"]
    page = machine.page
    assert machine.build().problems == ()
    assert machine.ran() == []
    assert machine.page == page


def test_a_cell_gets_the_results_that_it_needs_and_they_are_on_the_page(machine: Machine) -> None:
    machine.measures("first", record("torch_math", sustained_ms=1.25))
    machine.build("first")
    assert "measured torch_math: 1.25 ms" in machine.shown("first")
    assert "shown torch_math: 1.25 ms" in machine.shown("figure")
    assert "drawn torch_math: 1.25 ms" in machine.shown("figure")
    assert 'href="made_up/artifacts/figure/table.csv"' in machine.html("figure")
    assert (machine.output / "made_up/artifacts/figure/table.csv").read_text(encoding="utf-8") == "torch_math: 1.25 ms"


def test_the_cells_of_a_build_share_a_folder_which_is_gone_after_it(machine: Machine) -> None:
    code = "import os; folder = os.environ['FLUXBENCH_CONTENTS']; print('folder', folder, os.path.isdir(folder))"
    machine.write(f"id=a: {code}", f"id=b needs=a: {code}")
    machine.build()
    first, second = (re.findall(r"folder (\S+) (\w+)", machine.shown(name)) for name in ("a", "b"))
    assert first == second == [(first[0][0], "True")]
    assert not Path(first[0][0]).exists()


def test_a_cell_runs_in_an_empty_folder_with_what_uv_needs(machine: Machine) -> None:
    names = ("UV_CACHE_DIR", "UV_PYTHON", "PYTHONNOUSERSITE", "FLUXBENCH_CELL_LIMIT_S", "UVNOTE_INPUTS")
    code = f"import os; print(os.listdir(), os.listdir(os.environ['HOME']), [os.environ.get(name) for name in {names}])"
    machine.write(f"id=a: {code}")
    machine.build()
    base = getattr(sys, "_base_executable", sys.executable)
    assert f"['home'] [] ['/a/cache/of/uv', '{base}', '1', '1680', None]" in machine.shown("a")


def test_a_build_with_a_limit_tells_its_cells_when_it_stops_measuring(machine: Machine) -> None:
    code = "import os, time; print('left', float(os.environ.get('FLUXBENCH_UNTIL', 'inf')) - time.monotonic())"
    machine.write(f"id=a: {code}")
    for limit_s, least, most in ((None, math.inf, math.inf), (900.0, 700, 840), (40.0, 0, 30)):
        machine.settings = dataclasses.replace(machine.settings, limit_s=limit_s)
        machine.build(*(["a"] if machine.states()["a"] == "fresh" else []))
        left_s = float(machine.shown("a").partition("left ")[2].split()[0])
        assert least <= left_s <= most


def test_a_build_that_stops_measuring_begins_no_cell_again_that_has_a_result(built: Machine) -> None:
    built.measures("first", record("torch_math"), record("flex", status=Status.CRASHED, reason="it crashed"))
    built.build("first")
    assert built.states()["first"] == "retryable"
    built.ran()
    built.settings = dataclasses.replace(built.settings, limit_s=1e-6)
    built.build()
    assert "first" not in built.ran()
    built.settings = dataclasses.replace(built.settings, limit_s=None)
    built.build()
    assert "first" in built.ran()


def test_a_cell_gets_earlier_good_results(built: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(built.notebook.parent)  # the cell runs elsewhere
    built.notebook = built.notebook.relative_to(Path.cwd())
    built.rewrite(
        'bench.show("first")',
        "print('history', [line.count('torch_math') > 0 and line.split('median_ms\":')[-1][:3] for folder in "
        "os.environ['FLUXBENCH_HISTORY'].split(':') if folder for line in open(f'{folder}/first.jsonl')])",
    )
    built.rewrite(" outputs=figure.svg,table.csv", "")
    built.rewrite("id=other needs=second", "id=other needs=figure")
    built.rewrite('bench.show("second")', "print('history', os.environ['FLUXBENCH_HISTORY'])")
    for sustained_ms in (2.0, 3.0):
        built.measures("first", record("torch_math", sustained_ms=sustained_ms))
        built.build("first")
    assert "history ['2.0', '1.0']" in built.shown("figure")
    assert built.shown("other") == "history"  # figure shows, and has no history


def test_a_retryable_failure_runs_again_with_the_cells_that_need_it(built: Machine) -> None:
    built.measures("first", record("torch_math"), record("flex", status=Status.CRASHED))
    assert built.build("first").problems == ()
    assert built.states() == {**dict.fromkeys(ALL, "fresh"), "first": "retryable"}  # the result holds
    built.ran()
    built.measures("first", record("torch_math"), record("flex"))
    built.build()
    assert built.ran() == ["first", "figure"]
    assert built.states() == dict.fromkeys(ALL, "fresh")


@pytest.mark.parametrize(
    ("content", "dependency", "shown"),
    [
        ("b'<p>drawn</p>'", "fluxbench", "drawn"),
        ("b'drawn'.ljust(1 << 22)", "fluxbench", "drawn"),
        ("b'drawn'.ljust(1 + (1 << 22))", "fluxbench", "<text>"),  # longer than is kept
        ("b'\\xff'", "fluxbench", "<text>"),
        ("b''", "fluxbench", "<text>"),
        ("b'drawn'", "fluxbench-more", "<text>"),
    ],
)
def test_what_a_cell_displays_replaces_its_text(machine: Machine, content: str, dependency: str, shown: str) -> None:
    machine.write(
        f'id=a: # /// script\n# dependencies = ["{dependency}"]\n# ///\nimport os\nprint("<text>")\n'
        f"open(os.environ['FLUXBENCH_DISPLAY'], 'wb').write({content})"
    )
    assert machine.build().problems == ()
    assert (machine.shown("a"), machine.good("a").run.artifacts) == (shown, {})


def test_a_failure_costs_its_cell_and_what_needs_it_and_all_else_runs(machine: Machine) -> None:
    machine.rewrite("bench.measure()\n```\n\n```python id=second", "sys.exit('fluxbench: it is on fire')\n```\n\n"
                    "```python id=second")  # fmt: skip
    of_first, of_figure = "cell first failed: it is on fire", "cell figure was not run: it needs first, which failed"
    assert machine.build().problems == (of_first, of_figure)
    assert machine.ran() == ["first", "second", "other"]
    assert [machine.html(cell_id).count("FAILED") for cell_id in ALL] == [1, 0, 1, 0]
    assert machine.shown("first") == "The last run of this cell failed: it is on fire. fluxbench: it is on fire"
    assert machine.shown("figure") == "Not run: it needs first, which failed."
    assert machine.shown("other") == "shown torch_native: 1.0 ms"
    assert machine.states() == {"first": "failed", "second": "fresh", "figure": "not run", "other": "fresh"}


def test_a_failed_cell_runs_again_and_then_all_that_was_not_run(machine: Machine) -> None:
    machine.write("id=a: import os; assert not os.environ.get('BROKEN')", "id=b needs=a", "id=c")
    machine.monkeypatch.setenv("BROKEN", "1")
    machine.build()
    machine.build("c")
    failure = "it ended with exit code 1: AssertionError"
    assert machine.shown("a").startswith(f"The last run of this cell failed: {failure}. Traceback (most recent ")
    assert machine.ran() == ["a", "c", "c"]
    machine.build()
    assert machine.ran() == ["a"]
    machine.monkeypatch.delenv("BROKEN")
    assert machine.build().problems == ()
    assert machine.ran() == ["a", "b"]
    assert "FAILED" not in machine.html("a")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("open('half.txt', 'w').write('1'); {}['key']", "it ended with exit code 1: KeyError: 'key'"),
        (
            'raise SystemExit("error: Failed to fetch: https://a.registry/x/\\n  cause: dns error")',
            "Failed to fetch: the registry cause: dns error; check the network, or name a folder of wheels in "
            "FLUXBENCH_WHEELS",
        ),
        (
            "import sys; sys.exit('error: connect to db lost\\nTraceback (most recent call last):\\nValueError: mine')",
            "it ended with exit code 1: ValueError: mine",
        ),
        (
            """open('"><img src=x>.txt', "w").close()""",
            "an artifact's name must be letters, digits and any of ' .+@=,-_', got '\"><img src=x>.txt'",
        ),
    ],
    ids=["an exception", "uv and the network", "a traceback", "an unsafe name"],
)
def test_why_a_cell_failed_is_a_sentence_and_it_leaves_no_artifacts(machine: Machine, code: str, problem: str) -> None:
    machine.write(f"id=a: {code}")
    assert machine.build().problems == (f"cell a failed: {problem}",)
    assert "<img" not in machine.page
    assert list(machine.folder.rglob("half.txt")) == []
    assert machine.states() == {"a": "failed"}


def test_cells_that_need_each_other_are_not_run_and_all_else_is(machine: Machine) -> None:
    machine.write("id=a needs=b", "id=b needs=a", "id=c needs=a", "id=d: print('of d')")
    reason = "it needs cells that need it, or one that does"
    assert machine.build().problems == tuple(f"cell {cell_id} was not run: {reason}" for cell_id in "abc")
    assert machine.ran() == ["d"]
    assert machine.shown("a") == f"Not run: {reason}."
    assert machine.shown("d") == "of d"


def test_a_required_variant_that_did_not_pass_is_a_problem_though_nothing_runs(built: Machine) -> None:
    built.measures("first", record("torch_math", status=Status.INCORRECT, reason="it is wrong"))
    problem = "torch_math at flux1-1024px-t512: INCORRECT: it is wrong"
    assert built.build("first").problems == (problem,)
    assert built.build("second").problems == ()
    built.ran()
    assert built.build().problems == (problem,)
    assert built.ran() == []


@pytest.mark.parametrize("variant", ["flex", "torch_flash"])
def test_a_variant_that_is_not_required_may_fail(built: Machine, variant: str) -> None:
    built.rewrite('variants = ["torch_native"]', f'variants = ["torch_native", "{variant}"]')
    built.measures("second", record("torch_native"), record(variant, status=Status.UNSUPPORTED))
    assert built.build("second").problems == ()


def test_a_required_variant_without_a_record_is_a_problem(built: Machine) -> None:
    built.measures("first", record("torch_cudnn"))
    assert built.build("first").problems == ("torch_math: no record",)


def test_a_measurement_as_of_another_machine_is_a_problem(built: Machine) -> None:
    built.measures("first", record("torch_math"), facts={"driver": NEWER})
    reason = f"driver {NEWER} -> 580.65.06"
    assert built.build("first").problems[0] == f"cell first was run, but its result is already stale: {reason}"
    assert built.states() == {"first": "stale", "second": "fresh", "figure": "stale", "other": "fresh"}


def test_a_second_build_is_refused_while_one_runs(machine: Machine) -> None:
    work = machine.notebook.parent / ".uvnote"
    work.mkdir()
    with (work / "fluxbench.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(SetupError, match=r"another build runs in .*notebooks; wait until it ends"):
            machine.build()
    assert machine.ran() == []


SAYS = """import os, pathlib, time
pathlib.Path(os.environ["FLUXBENCH_PROGRESS"]).write_text('{"steps": 4}\\n{"variant": "flex", "workload": "x"}\\n')
late = time.monotonic() + 60
while not os.path.exists(os.path.join(os.environ["LABORATORY"], "heard")) and time.monotonic() < late:
    time.sleep(0.01)
"""


def test_progress_of_a_cell_reaches_the_listener(machine: Machine) -> None:
    machine.write(f"id=a: {SAYS}")
    heard: list[tuple[str, Progress]] = []

    class Hearing(Lines):
        def advanced(self, cell_id: str, elapsed_s: float, progress: Progress, left_s: float | None) -> None:
            heard.append((cell_id, progress))
            if progress.step:
                (machine.folder / "laboratory" / "heard").touch()

    machine.build(listener=Hearing(io.StringIO()))
    assert heard[0] == ("a", Progress(share=None, step=""))
    assert heard[-1] == ("a", Progress(share=0.25, step="flex at x"))


@pytest.mark.parametrize("another_measures", [False, True])
def test_what_a_killed_measurement_left_is_removed_unless_one_runs(built: Machine, another_measures: bool) -> None:
    cache = built.settings.cache
    (cache / "runs" / "sdpa-abc").mkdir(parents=True)
    (cache / "envs").mkdir(exist_ok=True)
    with (cache / "runs.lock").open("w") as lock:
        if another_measures:
            fcntl.flock(lock, fcntl.LOCK_SH)
        built.build()
    assert (cache / "runs" / "sdpa-abc").exists() == another_measures
    assert (cache / "envs").is_dir()

"""Building a notebook: which cells run, in what order, what a failure costs, what is said and shown of it.

Past 300 lines because what a person sees of a build, its page, its progress and its exit code, is tested on the same
builds.
"""

from __future__ import annotations

import fcntl
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes import without_uv
from notebooks import ALL, NEWER, Machine, listing
from sample_records import make_record

from fluxbench import cli
from fluxbench.core.formatting import utc
from fluxbench.core.progress import Progress
from fluxbench.core.errors import SetupError
from fluxbench.notebook import listeners
from fluxbench.notebook.listeners import Bar, Lines, Times
from fluxbench.records.schema import Status


def cells(machine: Machine, *lines: str) -> None:
    """Make a notebook of these cells, each `ATTRIBUTES: CODE`."""
    parts = (line.partition(": ") for line in lines)
    text = "".join(f"```python {attributes}\n{code or 'print()'}\n```\n" for attributes, _, code in parts)
    machine.notebook.write_text(text, encoding="utf-8")


# What runs.


def test_a_first_build_runs_every_cell_and_a_second_one_none(machine: Machine) -> None:
    built = machine.build()
    assert machine.ran() == ALL
    assert built.problems == ()
    assert built.page == machine.output / "made_up.html"
    assert {record.variant for record in built.records} == {"torch_math", "torch_native"}
    page = machine.page
    assert machine.build().problems == ()
    assert machine.ran() == []
    assert machine.page == page


def test_a_cell_finds_the_results_that_it_needs_and_they_are_on_the_page(machine: Machine) -> None:
    machine.measures("first", make_record("torch_math", median_ms=1.25))
    machine.build("first")
    assert "measured torch_math: 1.25 ms" in machine.shown("first")
    assert "shown torch_math: 1.25 ms" in machine.shown("figure")
    assert "drawn torch_math: 1.25 ms" in machine.shown("figure")
    assert 'href="artifacts/figure/table.csv"' in machine.html("figure")


def test_cells_run_in_document_order_and_each_after_those_that_it_needs(machine: Machine) -> None:
    cells(machine, "id=a needs=d", "id=b", "id=c depends=b,a", "id=d", "id=e")
    machine.build()
    assert machine.ran() == ["b", "d", "a", "c", "e"]


def test_a_cell_runs_where_nothing_is_and_with_what_uv_needs_there(machine: Machine) -> None:
    names = ("UV_CACHE_DIR", "UV_PYTHON", "PYTHONNOUSERSITE", "FLUXBENCH_CELL_LIMIT_S", "UVNOTE_INPUTS")
    code = f"import os; print(os.listdir(), os.listdir(os.environ['HOME']), [os.environ.get(name) for name in {names}])"
    cells(machine, f"id=a: {code}")
    machine.build()
    base = getattr(sys, "_base_executable", sys.executable)
    assert f"['home'] [] ['/a/cache/of/uv', '{base}', '1', '1080', None]" in machine.shown("a")


@pytest.mark.parametrize("folder", [None, ".", ".."])
def test_a_cell_is_told_where_the_earlier_good_results_of_what_it_needs_are(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, folder: str | None
) -> None:
    if folder:  # where the notebook is named from: the cell runs elsewhere
        monkeypatch.chdir(machine.notebook.parent / folder)
        machine.notebook = machine.notebook.relative_to(Path.cwd())
    cells(
        machine,
        "id=a: open('n.jsonl', 'w').write('1')",
        "id=b needs=a: import os; print('history', [open(f'{each}/n.jsonl').read() for each in "
        "os.environ['FLUXBENCH_HISTORY'].split(':') if each])",
    )
    machine.build()
    assert "history []" in machine.shown("b")
    machine.rewrite("'1'", "'2'")
    machine.build()
    machine.rewrite("'2'", "'3'")
    machine.build()
    assert "history ['2', '1']" in machine.shown("b")


def test_what_may_pass_the_next_time_is_tried_again_with_what_needs_it(built: Machine) -> None:
    built.measures("first", make_record("torch_math"), make_record("flex", status=Status.CRASHED))
    assert built.build("first").problems == ()
    assert built.states()["figure"] == "fresh"  # the result holds
    built.ran()
    built.measures("first", make_record("torch_math"), make_record("flex"))
    built.build()
    assert built.ran() == ["first", "figure"]
    assert built.states() == dict.fromkeys(ALL, "fresh")


def test_after_a_new_driver_everything_is_measured_and_drawn_again(built: Machine) -> None:
    built.driver(NEWER)
    assert built.build().problems == ()
    assert built.ran() == ALL


def test_a_cell_whose_outputs_changed_runs_again(machine: Machine) -> None:
    cells(machine, "id=a outputs=a.txt: open('a.txt', 'w').write('1'); open('b.txt', 'w').write('1')", "id=b")
    machine.build()
    assert list(machine.good("a").artifacts) == ["a.txt"]
    machine.rewrite("outputs=a.txt", "outputs=a.txt,b.txt")
    machine.ran()
    machine.build()
    assert machine.ran() == ["a"]
    assert list(machine.good("a").artifacts) == ["a.txt", "b.txt"]
    assert 'href="artifacts/a/b.txt"' in machine.page


def test_two_notebooks_of_a_folder_do_not_take_each_others_results(machine: Machine) -> None:
    cells(machine, "id=a: print('of one')")
    machine.build()
    machine.notebook = machine.notebook.with_name("another.md")
    cells(machine, "id=a: print('of another')")
    machine.build()
    assert machine.ran() == ["a", "a"]
    assert "of another" in machine.shown("a")
    machine.notebook = machine.notebook.with_name("made_up.md")
    machine.build()
    assert machine.ran() == []
    assert "of one" in machine.shown("a")


# What a failure costs.


def test_a_failure_costs_its_cell_and_what_needs_it_and_all_else_runs(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.rewrite('bench.measure("torch_math")', 'print("begun"); raise SystemExit("fluxbench: the GPU is on fire")')
    assert machine.command("build") == 1
    assert machine.ran() == ["first", "second", "other"]
    out, err = capsys.readouterr()
    assert "fluxbench: cell first failed: the GPU is on fire\n" in err
    assert "fluxbench: cell figure was not run: it needs first, which failed\n" in err
    assert f"The page is {machine.output / 'made_up.html'}" in out
    assert [machine.html(cell_id).count("FAILED") for cell_id in ALL] == [1, 0, 1, 0]
    assert "[The last run of this cell failed: the GPU is on fire.] begun" in machine.shown("first")
    assert "fluxbench: the GPU is on fire" in machine.shown("first")
    assert "[Not run: it needs first, which failed.]" in machine.shown("figure")
    assert "shown torch_native: 1.0 ms" in machine.shown("other")


def test_a_failed_cell_runs_again_and_then_all_that_was_not_run(machine: Machine) -> None:
    cells(machine, "id=a: import os; assert not os.environ.get('BROKEN')", "id=b needs=a", "id=c")
    machine.monkeypatch.setenv("BROKEN", "1")
    machine.build()
    machine.build()
    assert machine.ran() == ["a", "c", "a"]
    machine.monkeypatch.delenv("BROKEN")
    assert machine.build().problems == ()
    assert machine.ran() == ["a", "b"]
    assert "FAILED" not in machine.html("a")


def test_the_last_good_result_of_a_failed_cell_stays_and_is_shown_as_what_it_is(built: Machine) -> None:
    good, drawn = built.good("first"), built.good("figure")
    built.rewrite('bench.measure("torch_math")', 'raise SystemExit("it broke")')
    assert built.build().problems == (
        "cell first failed: it ended with exit code 1: it broke",
        "cell figure was not run: it needs first, which failed",
    )
    assert built.good("first") == good
    assert built.good("figure") == drawn
    shown = built.shown("first")
    assert shown.startswith(
        "[The last run of this cell failed: it ended with exit code 1: it broke. What follows is its last good result, "
        f"of {utc(good.ran_at)}, with driver 580.65.06.] measured torch_math: 1.0 ms"
    )
    assert " it broke files: first.jsonl" in shown  # what it said this time
    assert "[Not run: it needs first, which failed. What follows is its last good result" in built.shown("figure")
    assert "shown torch_math: 1.0 ms" in built.shown("figure")
    assert (built.output / "artifacts" / "first" / "first.jsonl").is_file()


def test_a_page_that_is_drawn_later_still_shows_what_a_failed_cell_said(machine: Machine) -> None:
    cells(machine, "id=a: raise SystemExit('it broke')", "id=b")
    machine.build()
    assert machine.build("b").problems == ()
    assert "[The last run of this cell failed: it ended with exit code 1: it broke.]" in machine.shown("a")
    assert machine.shown("a").endswith("it broke")


def test_a_failed_cell_leaves_no_artifacts(machine: Machine) -> None:
    cells(machine, "id=a: open('half.txt', 'w').write('1'); raise SystemExit(3)")
    assert machine.build().problems == ("cell a failed: it ended with exit code 3",)
    assert "artifacts/a/half.txt" not in machine.page
    assert list(machine.folder.rglob("half.txt")) == []


def test_a_cell_that_uv_could_not_start_says_what_to_do_and_names_no_registry(machine: Machine) -> None:
    cells(machine, 'id=a: raise SystemExit("error: Failed to fetch: https://a.registry/x/\\n  cause: dns error")')
    (problem,) = machine.build().problems
    assert problem.startswith("cell a failed: Failed to fetch: the registry")
    assert problem.endswith("; check the network, or name a folder of wheels in FLUXBENCH_WHEELS")


def test_an_exception_is_said_by_its_last_line(machine: Machine) -> None:
    cells(machine, "id=a: {}['key']")
    assert machine.build().problems == ("cell a failed: it ended with exit code 1: KeyError: 'key'",)
    assert "Traceback (most recent call last)" in machine.shown("a")


def test_cells_that_need_each_other_are_not_run_and_all_else_is(machine: Machine) -> None:
    cells(machine, "id=a needs=b", "id=b needs=a", "id=c needs=a", "id=d: print('of d')")
    reason = "it needs cells that need it, or one that does"
    assert machine.build().problems == tuple(f"cell {cell_id} was not run: {reason}" for cell_id in "abc")
    assert machine.ran() == ["d"]
    assert f"[Not run: {reason}.]" in machine.shown("a")
    assert "of d" in machine.shown("d")


def test_a_cell_that_is_commented_out_is_no_problem(built: Machine) -> None:
    built.rewrite("```python id=second", "# ```python id=second")
    built.rewrite('bench.show("second")', 'print("without it")')
    assert built.build().problems == ()
    assert built.ran() == ["other"]


# Whether the page is what was asked for.


def test_a_variant_that_the_target_expects_and_that_did_not_pass_is_a_problem(
    built: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    built.measures("first", make_record("torch_math", status=Status.INCORRECT, reason="it is wrong"))
    assert built.command("rerun", "first") == 1
    problem = "fluxbench: torch_math at flux1-1024px-t512: INCORRECT: it is wrong\n"
    assert problem in capsys.readouterr().err
    assert built.command("build") == 1  # though nothing ran
    assert problem in capsys.readouterr().err


def test_one_reason_of_many_workloads_is_said_once(built: Machine) -> None:
    workloads = [f"flux1-1024px-t{text}" for text in (128, 256, 320, 384, 512)]
    built.measures("first", *(make_record("torch_math", each, status=Status.TIMEOUT) for each in workloads))
    assert built.build("first").problems == (
        "torch_math at flux1-1024px-t128, torch_math at flux1-1024px-t256, torch_math at flux1-1024px-t320 and 2 more: "
        "TIMEOUT: no answer within 600 s",
    )


def test_a_variant_that_the_target_does_not_expect_may_fail(built: Machine) -> None:
    built.rewrite('bench.measure("torch_native")', 'bench.measure("torch_native", "flex")')
    built.measures("second", make_record("torch_native"), make_record("flex", status=Status.UNSUPPORTED))
    assert built.build("second").problems == ()


def test_an_expected_variant_without_a_record_is_a_problem(built: Machine) -> None:
    built.measures("first", make_record("torch_cudnn"))
    assert built.build("first").problems == ("torch_math: no record",)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("open('first.jsonl', 'w').write('half a rec')", "its records are damaged"),
        ("pass", "its records are missing"),
    ],
)
def test_a_measurement_without_whole_records_is_a_problem_and_no_fresh_result(
    built: Machine, code: str, reason: str
) -> None:
    built.rewrite('bench.measure("torch_math")', code)
    built.rewrite('bench.show("first")', "print()")
    assert built.build().problems == (f"cell first was run and its result does not hold: {reason}",)
    assert built.states() == {"first": "stale", "second": "fresh", "figure": "stale", "other": "fresh"}


def test_a_measurement_of_another_machine_than_the_one_that_asked_is_a_problem(built: Machine) -> None:
    built.measures("first", make_record("torch_math"), marks={"driver": NEWER})
    (problem,) = built.build("first").problems
    assert problem == f"cell first was run and its result does not hold: driver {NEWER} -> 580.65.06"


# What cannot be begun.


def test_a_second_build_is_refused_while_one_runs(machine: Machine) -> None:
    work = machine.notebook.parent / ".uvnote"
    work.mkdir()
    with (work / "fluxbench.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(SetupError, match=r"another build runs in .*; wait until it ends"):
            machine.build()
    assert machine.ran() == []


def test_a_build_without_uv_says_how_to_get_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    without_uv(monkeypatch, machine.folder / "nothing")
    with pytest.raises(SetupError, match=r"uv must be on PATH .*; run `make setup`"):
        machine.build()


def test_a_page_without_changes_needs_no_uv(built: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    without_uv(monkeypatch, built.folder / "nothing")
    assert built.build().problems == ()


def test_a_workload_that_is_not_known_ends_the_build_before_anything_runs(machine: Machine) -> None:
    machine.set(workloads=("flux1-1025px",))
    with pytest.raises(SetupError, match=r"got 'flux1-1025px'; did you mean 'flux1-1024px'\?"):
        machine.build()
    assert machine.ran() == []


@pytest.mark.parametrize("name", ["site", "notebooks/.uvnote"])
def test_a_folder_that_cannot_be_made_ends_the_build_before_anything_runs(machine: Machine, name: str) -> None:
    (machine.folder / name).write_text("a file", encoding="utf-8")
    with pytest.raises(SetupError, match=rf"{name} must be a folder that can be written to: .*File exists"):
        machine.build()
    assert machine.ran() == []


# The command.


def test_the_command_ends_with_0_and_names_the_page(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    cells(machine, "id=a")
    assert machine.command("build") == 0
    out, err = capsys.readouterr()
    assert out == f"\nThe page is {machine.output / 'made_up.html'}\n"
    assert err.splitlines()[0] == "cell a is to run: it was never run here"


def test_the_command_ends_with_2_where_it_could_not_begin_and_changes_nothing(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    before = listing(machine.folder)
    assert cli.main(["build", str(machine.folder / "missing.md")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("fluxbench: a notebook must be a readable Markdown file, got ")
    assert listing(machine.folder) == before


@pytest.mark.parametrize("arguments", [[], ["burn"], ["build"], ["rerun", "notebook.md"], ["build", "a.md", "--fast"]])
def test_arguments_that_are_not_right_end_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
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


def test_an_interrupted_command_ends_with_130_and_says_what_is_kept(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells(machine, "id=a", "id=b")
    machine.build()
    before = machine.page
    machine.rewrite("id=b\nprint()", "id=b\nprint('b')")

    def interrupt(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fluxbench.notebook.runner.run", interrupt)
        assert machine.command("build") == 130
    assert "fluxbench: interrupted; finished cells and all earlier results are kept" in capsys.readouterr().err
    assert machine.page == before
    assert machine.states() == {"a": "fresh", "b": "stale"}


def test_the_command_loads_no_heavy_library_before_it_knows_that_it_must() -> None:
    heavy = ("torch", "triton", "pandas", "matplotlib", "numpy", "uvnote", "rich", "pynvml")
    code = f"import sys, fluxbench.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# What a person sees meanwhile.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(params=[Lines, Bar])
def seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[io.StringIO, listeners.Watching]:
    """A stream, and the listener that fits it."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal() if request.param is Bar else io.StringIO()
    listener = listeners.on(stream)
    assert type(listener) is request.param
    return stream, listener


def test_the_cell_its_variant_and_the_time_left_are_seen(seen: tuple[io.StringIO, listeners.Watching]) -> None:
    stream, listener = seen
    with listener:
        listener.plan({"sdpa": ["driver 1 -> 2"], "figure": []}, {"sdpa": 100.0, "figure": 30.0})
        listener.at("sdpa", 40.0, Progress(share=0.5, step="flex at flux1-1024px-t512"))
        refresh(listener)
        listener.ended("sdpa", 90.0, None)
        listener.at("figure", 0.0, Progress(share=None, step=""))
        refresh(listener)
        listener.ended("figure", 1.0, "it broke")
    text = stream.getvalue()
    assert "cell sdpa is to run: driver 1 -> 2" in text
    assert "[1/2] sdpa" in text
    assert "flex at flux1-1024px-t512" in text
    assert "about 1:30 left" in text  # 60 s of this one, and the next
    assert "sdpa done in 90.0 s" in text
    assert "[2/2] figure" in text
    assert "about 0:30 left" in text
    assert "figure FAILED: it broke" in text


def test_a_cell_that_was_never_timed_says_nothing_of_the_time_left(
    seen: tuple[io.StringIO, listeners.Watching],
) -> None:
    stream, listener = seen
    with listener:
        listener.plan({"sdpa": [], "figure": []}, {"sdpa": None, "figure": None})
        for share in (None, 0.0, 0.5, 1.0):
            listener.at("sdpa", 20.0, Progress(share=share, step="[markup] at x"))
            refresh(listener)
        listener.ended("sdpa", 20.0, None)
    assert "left" not in stream.getvalue()
    assert "[markup] at x" in stream.getvalue()


def test_a_build_that_was_interrupted_gives_the_terminal_back(
    seen: tuple[io.StringIO, listeners.Watching],
) -> None:
    stream, listener = seen

    def work() -> None:
        with listener:
            listener.plan({"sdpa": []}, {"sdpa": 1.0})
            listener.at("sdpa", 0.5, Progress(share=None, step=""))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    text = stream.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor


def refresh(listener: listeners.Watching) -> None:
    """Draw a bar now, which otherwise draws itself ten times a second."""
    if isinstance(listener, Bar):
        listener._bar.refresh()


def test_lines_are_few_while_a_cell_runs() -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    lines.plan({"sdpa": []}, {"sdpa": 60.0})
    for tick in range(150):
        lines.at("sdpa", tick / 5, Progress(share=None, step=f"step {tick}"))
    said = stream.getvalue().splitlines()
    assert len(said) == 1 + 3
    assert said[-1] == "[1/1] sdpa step 100, about 0:40 left"


def test_the_time_left_is_that_of_the_last_time_and_of_the_share_where_there_was_none() -> None:
    times = Times({"a": 100.0, "b": None, "c": 5.0})
    assert times.left_s("a", 10.0, 0.9) is None  # as b was never timed
    assert times.left_s("b", 10.0, None) is None
    assert times.left_s("b", 10.0, 0.25) == 35.0
    assert times.left_s("c", 10.0, None) == 0.0


def test_why_a_cell_runs_is_said_before_it_does(built: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    built.measures("first", make_record("torch_math"), make_record("flex", status=Status.CRASHED))
    built.command("rerun", "first")
    capsys.readouterr()
    built.command("rerun", "first")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        "cell first is to run: what failed may pass the next time: flex CRASHED",
        "cell figure is to run: it needs first",
    ]
    assert lines[2].startswith("[1/2] first, about 0:00 left")
    assert lines[-1].startswith("[2/2] figure done in ")


def test_progress_of_a_cell_reaches_who_listens(machine: Machine) -> None:
    line = """{"steps": 4}\\n{"variant": "flex", "workload": "x"}\\n"""
    cells(
        machine, f"id=a: import os, time; open(os.environ['FLUXBENCH_PROGRESS'], 'w').write('{line}'); time.sleep(0.6)"
    )
    heard: list[tuple[str, Progress]] = []

    class Hearing(Lines):
        def at(self, cell_id: str, elapsed_s: float, progress: Progress) -> None:
            heard.append((cell_id, progress))

    machine.build(listener=Hearing(io.StringIO()))
    assert heard[0] == ("a", Progress(share=None, step=""))
    assert heard[-1] == ("a", Progress(share=0.25, step="flex at x"))


# What killed measurements left.


@pytest.mark.parametrize("another_measures", [False, True])
def test_what_a_killed_measurement_left_is_removed_unless_another_build_measures(
    built: Machine, another_measures: bool
) -> None:
    cache = built.settings.cache
    (cache / "runs" / "sdpa-abc").mkdir(parents=True)
    (cache / "envs").mkdir(exist_ok=True)
    with (cache / "runs.lock").open("w") as lock:
        if another_measures:
            fcntl.flock(lock, fcntl.LOCK_SH)
        built.build()
    assert (cache / "runs" / "sdpa-abc").exists() == another_measures
    assert (cache / "envs").is_dir()


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        ("hint: use --flag\\nerror: all is lost", "exit code 1: error: all is lost"),
        (
            "error: connect to db lost\\nTraceback (most recent call last):\\nValueError: my bug",
            "1: ValueError: my bug",
        ),
    ],
)
def test_a_cell_that_talks_like_uv_fails_with_its_own_words(machine: Machine, stderr: str, said: str) -> None:
    cells(machine, f"id=a: import sys; sys.stderr.write('{stderr}'); sys.exit(1)")
    built = machine.build()
    assert [problem.endswith(said) for problem in built.problems] == [True]
    assert machine.states() == {"a": "failed"}


def test_a_page_links_the_source_of_its_own_cells_though_another_notebook_has_the_same_names(machine: Machine) -> None:
    cells(machine, "id=same: print('mine')")
    machine.build()
    mine = machine.notebook
    machine.notebook = mine.with_name("another.md")
    cells(machine, "id=same: print('another')")
    machine.build()
    machine.notebook = mine
    machine.build()
    assert "'mine'" in (machine.output / "cells" / "same.py").read_text(encoding="utf-8")


def test_code_that_changes_while_a_cell_measures_leaves_no_fresh_result(built: Machine) -> None:
    result = built.good("first")
    path = result.folder / "result.json"
    path.write_text(
        path.read_text(encoding="utf-8").replace('"driver": "580.65.06"', '"driver": "570.1"'), encoding="utf-8"
    )
    assert built.states()["first"] == "stale"
    assert built.reasons("first") == ("while it ran, driver 570.1 -> 580.65.06",)

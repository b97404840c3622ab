"""A fleet on this machine alone, without Slurm, and what every front end refuses."""

from __future__ import annotations

import fcntl
import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_workers
import pytest
from fleets import Clone, clone
from notebooks import tree

LOCAL = ("--cluster", "local", "--targets")
NOTEBOOKS = ("notebooks/two.md", "notebooks/three.md")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone that has published two notebooks on one target."""
    here = clone(tmp_path_factory.mktemp("local"))
    assert here.run("site").returncode == 0  # to which pages link
    done = here.run("fleet", *NOTEBOOKS, *LOCAL, "cpu-a")
    assert (done.returncode, done.stderr) == (0, "")
    return here


def noted(here: Clone, notebook: str, file: str) -> dict[str, Any]:
    return dict(json.loads((here.fleet / "cpu-a" / notebook / file).read_text(encoding="utf-8")))


def limited(most_bytes: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))


def test_jobs_of_one_machine_run_one_after_another(published: Clone) -> None:
    assert published.measured() == ["cpu-a three first 0", "cpu-a two first 0"]
    times = sorted(
        (one["began_at"], one["ended_at"]) for one in (noted(published, n, "result.json") for n in ("two", "three"))
    )
    assert times[0][1] <= times[1][0]
    assert {path.name for path in (published.reports / "cpu-a").iterdir()} == {"two", "two.html", "three", "three.html"}
    assert "cpu-a" in (published.reports / "index.html").read_text(encoding="utf-8")


def test_again_starts_a_job_and_measures_nothing_that_is_fresh(published: Clone) -> None:
    before = tree(published.reports)
    assert published.run("fleet", "notebooks/two.md", *LOCAL, "cpu-a").returncode == 0
    assert noted(published, "two", "job.json")["attempt"] == 1
    assert published.run("fleet", "notebooks/two.md", *LOCAL, "cpu-a", "--again").returncode == 0
    assert noted(published, "two", "job.json")["attempt"] == 2
    assert (published.measured(), tree(published.reports)) == (["cpu-a three first 0", "cpu-a two first 0"], before)


def test_a_full_disk_publishes_nothing_in_part_and_the_next_fleet_publishes_it(published: Clone) -> None:
    before = tree(published.reports)
    shutil.rmtree(published.reports / "cpu-a" / "two")
    (published.reports / "cpu-a" / "two.html").unlink()
    left = tree(published.reports)
    file = published.fleet / "cpu-a" / "two" / "job.json"
    job = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(
        json.dumps({**job, "is_published": False}), encoding="utf-8"
    )  # as a front end leaves it that was killed
    refused = published.run("fleet", "notebooks/two.md", *LOCAL, "cpu-a", preexec_fn=limited(2000))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "must fit in the limit of file size, got File too large; " in refused.stderr
    assert tree(published.reports) == left
    assert published.run("fleet", "notebooks/two.md", *LOCAL, "cpu-a").returncode == 0
    assert (noted(published, "two", "job.json")["attempt"], tree(published.reports)) == (job["attempt"], before)


def test_records_that_break_a_check_are_not_published(tmp_path: Path) -> None:
    here = clone(tmp_path)
    here.variables["FLUXBENCH_PYTHON"] = str(fake_workers.interpreter(tmp_path / "unbelievable"))
    refused = here.run("fleet", "notebooks/two.md", *LOCAL, "cpu-a")
    assert refused.returncode == 1
    assert "two on cpu-a: failed, on " in refused.stderr
    said = "errors of output out: rel_l2 must be at least that of rounding the output to bfloat16, got 0.001"
    assert said in refused.stderr
    assert not (here.reports / "cpu-a").exists()
    status = here.run("fleet", "status")
    assert (status.returncode, said in " ".join(status.stdout.split())) == (1, True)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone in which nothing has run."""
    return clone(tmp_path_factory.mktemp("empty"))


@pytest.mark.parametrize(
    ("arguments", "variables", "first", "sentence"),
    [
        (("notebooks/two.md", "--targets", "cpu-a"), {"PATH": "/none"}, bool, "a fleet must find Slurm, got no sbatch"),
        (("notebooks/two.md", *LOCAL, "h200"), {}, bool, "the targets must be of 'cpu', got 'h200'"),
        (("notebooks/two.md",), {}, bool, "a fleet must have targets, got none; "),
        (("notebooks/none.md", *LOCAL, "cpu-a"), {}, bool, "there is no notebook notebooks/none.md; those of "),
        (("notebooks/show.md", *LOCAL, "cpu-a"), {}, bool, "a notebook of a fleet must measure something, got "),
        (("notebooks/two.md", "two.md", *LOCAL, "cpu-a"), {}, bool, "notebooks of a fleet must have different names"),
        (("notebooks/two.md", *LOCAL, "cpu-a"), {}, limited(2000), "must fit in the limit of file size, got "),
    ],
)  # fmt: skip
def test_what_cannot_begin_is_one_sentence_and_leaves_nothing(
    arguments: tuple[str, ...], variables: dict[str, str], first: Callable[[], object], sentence: str, empty: Clone
) -> None:
    (empty.folder / "notebooks" / "show.md").write_text("```python id=a\nprint()\n```\n", encoding="utf-8")
    shutil.copyfile(empty.folder / "notebooks" / "two.md", empty.folder / "two.md")
    refused = empty.run("fleet", *arguments, env={**empty.variables, **variables}, preexec_fn=first)
    assert (refused.returncode, refused.stdout.count("\n"), refused.stderr.count("\n")) == (2, 0, 1)
    assert sentence in refused.stderr
    assert not [*empty.folder.glob(".fleet/*/*"), *empty.reports.iterdir(), *empty.measured()]
    status = empty.run("fleet", "status")
    assert (status.returncode, status.stdout) == (0, "No fleet has run here.\n")


def test_two_front_ends_of_one_clone_are_one_too_many(empty: Clone) -> None:
    (empty.folder / ".fleet").mkdir(exist_ok=True)
    with (empty.folder / ".fleet" / "fleet.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = empty.run("fleet", "notebooks/two.md", *LOCAL, "cpu-a")
    assert refused.returncode == 2
    assert "fluxbench: only one fleet may use " in refused.stderr

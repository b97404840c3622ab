"""A fleet on a real Slurm: what is killed, drained, requeued or restarted loses nothing and measures nothing twice."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import clusters
import pytest
from clusters import Cluster
from fleets import NOTEBOOKS, TARGETS, Clone, clone, until
from notebooks import tree

from fluxbench.fleet.pair import FOLDER, Pair
from fluxbench.fleet.slurm import job_name

pytestmark = pytest.mark.skipif(clusters.missing() is not None, reason=clusters.missing() or "")
EVERYTHING = sorted(
    f"{target} {notebook} {cell} {2 if target == 'cpu-c' else 0}"
    for target in TARGETS
    for notebook, cells in NOTEBOOKS.items()
    for cell in cells
)
MOST_KB = 100_000
MANY = 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with clusters.started(tmp_path_factory.mktemp("slurm")) as started:
        yield started


def resumed(cluster: Cluster) -> bool:
    """Resume the drained node; a controller that has just been started may refuse that for a moment."""
    try:
        cluster.ask("scontrol", "update", "NodeName=nc", "State=RESUME")
    except subprocess.CalledProcessError:
        return False
    return True


@pytest.fixture(scope="module")
def survived(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone whose fleet lost its front end, a job, a node and the controller, and was started a second time."""
    here = clone(tmp_path_factory.mktemp("survived"), **cluster.variables)
    assert here.run("site").returncode == 0
    fleet = ("fleet", *here.notebooks, "--targets", ",".join(TARGETS))
    cluster.ask("scontrol", "update", "NodeName=nc", "State=DRAIN", "Reason=test")
    killed, requeued = "cpu-a one second", "cpu-b one second"
    for cell in (killed, requeued):
        here.gate(cell, "closed").touch()
    first = here.start(*fleet)
    until(here.gate(killed, "reached").exists)
    until(here.gate(requeued, "reached").exists)
    until(lambda: len(cluster.jobs()) == len(TARGETS) * len(NOTEBOOKS))
    first.kill()
    first.wait()
    cluster.ask("scancel", "--signal=KILL", "--full", cluster.number("cpu-a-one"))
    until(lambda: "cpu-a-one" not in cluster.jobs())
    cluster.ask("scontrol", "requeue", cluster.number("cpu-b-one"))
    until(lambda: cluster.jobs()["cpu-b-one"] == "PENDING")
    cluster.ask("scontrol", "update", f"JobId={cluster.number('cpu-b-one')}", "StartTime=now")  # not in two minutes
    status = here.run("fleet", "status", "--json")
    states = {(one["target"], one["notebook"]): one["state"] for one in json.loads(status.stdout)["pairs"]}
    assert (status.returncode, states["cpu-c", "one"]) == (1, "pending")
    assert states["cpu-a", "one"] in ("lost", "failed")  # whichever of the job and its build was killed first
    second = here.start(*fleet)
    until(lambda: "one on cpu-c: pending" in here.log())
    cluster.stop("slurmctld")
    until(lambda: "Slurm must answer" in here.log())
    cluster.start_controller()
    until(cluster.is_ready)
    until(lambda: resumed(cluster))
    for cell in (killed, requeued):
        here.gate(cell, "closed").unlink()
    assert second.wait(timeout=600) == 0, here.log()
    return here


def attempts(here: Clone) -> dict[str, int]:
    files = here.fleet.glob("*/*/job.json")
    return {f"{file.parents[1].name} {file.parent.name}": json.loads(file.read_text())["attempt"] for file in files}


def test_every_page_is_complete_and_nothing_was_measured_twice(survived: Clone) -> None:
    assert survived.measured() == EVERYTHING
    for target in TARGETS:
        for notebook, cells in NOTEBOOKS.items():
            home = survived.reports / target
            assert (home / f"{notebook}.html").is_file()
            assert {path.name for path in (home / notebook / "records").glob("*.jsonl")} == {
                f"{c}.jsonl" for c in cells
            }
            assert not (home / notebook / "history").exists()


def test_only_the_killed_job_was_submitted_again(survived: Clone) -> None:
    assert [name for name, attempt in attempts(survived).items() if attempt > 1] == ["cpu-a one"]


def test_jobs_of_a_node_never_run_at_once(survived: Clone) -> None:
    for target in TARGETS:
        results = [json.loads(file.read_text()) for file in (survived.fleet / target).glob("*/result.json")]
        times = sorted((one["began_at"], one["ended_at"]) for one in results)
        assert len(times) == len(NOTEBOOKS)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))


def test_a_third_fleet_starts_nothing(survived: Clone) -> None:
    before, pages = attempts(survived), tree(survived.reports)
    third = survived.run("fleet", *survived.notebooks, "--targets", ",".join(TARGETS))
    assert (third.returncode, third.stderr) == (0, "")
    assert (attempts(survived), tree(survived.reports)) == (before, pages)
    status = survived.run("fleet", "status")
    assert (status.returncode, status.stdout.count("published")) == (0, 9)


def test_the_site_is_what_the_same_records_give_without_the_fleet(
    survived: Clone, cluster: Cluster, tmp_path: Path
) -> None:
    plain = clone(tmp_path / "plain", **survived.variables)
    plain.variables["PYTHONPATH"] = plain.variables["PYTHONPATH"].replace(str(survived.folder), str(plain.folder))
    for name in NOTEBOOKS:  # all of one target
        work = Pair(survived.folder / FOLDER, "cpu-a", name).document.parent / ".uvnote"
        shutil.copytree(work, plain.folder / "notebooks" / ".uvnote", dirs_exist_ok=True)
    assert plain.run("site").returncode == 0
    for notebook in plain.notebooks:
        published = plain.run("publish", notebook)
        assert published.returncode == 0, published.stderr
    (plain.reports / "cpu").rename(plain.reports / "cpu-a")
    for page in (plain.reports / "cpu-a").glob("*.html"):  # which links to its target's card
        page.write_bytes(page.read_bytes().replace(b'#card-cpu"', b'#card-cpu-a"'))
    for target in TARGETS[1:]:
        shutil.copytree(survived.reports / target, plain.reports / target)
    assert plain.run("site").returncode == 0
    assert tree(plain.reports) == tree(survived.reports)
    assert survived.measured() == EVERYTHING  # `plain` notes there too what it measures


def test_what_failed_leaves_its_page_and_is_built_again(survived: Clone, cluster: Cluster) -> None:
    before = tree(survived.reports)
    notebook = survived.folder / "notebooks" / "two.md"
    text = notebook.read_text(encoding="utf-8")
    notebook.write_text(text.replace('print("shown")', 'raise SystemExit("broken")'), encoding="utf-8")
    fleet = ("fleet", "notebooks/two.md", "--targets", "cpu-b")
    failed = survived.run(*fleet)
    assert failed.returncode == 1
    assert "two on cpu-b: failed, job " in failed.stderr
    assert failed.stderr.endswith(": cell shown failed: it ended with exit code 1: broken\n")
    assert tree(survived.reports) == before
    notebook.write_text(text, encoding="utf-8")
    assert survived.run(*fleet).returncode == 0
    assert survived.measured() == EVERYTHING


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("cpu-unknown", "the partition of target 'cpu-unknown' must be one of pa, pb, pc, pfar, got 'nowhere'; "),
        ("cpu-other", "the constraint of target 'cpu-other' must be a feature of its nodes (fa), got 'fz'; "),
        ("cpu-many", "the GPUs of target 'cpu-many' must be those of one node, at most 2, got 3; "),
        ("cpu-far", "must be on a file system that the nodes share, got "),
        ("cpu", "target 'cpu' must have a request in environment/targets.toml, got none; "),
        ("cpu-typo", "slurm of target 'cpu-typo' in environment/targets.toml must hold a partition and a constraint "),
        ("../cpu", "a target's name must be at most 64 letters, digits, '.', '_' and '-', and not end in .html, got "),
    ],
)
def test_what_cannot_run_is_one_sentence_before_any_job_starts(
    target: str, sentence: str, survived: Clone, cluster: Cluster
) -> None:
    before, pages = attempts(survived), tree(survived.reports)
    refused = survived.run("fleet", *survived.notebooks, "--again", "--targets", f"cpu-a,{target}")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert sentence in refused.stderr
    assert (attempts(survived), tree(survived.reports), cluster.jobs()) == (before, pages, {})


def test_another_user_s_job_of_the_same_name_is_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    here = clone(tmp_path, **cluster.variables)
    name = job_name(Pair(here.folder / FOLDER, "cpu-a", "two"))
    cluster.ask("sbatch", "--uid=nobody", "--hold", "--chdir=/", f"--job-name={name}", "--wrap=true")
    refused = here.run("fleet", *here.notebooks, "--targets", "cpu-a")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert f"job {name} must be yours, got job " in refused.stderr
    assert (len(cluster.jobs()), tree(here.reports)) == (1, {})
    cluster.ask("scancel", f"--name={name}", "--user=nobody")


def test_a_job_that_sbatch_refuses_is_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    here = clone(tmp_path, **cluster.variables, SBATCH_RESERVATION="none-such")
    refused = here.run("fleet", "notebooks/two.md", "--targets", "cpu-a")
    assert refused.returncode == 2
    assert refused.stderr.startswith("fluxbench: sbatch must accept the job of two on cpu-a, got sbatch: error: ")
    assert (refused.stderr.count("\n"), cluster.jobs(), tree(here.reports)) == (1, {}, {})


def children(pid: int) -> list[str]:
    listed = subprocess.run(["ps", "-o", "comm=", "--ppid", str(pid)], capture_output=True, encoding="utf-8")
    return listed.stdout.split()


def test_two_hundred_queued_jobs_cost_one_process_and_little_memory(cluster: Cluster, tmp_path: Path) -> None:
    here = clone(tmp_path, **cluster.variables)
    cluster.ask("scontrol", "update", "NodeName=nc", "State=DRAIN", "Reason=test")
    text = (here.folder / "notebooks" / "two.md").read_text(encoding="utf-8")
    notebooks = [f"notebooks/n{number}.md" for number in range(MANY)]
    for notebook in notebooks:
        (here.folder / notebook).write_text(text, encoding="utf-8")
    with here.start("fleet", *notebooks, "--targets", "cpu-c") as front:
        until(lambda: f"n{MANY - 1} on cpu-c: pending" in here.log(), 240)
        status = Path(f"/proc/{front.pid}/status").read_text(encoding="utf-8")
        [peak] = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
        until(lambda: children(front.pid) == [])  # now and then it asks Slurm; no process stays for a job
        front.terminate()
    facts = cluster.ask("scontrol", "show", "job", cluster.number("cpu-c-n0")).split()
    # 46 minutes: 15 to install, 30 for a cell that was never run, one for the cell that shows.
    assert {"OverSubscribe=NO", "Requeue=1", "TimeLimit=00:46:00", "Partition=pc"} <= set(facts)
    assert any(re.fullmatch(r"TresPerNode=\S*gpu:2", fact) for fact in facts)
    assert len(cluster.jobs()) == MANY
    assert 10_000 < peak < MOST_KB
    cluster.ask("scancel", "--user=root")

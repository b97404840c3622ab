"""One notebook on one target: its folder on the shared file system, and what is known there about its job.

<repository>/.fleet/
  code/<hash>/{shared,environment}        what builds run, never changed
  targets/<target>/<notebook>/
    work/{shared,environment}             links to one of code/
    work/notebooks/                       the notebook, with its results in .uvnote/ as any build leaves them
    cache/, site/                         of its builds
    job.json                              written by the front end: `Job`
    result.json                           written by the job when its build ended: `Result`
    build.log, logs/                      what the build printed; what submitit leaves
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from fluxbench.core import strict
from fluxbench.core.files import write_text

FOLDER = ".fleet"
_TARGETS = "targets"
T = TypeVar("T", bound=msgspec.Struct)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The last job of a pair. `attempt` counts them from 1; `id` is missing while it is submitted."""

    attempt: int
    code: str  # a hash of all that it builds from
    cluster: str
    submitted_at: str  # UTC, ISO 8601
    id: str | None = None
    is_published: bool = False
    refused: tuple[str, ...] = ()  # why its records were not published, a sentence each


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How the build of a job ended."""

    attempt: int
    exit_code: int
    host: str
    began_at: str  # UTC, ISO 8601
    ended_at: str
    problems: tuple[str, ...]  # a sentence each


@dataclass(frozen=True)
class Pair:
    """A notebook on a target."""

    fleet: Path  # the folder of all pairs
    target: str
    notebook: str  # its name, without .md

    @property
    def home(self) -> Path:
        """The folder of all that is the pair's own."""
        return self.fleet / _TARGETS / self.target / self.notebook

    @property
    def work(self) -> Path:
        """What stands for the repository in a job."""
        return self.home / "work"

    @property
    def document(self) -> Path:
        """The notebook that a job builds."""
        return self.work / "notebooks" / f"{self.notebook}.md"

    @property
    def site(self) -> Path:
        """Where a job draws."""
        return self.home / "site"

    @property
    def logs(self) -> Path:
        """What submitit keeps: the pickled call and what a job prints."""
        return self.home / "logs"

    def __str__(self) -> str:
        """Return its name in messages."""
        return f"{self.notebook} on {self.target}"

    def job(self) -> Job | None:
        """Return what was noted of the last job; None where there was none, or its file is damaged."""
        return _read(self.home / "job.json", Job)

    def note(self, job: Job) -> None:
        """Keep what is known of the last job. Raises `OSError`."""
        self.home.mkdir(parents=True, exist_ok=True)
        write_json(self.home / "job.json", job)

    def result(self, job: Job) -> Result | None:
        """Return how a job's build ended; None where it did not end."""
        list(self.home.iterdir())  # NFS asks the server again for the names in a folder that is opened
        result = _read(self.home / "result.json", Result)
        return result if result and result.attempt == job.attempt else None


def known(fleet: Path) -> Iterator[Pair]:
    """Yield the pairs that have had a job, by target and notebook."""
    for path in sorted((fleet / _TARGETS).glob("*/*/job.json")):
        yield Pair(fleet, path.parents[1].name, path.parent.name)


def write_json(path: Path, value: msgspec.Struct) -> None:
    """Replace a file by a value as JSON, in one step. Raises `OSError`."""
    write_text(path, msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")


def _read(path: Path, type_: type[T]) -> T | None:
    try:
        return strict.read(path, type_)
    except (OSError, strict.MalformedError):
        return None

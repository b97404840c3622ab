"""The page of a build that goes on: drawn from what is measured so far, after each measuring cell.

What showing cells give meanwhile is kept apart from their results and removed at the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from uvnote.parser import CodeCell

from fluxbench import studies
from fluxbench.bench import early
from fluxbench.core.errors import SetupError, refusal
from fluxbench.core.formatting import utc
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.environments import cell
from fluxbench.notebook.execution import Place, run_cell
from fluxbench.notebook.freshness import Freshness, State, depends_on
from fluxbench.notebook.snapshot import Interrupted, Pending, Snapshot, StoppedError
from fluxbench.notebook.store import Result, Run
from fluxbench.records import fingerprint, method
from fluxbench.records.status import Status

_RELOAD_S = 10  # a browser that shows an unfinished page loads it again after so many seconds


class GrowingPage:
    """The page of one build. `place` adds results to a store of its own, which does not last."""

    def __init__(
        self,
        codes: Sequence[CodeCell],
        place: Place,
        device: Device,
        settings: Settings,
        output: Path,
        note: Callable[[str], None],
    ) -> None:
        self._place, self._device, self._settings, self._output, self._note = place, device, settings, output, note
        document = place.document
        self._showing = [code for code in codes if cell.uses_fluxbench(code.code) and not document.is_measuring(code)]
        self._measuring = [code.id for code in document.cells if document.is_measuring(code)]
        self._drawn: dict[str, Result] = {}
        self._early: dict[str, Result] = {}  # by cell, while it measures
        self._snapshot: Snapshot | None = None  # of the page that is there

    def grow(self, snapshot: Snapshot, at_once: int, check: Interrupted) -> None:
        """Draw figures where there are new measurements, `at_once` of them, and write the page.

        What cannot be drawn is a note. Raises what `check` raises.
        """
        if snapshot.has_new_figures:
            self._draw(snapshot, at_once, check)
        check()
        self.write(snapshot)

    def has_times(self, snapshot: Snapshot) -> bool:
        """Return whether there is a record with a time that the page shows."""
        results = (self._input(cell_id, snapshot) for cell_id in self._measuring)
        return any(record.status is Status.PASSED for result in results if result for record in result.records or ())

    def begin(self, code: CodeCell, folder: Path, snapshot: Snapshot, at_once: int, check: Interrupted) -> None:
        """Draw figures of the early records in the folder of a cell that goes on, and write the page.

        Raises as `grow`.
        """
        with self._noting():
            run = Run(
                success=True,
                stdout="",
                stderr="",
                duration=0.0,
                artifacts={},
                failure=None,
                ran_at=datetime.now(UTC).isoformat(timespec="seconds"),
                depends={},
                inputs={},
            )
            self._early[code.id] = self._place.added_to.add(code.id, run, folder / early.FOLDER, [f"{code.id}.jsonl"])
            self._draw(snapshot, at_once, check)
            check()
            self.write(snapshot)

    def write(self, snapshot: Snapshot) -> None:
        """Write the page as it is without drawing anything."""
        self._snapshot = snapshot
        left = "" if snapshot.left_s is None else f", about {_minutes(snapshot.left_s)} left"
        now = utc(datetime.now(UTC).isoformat(timespec="seconds"))
        text = (
            f"{self._measured(snapshot)} measured{left}. {self._of_early(snapshot)}This page of {now} is not "
            "finished, and reloads itself until it is."
        )
        self._write(snapshot, text, _RELOAD_S)

    def stay(self) -> None:
        """Say on the page, where one was written, that its build ended before it was finished."""
        if self._snapshot:
            text = (
                f"The build was stopped with {self._measured(self._snapshot)} measured. "
                f"{self._of_early(self._snapshot)}Another one goes on from there."
            )
            self._write(self._snapshot, text, None)

    def _of_early(self, snapshot: Snapshot) -> str:
        names = [cell_id for cell_id in self._early if cell_id in snapshot.pending]
        if not names:
            return ""
        return f"Of {', '.join(names)} it shows one process of the first variants, not checked on all inputs yet. "

    def _measured(self, snapshot: Snapshot) -> str:
        done = [cell_id for cell_id in self._measuring if cell_id not in snapshot.pending]
        return f"{len(done)} of {len(self._measuring)} cells"

    def _write(self, snapshot: Snapshot, text: str, reload_s: int | None) -> None:
        from fluxbench.notebook.page.draw import Banner, draw  # which takes longer to load than all the rest

        shown = {
            cell_id: Freshness(state=State.FRESH, reasons=(), result=drawn)
            for cell_id, drawn in self._drawn.items()
            if cell_id in snapshot.pending
        }
        to_come = {cell_id: Pending() for cell_id in snapshot.pending if cell_id not in shown}
        with self._noting():
            draw(
                self._place.document,
                {**snapshot.cells, **shown},
                {**snapshot.failures, **to_come},
                self._output,
                banner=Banner(text, reload_s),
            )

    def _draw(self, snapshot: Snapshot, at_once: int, check: Interrupted) -> None:
        """Run the showing cells, each after those that it needs."""
        ahead = [code for code in self._showing if code.id in snapshot.pending]
        with ThreadPoolExecutor(at_once) as pool:
            while ahead:
                ids = {code.id for code in ahead}
                ready = [code for code in ahead if not ids & set(code.needs)]
                if not ready:
                    return
                ahead = [code for code in ahead if code not in ready]
                list(pool.map(lambda code: self._draw_cell(code, snapshot, check), ready))

    def _draw_cell(self, code: CodeCell, snapshot: Snapshot, check: Interrupted) -> None:
        inputs = {need: result for need in code.needs if (result := self._input(need, snapshot))}
        if not inputs:
            return
        contents = {need: result.run.sha256 for need, result in inputs.items()}
        before = self._drawn.get(code.id)
        if before and before.run.contents == contents:
            return
        check()
        with self._noting():
            document = self._place.document
            depends = depends_on(code, document, self._device, self._settings)
            result = run_cell(code, self._place, inputs, depends, lambda _: check(), gives_way=True)
            if result.run.failure:
                raise SetupError(f"cell {code.id} failed: {result.run.failure}")
            self._drawn[code.id] = result

    def _input(self, need: str, snapshot: Snapshot) -> Result | None:
        """Return what a needed cell gave: in this build, or before where it is still to run and fits what it will give.

        That of another device, method or workload does not.
        """
        if need in self._early and need in snapshot.pending:
            return self._early[need]
        result = self._drawn.get(need) or snapshot.cells[need].shown
        if not result or need not in snapshot.pending or need in self._drawn:
            return result
        records = result.records or ()
        if not records:
            return result
        now = fingerprint.of_device(self._device)
        is_other = any(fingerprint.another_device(one.fingerprint, now) for one in records)
        versions = {(one.cell, one.method_version) for one in records}
        return result if not is_other and all(self._is_present(*each) for each in versions) else None

    def _is_present(self, cell_id: str, version: int) -> bool:
        """Whether times by a method version were taken as a cell would take them now."""
        apart = False
        with contextlib.suppress(SetupError):  # of a cell that is refused when it is to run
            codes = (code for code in self._place.document.cells if code.id == cell_id)
            apart = any(studies.find(cell.parse(code.code, code.id).study).unlike_lengths for code in codes)
        return method.is_present(version, on_gpu=self._device.kind == "cuda", apart=apart)

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Turn any error into a note: no page that is not finished is worth what is being measured."""
        try:
            yield
        except StoppedError:
            raise
        except Exception as error:  # noqa: BLE001
            self._note(f"the unfinished page could not be drawn: {refusal(error) or repr(error)}")


def _minutes(seconds: float) -> str:
    return f"{round(seconds / 60)} min" if seconds >= 90 else f"{max(10, round(seconds, -1)):.0f} s"

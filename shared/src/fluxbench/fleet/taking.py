"""Takes what a job measured into `reports/`, whole or not at all, by the checks of `fluxbench add`."""

from __future__ import annotations

from pathlib import Path

from fluxbench.analysis.verification.origin import device_of
from fluxbench.core.settings import Settings
from fluxbench.device import targets
from fluxbench.device.model import Device
from fluxbench.fleet.pair import Pair
from fluxbench.notebook.build import Built
from fluxbench.notebook.document import load
from fluxbench.notebook.freshness import Freshness, State
from fluxbench.notebook.publish import publish
from fluxbench.notebook.store import Store
from fluxbench.records import files
from fluxbench.site import intake


def take(pair: Pair, settings: Settings, reports: Path) -> tuple[str, ...]:
    """Publish a pair's page from its results, or return a sentence for each reason not to.

    The page is the one that `fluxbench publish` would make on the node. A notebook whose cells leave no records, such
    as the certificate, has nothing to check. Raises `SetupError`, `OSError`; what is published stays then.
    """
    document = load(pair.document)
    measuring = [code for code in document.cells if document.is_measuring(code)]
    device = Device(kind="", name="an unnamed device")
    if any(output.endswith(files.SUFFIXES) for code in measuring for output in code.outputs):
        checked = intake.check(pair.site, reports, replaced=reports / pair.target / pair.notebook)
        if checked.problems:
            return checked.problems
        device = device_of(checked.cells[0].records[0])
    store = Store(document)
    results = {code.id: store.last_good(code.id) for code in document.cells}
    if missing := [cell_id for cell_id, result in results.items() if result is None]:
        return (f"each cell must have a result, got none of {', '.join(missing)}",)
    built = Built(
        page=pair.site / f"{pair.notebook}.html",
        document=document,
        device=device,
        target=targets.named(pair.target, settings.root),
        cells={id_: Freshness(state=State.FRESH, reasons=(), result=result) for id_, result in results.items()},
        before={},
        problems=(),
    )
    publish(built, reports, pair.target)
    return ()

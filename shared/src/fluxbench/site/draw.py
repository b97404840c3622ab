"""Draw the site into `reports/`: both pages or neither. No device, no torch."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fluxbench.analysis.verification.verify import verify
from fluxbench.core.errors import SetupError
from fluxbench.site import compare, index
from fluxbench.site.collect import Check, Target, collect


@dataclass(frozen=True, kw_only=True)
class Site:
    """What was drawn."""

    index: Path
    targets: tuple[Target, ...]

    @property
    def problems(self) -> list[str]:
        """A sentence for each thing that the pages leave out."""
        return [problem for target in self.targets for problem in target.problems]


def draw(reports: Path, check: Check = verify) -> Site:
    """Draw `index.html` and `compare.html` from the records below a folder.

    Records in which `check` finds a problem are left out. Raises `SetupError` where it is no folder, `OSError` where
    the pages cannot be written; those before stay then.
    """
    if not reports.is_dir():
        raise SetupError(f"the reports must be a folder, got {reports}")
    targets = tuple(collect(reports, check))
    _replace(reports, {"index.html": index.draw(targets), "compare.html": compare.draw(targets)})
    return Site(index=reports / "index.html", targets=targets)


def _replace(folder: Path, pages: Mapping[str, str]) -> None:
    """Write all pages aside, then put them in place."""
    aside = {folder / f".{name}.new": folder / name for name in pages}
    try:
        for new, page in aside.items():
            if page.is_dir():
                raise IsADirectoryError(errno.EISDIR, "a folder is where the page must go", str(page))
            new.write_text(pages[page.name], encoding="utf-8")
        for new, page in aside.items():
            new.replace(page)
    finally:
        for new in aside:
            new.unlink(missing_ok=True)

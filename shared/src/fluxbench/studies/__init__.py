"""Studies: what a notebook measures, against which reference, and what it shows.

To add one: a file here with a `STUDY`, its notebook, and a test. One outside of this package is named
`module:attribute`, for a module that cells and workers can import.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from fluxbench.core.errors import SetupError
from fluxbench.studies.study import Study

NAMES = {
    module.name: f"{__name__}.{module.name}:STUDY"
    for module in pkgutil.iter_modules(__path__)
    if module.name != "study"  # which says what a study is
}


def find(name: str) -> Study:
    """Return a study. Raises `SetupError` with a sentence where there is none."""
    module, _, attribute = NAMES.get(name, name).partition(":")
    if not attribute:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the studies are {', '.join(NAMES)}"
        raise SetupError(f"study must be a known name or module:attribute, got {name!r}; {hint}")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:  # a workload that its operation cannot make
        raise SetupError(f"study {name!r} cannot be loaded: {error}") from error
    if not isinstance(found, Study):
        raise SetupError(f"study {name!r} must be a fluxbench.studies.study.Study, got {type(found).__name__}")
    return found

"""Kernels of the Hugging Face hub, through the package `kernels`: trusted, signed and fit for this machine, or refused.

`LOCAL_KERNELS=owner/name=FOLDER` (the package's own variable) puts a local copy in the place of a repository; whoever
sets it vouches for the copy, so neither publisher nor signature is looked at.
"""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

# Where `kernels lock shared` writes the revision of each repository that shared/pyproject.toml names.
LOCK = Path(__file__).resolve().parents[3] / "kernels.lock"
_LONGEST = 130  # characters of the library's own words
_found: dict[str, ModuleType | str] = {}  # by repository: the kernel, or why there is none


def load(repository: str, version: int) -> ModuleType:
    """Return the kernel's module, of the locked revision or else the newest of this major version.

    The hub is asked once, for the process. Raises `ImportError` with one sentence, the library's words and what to do,
    where it cannot be had or is not to be trusted.
    """
    if repository not in _found:
        _found[repository] = _load(repository, version)
    found = _found[repository]
    if isinstance(found, str):
        raise ImportError(found)
    return found


def _load(repository: str, version: int) -> ModuleType | str:
    from kernels import get_kernel

    copy = _local(repository)
    try:
        which = _which(repository, version)
        if copy is None:
            _print_builds(repository, which)
            _verify(repository, which)
        module: ModuleType = get_kernel(repository, **which)
        return module
    except Exception as error:  # noqa: BLE001 - network, hub, signatures and the kernel's own import raise what they like
        traceback.print_exc()
        advice = "name another in LOCAL_KERNELS" if copy else "name a copy that you trust in LOCAL_KERNELS"
        words = re.sub(r"https?://\S+", "the hub", _words(error))
        words = words.replace(copy, "the local copy") if copy else words
        short = words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
        return f"{repository}: {short}; {advice}"


def loaded(repository: str) -> str | None:
    """Return which build of a kernel was loaded, of which revision; None before `load`."""
    from kernels import get_loaded_kernels

    for kernel in get_loaded_kernels():
        if kernel.module is _found.get(repository):
            folder = Path(str(vars(kernel.module)["__file__"])).parent
            build = folder if (folder / "metadata.json").is_file() else folder.parent  # an older layout
            where = f"revision {kernel.repo_info.revision}" if kernel.repo_info else "a local copy, not verified"
            return f"{repository} v{kernel.metadata.version}, build {build.name}, {where}"
    return None


def _local(repository: str) -> str | None:
    """Return the folder that LOCAL_KERNELS names for a repository, or None."""
    entries = (entry.partition("=") for entry in os.environ.get("LOCAL_KERNELS", "").split(":"))
    return next((folder for name, _, folder in entries if name == repository), None)


def _which(repository: str, version: int) -> dict[str, Any]:
    if not LOCK.is_file():
        return {"version": version}
    from kernels.locking import get_locked_kernel_revision

    locked, dependency = get_locked_kernel_revision(repository, LOCK)
    return {"revision": locked[dependency].commit}


def _print_builds(repository: str, which: dict[str, Any]) -> None:
    """Print every build of a kernel and why it does not fit, for the log of the process."""
    from kernels import get_kernel_variants

    for decision in get_kernel_variants(repository, **which):
        print(f"{repository}: {decision.variant.variant_str}: {getattr(decision, 'reason', 'fits')}")


def _verify(repository: str, which: dict[str, Any]) -> None:
    """Download the build that fits and raise `ValueError` where its publisher's signature does not hold."""
    from kernels import install_kernel
    from kernels.verify import VerificationResult, verify_variant

    result = verify_variant(install_kernel(repository, **which))  # which refuses a publisher that is not trusted
    if isinstance(result, VerificationResult.SignatureBundleMissing):
        raise ValueError("its build is not signed")
    if not isinstance(result, VerificationResult.Success):
        raise ValueError(f"its build's signature does not hold: {type(result).__name__}")


def _words(error: BaseException) -> str:
    """Return the first sentence of an error; of a list of builds the first, and of a hidden cause its words as well."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if "Cannot find a build variant" in lines[0]:
        return f"none of its {len(lines) - 1} builds fits: {lines[1]}" if lines[1:] else "it has no builds"
    first = re.split(r"\. (?=[A-Z])", lines[0])[0].rstrip(".:")
    if any(re.search("Connect|Timeout", each.__name__) for each in type(error).__mro__):
        return f"the hub cannot be reached: {first}"
    cause = error.__context__
    return f"{first} ({_words(cause)})" if cause and "could not verify" in first else first

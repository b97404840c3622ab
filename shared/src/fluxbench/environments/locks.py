"""What an environment is to hold: the lock of the target's torch, and a library's own lock on top of it."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device.targets import Target


@dataclass(frozen=True, kw_only=True)
class Locks:
    """Files of `environment/locks`: requirements with their versions and hashes."""

    torch: Path
    library: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """Return them all."""
        return (self.torch, self.library) if self.library else (self.torch,)

    def requirements(self) -> dict[str, str]:
        """Return each package's requirement with its hashes, as its lock writes it."""
        found = {}
        for lock in self.files:
            for requirement in re.split(r"(?m)^(?=[\w.-]+==)", lock.read_text(encoding="utf-8"))[1:]:
                found[requirement.partition("==")[0]] = requirement
        return found

    def pins(self) -> dict[str, str]:
        """Return the version of each package."""
        return {name: _version(requirement) for name, requirement in self.requirements().items()}

    def library_pins(self) -> dict[str, str]:
        """Return the version of each package that the library's own lock holds."""
        return _pins(self.library) if self.library else {}

    def wrong(self, packages: tuple[str, ...]) -> str | None:
        """Say which of a cell's packages, each `name==version`, is locked in another version or not at all.

        A local build (`torch==2.13.0+cpu`) counts as its release.
        """
        pins = self.pins()
        for package in packages:
            name, version = package.split("==")
            if pins.get(name, "").split("+")[0] != version:
                where = " or ".join(lock.name for lock in self.files)
                return f"{where} must lock {package}, got {pins.get(name, 'nothing')}; update it with `make lock`"
        return None

    def on_torch(self, packages: tuple[str, ...]) -> tuple[str, ...]:
        """Return a cell's packages with the version that torch's lock holds of each; the others as they are."""
        pins = _pins(self.torch)
        names = [package.split("==")[0] for package in packages]
        return tuple(
            f"{name}=={pins[name].split('+')[0]}" if name in pins else package
            for name, package in zip(names, packages, strict=True)
        )


def of(target: Target, library: str | None, settings: Settings, find_links: str) -> Locks:
    """Return the locks of an environment; `library` names a file of `environment/locks` without its `.txt`.

    Of the target's locks, or of those of the torch that the settings name, the first is taken whose local builds
    (`torch==2.13.0+cpu`) are all offered here: a registry holds no local builds, they come from the folders that
    `find_links` names, separated by commas. A library's lock fits every torch (`make lock`). Raises `SetupError` where
    there is none.
    """
    folder = settings.root / "environment" / "locks"
    own = folder / f"{library}.txt" if library else None
    if own and not own.is_file():
        raise SetupError(
            f"a cell's lock must be a file of environment/locks, got {library!r}; write it with `make lock`"
        )
    chosen = f"torch-{settings.torch}.txt"
    files = (chosen,) if settings.torch and chosen not in target.locks else target.locks
    folders = [Path(folder) for folder in find_links.split(",") if folder]
    offered = [wheel.name for folder in folders if folder.is_dir() for wheel in folder.glob("*.whl")]
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for file in files:
        local = {name: version for name, version in _pins(folder / file).items() if "+" in version}
        if all(
            any(wheel.startswith(f"{name}-{version}-{tag}-") for wheel in offered) for name, version in local.items()
        ):
            return Locks(torch=folder / file, library=own)
    raise SetupError(
        f"the locks of target {target.name!r} need wheels that no folder offers; name their folder in UV_FIND_LINKS"
    )


def not_offered(pins: Iterable[str], wheels: Path | None) -> str | None:
    """Return which of these, each `name==version`, have no wheel in the folder, in words; None where all have one."""
    files = [wheel.name.lower() for wheel in wheels.glob("*.whl")] if wheels else []
    stems = {pin: pin.replace("-", "_").replace("==", "-").lower() for pin in pins}
    absent = [
        pin for pin, stem in stems.items() if not any(file.startswith((f"{stem}-", f"{stem}+")) for file in files)
    ]
    return (" and ".join(absent) if len(absent) <= 4 else f"{', '.join(absent[:3])} and {len(absent) - 3} more") or None


def name_and_hash(lock: Path) -> str:
    """Return by what a result knows a lock."""
    return f"{lock.name} {hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"


def _pins(lock: Path) -> dict[str, str]:
    return Locks(torch=lock).pins()


def _version(requirement: str) -> str:
    return re.split(r"[\s;\\]", requirement.partition("==")[2], maxsplit=1)[0]

"""Which times may be compared: an explicit version of the way in which they are taken.

Staleness follows the hashes of the measuring code (`records.fingerprint`): whatever changes there is measured again.
Whether two times may be compared follows this number alone. It is raised by hand when a change moves times, so that
moving or renaming a file loses no history.
"""

from __future__ import annotations

from collections.abc import Mapping

METHOD_VERSION = 13
_OF_A_CPU = 10  # whose times are taken as in that version
_OF_ALIKE = 12  # likewise of a GPU where all sustained blocks of a process hold the same workloads
WITHOUT_PAUSE = 10  # from which on the device does not wait for the host between a GPU's sustained windows
EACH_PROFILES = 12  # from which on each process of a GPU tells which kernels ran

VERSIONS = {
    1: "single calls under load, all variants of a cell in turn",
    2: "the control kernel beside them",
    3: "burst and sustained apart, each variant by itself",
    4: "contents of inputs change, rolls and powers of two; one sustained block through all workloads",
    5: "48 burst rounds, rests of half a round; workers wait while others measure",
    6: "rests of a quarter of a round, the spin by the card's own highest clock",
    7: "fresh contents in timed rounds, sustained means",
    8: "the reference's block as long as any other, CUDA graphs of launch-bound calls, paired rounds on a CPU",
    9: "CUDA graphs of all sustained calls that can be captured",
    10: "no pause between sustained windows",
    11: "burst calls of unlike lengths apart, the shortest first; models' steps for whole periods of the limit",
    12: "nothing is profiled before a process's last time is taken; each replay of a model's steps follows another",
    13: "a sustained block holds calls of about one length",
}
_SAME_BURST = {9: 8, 10: 8, 13: 12}  # burst times are taken as in that version
_SAME_SUSTAINED = {9: 8}  # a GPU's sustained times are, where calls are CUDA graphs on both sides or on neither
UNKNOWN = 0  # of records that do not say; comparable with nothing

# Records of schema 1 have the hashes of the files that made their times, here of timing.py, by version.
_TIMING_HASH = {
    "8ffb79f31508": 2,
    "e38a3ef67733": 3,
    "981803ca78ce": 4,
    "51daee6578ae": 5,
    "32fa18e15cde": 6,
    "d8cdf50cde0e": 6,
}
_FIRST_MEASURING_HASH = "23b14264b57d6b90aa26899686fb4b806d4f8282ddec2b25a5195f65c8f1c72f"  # one hash of all files


def words(version: int) -> str:
    """Return a version with what it changed: `2 (the control kernel beside them)`; "unknown" of a record without."""
    if version == UNKNOWN:
        return "unknown"
    return f"{version} ({VERSIONS.get(version, 'of a newer fluxbench')})"


def present(*, on_gpu: bool, apart: bool = False) -> int:
    """Return the version of what is measured now; `apart`: processes have several sustained blocks of a variant."""
    return _OF_A_CPU if not on_gpu else METHOD_VERSION if apart else _OF_ALIKE


def is_present(version: int, *, on_gpu: bool, apart: bool) -> bool:
    """Whether it may be that of what is measured now; not `apart`: lengths that the settings name may be unlike."""
    return version in {present(on_gpu=on_gpu, apart=each) for each in {apart, True}}


def of_burst(version: int) -> int:
    """Return the first version whose burst times are taken as in this one."""
    return _SAME_BURST.get(version, version)


def burst_alike(version: int) -> list[int]:
    """Return the other versions whose burst times are taken as in this one."""
    return [other for other in VERSIONS if other != version and of_burst(other) == of_burst(version)]


def of_sustained(version: int, *, on_gpu: bool) -> int:
    """Return the first version whose sustained times are taken as in this one, of calls that are timed alike."""
    return _SAME_SUSTAINED.get(version, version) if on_gpu else of_burst(version)


def of_schema_1(fingerprint: Mapping[str, object]) -> int:
    """Return the version by which a record of schema 1 was measured, from its hashes; `UNKNOWN` where it has none."""
    if fingerprint.get("measuring_sha256") == _FIRST_MEASURING_HASH:
        return 1
    return _TIMING_HASH.get(str(fingerprint.get("code.timing.py")), UNKNOWN)

"""In what two results differ, a phrase each; whether their times may be compared; and what code they depend on."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from published import schema1
from sample_records import CPU, H200

from fluxbench.device.model import Device
from fluxbench.records import fingerprint
from fluxbench.records.fingerprint import Fingerprint, another_device, differences, not_comparable
from fluxbench.records.method import METHOD_VERSION, UNKNOWN, VERSIONS

PACKAGE = Path(fingerprint.__file__).parents[1]
GPU = dataclasses.replace(H200, driver="580.65.06", power_limit_w=None, cpu="made-up CPU", cores=2)
NEWER = dataclasses.replace(GPU, driver="580.159.04")
TIMING, FLEX = {"code.timing": "changed"}, {"code.variants/flex.py": "changed"}


def marks(changes: Mapping[str, str | None] | None = None, device: Device = GPU) -> Fingerprint:
    """Return a made-up fingerprint on a device, of which this is otherwise; None takes a field away."""
    found = {
        **fingerprint.of_device(device),
        "way": "uv",
        "python": "3.11.7",
        "lock": "torch.txt 0123456789ab",
        "package.torch": "2.11.0",
        "package.numpy": "2.4.6",
        "workloads": "flux1-1024px-t512",
        "left_out": "",
        "cell": "aaaaaaaaaaaa",
        "code.timing": "bbbbbbbbbbbb",
        "code.worker": "cccccccccccc",
        "code.variants/flex.py": "dddddddddddd",
        **(changes or {}),
    }
    return {key: value for key, value in found.items() if value is not None or key not in (changes or {})}


def on(**changes: object) -> Fingerprint:
    """Return the fingerprint on a GPU of which this is otherwise."""
    return marks(device=dataclasses.replace(GPU, **changes))  # type: ignore[arg-type]


def phrases(before: Fingerprint, now: Fingerprint) -> list[str]:
    return [str(difference) for difference in differences(before, now)]


@pytest.mark.parametrize(
    ("now", "phrase"),
    [
        (marks(device=NEWER), "driver 580.65.06 -> 580.159.04"),
        (on(driver=None), "driver 580.65.06 -> none"),
        (on(power_limit_w=600.0), "power limit in W none -> 600.0"),
        (on(ecc=False), "ECC none -> False"),
        (on(cpu="another CPU"), "CPU made-up CPU -> another CPU"),
        (marks({"python": "3.12.3"}), "Python 3.11.7 -> 3.12.3"),
        (marks({"package.triton": "3.7.1"}), "triton none -> 3.7.1"),
        (marks({"package.numpy": None}), "numpy 2.4.6 -> none"),
        (marks({"workloads": "flux1-512px-t512"}), "workloads flux1-1024px-t512 -> flux1-512px-t512"),
        (marks({"other_results": "flux.sdpa.2"}), "results of other notebooks none -> flux.sdpa.2"),
        (marks({"cell": "changed"}), "the cell's source changed"),
        (marks(TIMING), "timing changed"),
        (marks(FLEX), "variants/flex.py changed"),
        (marks({"code.variants/flex.py": None}), "variants/flex.py is no longer used"),
        (marks({"code.made_up": "new"}), "made_up is now used"),
        (marks({"lock": "torch.txt changed"}), "lock torch.txt changed"),
        (marks({"lock": "torch+cpu.txt 0123456789ab"}), "lock torch.txt -> torch+cpu.txt"),
    ],
)
def test_what_differs_is_one_phrase(now: Fingerprint, phrase: str) -> None:
    assert phrases(marks(), now) == [phrase]


def test_what_is_named_where_several_things_differ() -> None:
    assert phrases(on(card="a1"), on(card="b2")) == ["card of this model a1 -> b2"]
    assert phrases(on(), on(card="b2")) == phrases(on(card="a1"), on()) == []
    changed = {"lock": "torch.txt changed"}
    assert phrases(marks(), marks({**changed, "package.torch": "2.13.0"})) == ["torch 2.11.0 -> 2.13.0"]
    assert phrases(marks(), marks({**changed, **TIMING})) == ["lock torch.txt changed", "timing changed"]
    other = dataclasses.replace(
        NEWER, name="Other", compute_capability=(10, 0), power_limit_w=6.0, cores=64, ecc=True, cpu="b", cuda="13.1"
    )
    assert phrases(marks(), marks({"package.torch": "2.13.0"}, other)) == [
        "measured on another device: NVIDIA H200 -> Other",
        "torch 2.11.0 -> 2.13.0",
    ]
    now = marks({"package.torch": "2.13.0", "cell": "changed", **TIMING, **FLEX}, NEWER)
    found = differences(marks(), now)
    assert [difference.key for difference in found] == ["driver", "package.torch", "cell", *TIMING, *FLEX]
    assert (found[1].before, found[1].now) == ("2.11.0", "2.13.0")


def test_of_an_older_fluxbench_what_both_hold_is_said_and_no_code() -> None:
    older = {**schema1()["fingerprint"], "driver": "580.65.06"}
    newer = {key: value for key, value in older.items() if not key.startswith("code.")} | {"driver": "590.1", **TIMING}
    assert phrases(older, newer) == ["measured by an older fluxbench", "driver 580.65.06 -> 590.1"]
    assert phrases(newer, older) == ["measured by a newer fluxbench", "driver 590.1 -> 580.65.06"]
    first = schema1(method=1)["fingerprint"]
    assert phrases(first, {**newer, "driver": first["driver"]})[0] == "measured by an older fluxbench"
    assert "measured by an older fluxbench" in phrases({}, marks())


@pytest.mark.parametrize(
    ("before", "now", "sides"),
    [
        (marks(), marks(device=CPU), ("NVIDIA H200", "AMD EPYC 9B14")),
        (on(mig=False), on(mig=True), ("mig False", "mig True")),
        (marks(), on(compute_capability=(10, 0)), ("compute_capability 9.0", "compute_capability 10.0")),
        (marks(device=CPU), marks(device=dataclasses.replace(CPU, cores=4)), ("cpu_cores 8", "cpu_cores 4")),
        (
            marks(device=dataclasses.replace(CPU, instruction_sets=("avx2", "avx512f"))),
            marks(device=dataclasses.replace(CPU, instruction_sets=("avx2",))),
            ("instruction_sets avx2 avx512f", "instruction_sets avx2"),
        ),
        ({}, marks(), ("none", "NVIDIA H200")),
    ],
)
def test_another_model_or_part_is_another_device(before: Fingerprint, now: Fingerprint, sides: tuple[str, str]) -> None:
    assert another_device(before, now) == sides
    found = not_comparable((before, METHOD_VERSION), (now, METHOD_VERSION))
    assert found
    assert (found.why, found.before, found.now) == ("device", *sides)
    assert str(found) == f"they were measured on different devices: {sides[0]} -> {sides[1]}"


@pytest.mark.parametrize("now", [on(cores=64), on(cpu="another CPU"), on(power_limit_w=600.0), marks(device=NEWER)])
def test_a_gpu_is_the_same_under_another_driver_or_limit_and_in_another_host(now: Fingerprint) -> None:
    assert another_device(marks(), now) is None
    assert not_comparable((marks(), METHOD_VERSION), (now, METHOD_VERSION)) is None


def test_a_version_that_moved_sustained_times_alone_leaves_burst_times_comparable() -> None:
    for one, other, known in ((8, 9, True), (9, 8, True), (9, 9, True), (7, 9, False), (UNKNOWN, 9, False)):
        sides = (marks(), one), (marks(), other)
        assert (not_comparable(*sides, burst=True) is None) is known
        assert (not_comparable(*sides) is None) is (one == other)


def test_times_of_one_method_version_alone_may_be_compared_whatever_code_took_them() -> None:
    for one, other in ((UNKNOWN, UNKNOWN), (UNKNOWN, 6), (6, UNKNOWN)):
        assert "unknown" in str(not_comparable((marks(), one), (marks(), other)))
    found = not_comparable((marks(), 4), (marks(), 5))
    assert found
    assert found.why == "method"
    assert str(found).endswith(f"in the same way: method version 4 ({VERSIONS[4]}) and 5 ({VERSIONS[5]})")
    now = marks({**TIMING, **FLEX, "cell": "changed", "package.torch": "2.13.0", "workloads": "b"}, NEWER)
    for version in VERSIONS:
        assert not_comparable((marks(), version), (now, version)) is None


def test_a_file_is_known_by_the_start_of_its_hash_and_a_folder_by_all_its_files(tmp_path: Path) -> None:
    digest = hashlib.sha256((PACKAGE / "stats" / "student.py").read_bytes()).hexdigest()
    assert fingerprint.of_code(["stats/student.py"]) == {"code.stats/student.py": digest[:12]}
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "inner" / "b.py").write_text("2")
    (tmp_path / "notes.txt").write_text("3")
    before = fingerprint.hash_of(tmp_path)
    (tmp_path / "notes.txt").write_text("4")
    assert fingerprint.hash_of(tmp_path) == before
    hashes = {before}
    for change in (("inner/b.py", "5"), ("a.py", "15"), ("c.fatbin", "")):
        (tmp_path / change[0]).write_text(change[1])
        hashes.add(fingerprint.hash_of(tmp_path))
    (tmp_path / "a.py").rename(tmp_path / "d.py")
    assert len({*hashes, fingerprint.hash_of(tmp_path)}) == 5
    (tmp_path / "empty").mkdir()
    nothing = fingerprint.hash_of(tmp_path / "empty")
    hashed = fingerprint.of_code((*fingerprint.MEASURING, *fingerprint.SHOWING))
    assert [path for path, of_path in hashed.items() if of_path == nothing] == []  # a folder of data alone
    for deciding in (
        "stats/variances.py",
        "stats/converged.py",
        "core/device_lock.py",
    ):  # intervals, processes, who waits
        assert deciding in fingerprint.MEASURING
        assert (PACKAGE / deciding).is_file()
    for judging in ("stats/significance.py", "stats/pooling.py", "analysis/history.py"):
        assert (PACKAGE / judging).is_file()
        assert not any(judging.startswith(path) for path in fingerprint.MEASURING)
        assert any(judging.startswith(path) for path in fingerprint.SHOWING)

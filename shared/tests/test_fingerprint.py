"""In what two results differ, a phrase each; whether their times can be compared; and that no file is forgotten."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from fakes import CPU, GPU, NEWER_DRIVER

from fluxbench.device.detection import Device
from fluxbench.records import fingerprint
from fluxbench.records.fingerprint import Fingerprint, another_device, differences, not_comparable

PACKAGE = Path(fingerprint.__file__).parent


def marks(changes: Mapping[str, str | None] = MappingProxyType({}), device: Device = GPU) -> Fingerprint:
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
        "code.timing.py": "bbbbbbbbbbbb",
        "code.inputs.py": "cccccccccccc",
        "code.variants/flex.py": "dddddddddddd",
    }
    left = {key: value for key, value in found.items() if key not in changes}
    return {**left, **{key: value for key, value in changes.items() if value is not None}}


def on(**changes: object) -> Fingerprint:
    """Return the fingerprint on a GPU of which this is otherwise."""
    return marks(device=dataclasses.replace(GPU, **changes))  # type: ignore[arg-type]


TIMING = {"code.timing.py": "changed"}
FLEX = {"code.variants/flex.py": "changed"}


# In what two differ.


@pytest.mark.parametrize("device", [CPU, GPU])
def test_the_same_differs_in_nothing(device: Device) -> None:
    assert differences(marks(device=device), marks(device=device)) == []


@pytest.mark.parametrize(
    ("now", "phrase"),
    [
        (marks(device=NEWER_DRIVER), "driver 580.65.06 -> 580.159.04"),
        (on(driver=None), "driver 580.65.06 -> none"),
        (on(cuda="13.1"), "CUDA of the driver 13.0 -> 13.1"),
        (on(power_limit_w=600.0), "power limit in W none -> 600.0"),
        (on(compute_mode="exclusive_process"), "compute mode none -> exclusive_process"),
        (on(ecc=False), "ECC none -> False"),
        (on(cpu="another CPU"), "CPU made-up CPU -> another CPU"),
        (on(cores=4), "CPU cores 2 -> 4"),
        (marks({"python": "3.12.3"}), "Python 3.11.7 -> 3.12.3"),
        (marks({"package.torch": "2.13.0"}), "torch 2.11.0 -> 2.13.0"),
        (marks({"package.torch": "2.11.0+cpu"}), "torch 2.11.0 -> 2.11.0+cpu"),
        (marks({"package.triton": "3.7.1"}), "triton none -> 3.7.1"),
        (marks({"package.numpy": None}), "numpy 2.4.6 -> none"),
        (marks({"workloads": "flux1-512px-t512"}), "workloads flux1-1024px-t512 -> flux1-512px-t512"),
        (marks({"left_out": "flex_eager"}), "left out none -> flex_eager"),
        (marks({"cell": "changed"}), "the cell's source changed"),
        (marks(TIMING), "timing.py changed"),
        (marks(FLEX), "variants/flex.py changed"),
        (marks({"code.variants/flex.py": None}), "variants/flex.py takes no part any more"),
        (marks({"code.made_up": "new"}), "made_up takes part now"),
        (marks({"lock": "torch.txt changed"}), "lock torch.txt changed"),
        (marks({"lock": "torch+cpu.txt 0123456789ab"}), "lock torch.txt -> torch+cpu.txt"),
    ],
)
def test_what_differs_is_one_phrase(now: Fingerprint, phrase: str) -> None:
    assert differences(marks(), now) == [phrase]


def test_everything_that_differs_is_named() -> None:
    now = marks({"package.torch": "2.13.0", "cell": "changed", **TIMING, **FLEX}, NEWER_DRIVER)
    assert differences(marks(), now) == [
        "driver 580.65.06 -> 580.159.04",
        "torch 2.11.0 -> 2.13.0",
        "the cell's source changed",
        "timing.py changed",
        "variants/flex.py changed",
    ]


def test_a_lock_is_named_only_where_no_package_that_is_named_differs() -> None:
    now = marks({"lock": "torch.txt changed", "package.torch": "2.13.0"})
    assert differences(marks(), now) == ["torch 2.11.0 -> 2.13.0"]
    assert differences(marks(), marks({"lock": "torch.txt changed", **TIMING})) == [
        "timing.py changed",
        "lock torch.txt changed",
    ]


def test_another_way_to_the_packages_is_named_with_the_lock_that_it_lacks() -> None:
    ambient = marks({"way": "ambient", "lock": None})
    assert differences(marks(), ambient) == ["environment by uv -> ambient", "lock torch.txt -> none"]
    assert differences(ambient, marks()) == ["environment by ambient -> uv", "lock none -> torch.txt"]


def test_of_another_device_nothing_else_of_the_device_is_said() -> None:
    now = marks(
        {"package.torch": "2.13.0"},
        dataclasses.replace(
            NEWER_DRIVER,
            name="NVIDIA Other",
            compute_capability=(10, 0),
            power_limit_w=600.0,
            cores=64,
            ecc=True,
            cpu="another CPU",
            cuda="13.1",
            compute_mode="default",
        ),
    )
    assert differences(marks(), now) == [
        "measured on another device: NVIDIA Made Up -> NVIDIA Other",
        "torch 2.11.0 -> 2.13.0",
    ]


# What fluxbench wrote before it kept a hash for each file.
OLDER = {
    **fingerprint.of_device(GPU),
    "packages": "numpy==2.4.6 torch==2.11.0",
    "environment": "uv, torch.txt 0123456789ab, python 3.11.7",
    "workloads": "flux1-1024px-t512",
    "left_out": "",
    "cell_sha256": "a" * 64,
    "measuring_sha256": "b" * 64,
}


def test_a_result_of_an_older_fluxbench_is_said_to_be_one_and_nothing_else() -> None:
    assert differences(OLDER, marks(device=NEWER_DRIVER)) == ["measured by an older fluxbench"]


def test_a_result_of_an_older_fluxbench_on_another_device_says_so_as_well() -> None:
    assert differences(OLDER, marks(device=CPU)) == [
        "measured on another device: NVIDIA Made Up -> made-up CPU",
        "measured by an older fluxbench",
    ]


def test_a_result_without_a_fingerprint_was_measured_on_a_device_that_is_not_known() -> None:
    assert differences({}, marks()) == [
        "measured on another device: none -> NVIDIA Made Up",
        "measured by an older fluxbench",
    ]


# Which devices are the same.


def test_another_model_is_another_device() -> None:
    assert another_device(marks(), marks(device=CPU)) == "NVIDIA Made Up -> made-up CPU"


def test_a_part_of_a_device_is_another_one_and_says_what_differs() -> None:
    assert another_device(on(mig=False), on(mig=True)) == "mig False -> True"


def test_a_model_that_says_another_compute_capability_is_another_device() -> None:
    assert another_device(marks(), on(compute_capability=(10, 0))) == "compute_capability 9.0 -> 10.0"


def test_a_cpu_of_other_cores_is_another_device() -> None:
    assert another_device(marks(device=CPU), marks(device=dataclasses.replace(CPU, cores=4))) == "cpu_cores 2 -> 4"


@pytest.mark.parametrize(
    "now", [on(cores=64), on(cpu="another CPU"), on(power_limit_w=600.0), marks(device=NEWER_DRIVER)]
)
def test_a_gpu_is_the_same_under_another_driver_or_limit_and_in_another_host(now: Fingerprint) -> None:
    assert another_device(marks(), now) is None


# Which times can be compared.


@pytest.mark.parametrize(
    "now",
    [
        marks(),
        marks(device=NEWER_DRIVER),
        on(power_limit_w=600.0, cuda="13.1", compute_mode="default", ecc=True, cores=64),
        marks({"package.torch": "2.13.0", "lock": "torch.txt changed", "python": "3.12.3", "way": "ambient"}),
        marks({"cell": "changed", "workloads": "flux1-512px-t512", "left_out": "flex_eager"}),
        marks({**FLEX, "code.made_up": "new"}),
    ],
)
def test_times_under_another_driver_torch_limit_or_variant_can_be_compared(now: Fingerprint) -> None:
    assert not_comparable(marks(), now) is None


@pytest.mark.parametrize(
    ("before", "now", "sentence"),
    [
        (marks(), marks(device=CPU), "they were measured on different devices: NVIDIA Made Up -> made-up CPU"),
        (
            marks(device=CPU),
            marks(device=dataclasses.replace(CPU, cores=4)),
            "they were measured on different devices: cpu_cores 2 -> 4",
        ),
        (on(mig=False), on(mig=True), "they were measured on different devices: mig False -> True"),
        (marks(), marks(TIMING), "they were not measured in the same way: timing.py changed between them"),
        (
            marks(),
            marks({**TIMING, "code.inputs.py": "changed"}),
            "they were not measured in the same way: inputs.py and timing.py changed between them",
        ),
        (
            OLDER,
            marks(),
            "they were not measured by the same version of fluxbench, and one of them does not say what differs",
        ),
        (
            OLDER,
            {**OLDER, "measuring_sha256": "c" * 64},
            "they were not measured by the same version of fluxbench, and one of them does not say what differs",
        ),
    ],
)
def test_times_of_another_device_or_method_cannot_be_compared(
    before: Fingerprint, now: Fingerprint, sentence: str
) -> None:
    assert not_comparable(before, now) == sentence
    assert not_comparable(now, before) is not None


def test_times_of_one_older_fluxbench_can_be_compared() -> None:
    assert not_comparable(OLDER, {**OLDER, "driver": NEWER_DRIVER.driver, "packages": "torch==2.13.0"}) is None


def test_a_change_that_left_the_times_as_they_were_keeps_them_comparable() -> None:
    for older, newer in fingerprint._ALIKE.items():
        for file in fingerprint.METHOD:
            assert not_comparable(marks({f"code.{file}": older}), marks({f"code.{file}": newer})) is None
            assert not_comparable(marks({f"code.{file}": older}), marks({f"code.{file}": "another"})) is not None


def test_what_earlier_contents_are_like_is_a_file_as_it_is() -> None:
    now = fingerprint.of_code(fingerprint.METHOD).values()
    assert set(fingerprint._ALIKE.values()) <= set(now)  # else drop the entry, or lead it on where that holds


# The files.


def test_a_file_is_known_by_the_start_of_its_hash() -> None:
    digest = hashlib.sha256((PACKAGE / "timing.py").read_bytes()).hexdigest()
    assert fingerprint.of_code(["timing.py"]) == {"code.timing.py": digest[:12]}


def test_every_measuring_file_is_there() -> None:
    assert [file for file in fingerprint.MEASURING if not (PACKAGE / file).is_file()] == []
    assert len(set(fingerprint.MEASURING)) == len(fingerprint.MEASURING)


def test_what_changes_the_meaning_of_a_time_is_measuring() -> None:
    assert set(fingerprint.METHOD) <= set(fingerprint.MEASURING)


# What a measurement imports and what cannot change a number, each with the reason.
HARMLESS = {
    "cell.py": "what it reads of a cell is in the fingerprint",
    "ceilings.py": "hashed for the cell that asks for it",
    "dependencies.py": "says what a result depends on",
    "environments.py": "what it finds is in the fingerprint",
    "fingerprint.py": "says what a result depends on",
    "field_types.py": "refuses records that are none",
    "formatting.py": "shows numbers",
    "headline.py": "shows numbers",
    "locks.py": "what it finds is in the fingerprint",
    "hardware.py": "what it finds is in the fingerprint",
    "progress.py": "says how far a cell is",
    "ranking.py": "shows numbers",
    "remarks.py": "shows numbers",
    "records.py": "keeps numbers; a field that means something else has another schema",
    "sentences.py": "shows numbers",
    "settings.py": "what is set is in the fingerprint",
    "signs.py": "shows numbers",
    "tables.py": "shows numbers",
    "tables_capabilities.py": "shows what was tried",
    "tables_kernels.py": "shows numbers",
    "tables_csv.py": "shows numbers",
    "tables_state.py": "shows numbers",
    "tables_text.py": "shows numbers",
    "targets.py": "what it says is in the fingerprint",
    "variants/slowed.py": "hashed for the cell that runs trials",
}


def files_behind(module: str) -> set[str]:
    """Return the files of fluxbench that importing a module leads to, itself included and variants aside."""
    found, left = set(), {module}
    while left:
        path = PACKAGE / f"{left.pop().replace('.', '/')}.py"
        if not path.is_file() or path in found:  # a package, or a name within a module
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
            else:
                continue
            left |= {name.removeprefix("fluxbench.") for name in names if name.startswith("fluxbench.")}
    return {path.relative_to(PACKAGE).as_posix() for path in found}


def test_what_is_imported_is_found_through_other_modules() -> None:
    behind = files_behind("worker")
    assert {"worker.py", "sentinel.py", "timing.py", "inputs.py", "reference.py", "variants/_base.py"} <= behind
    assert not {"bench.py", "tables.py", "variants/flex.py"} & behind


@pytest.mark.parametrize("module", ["worker", "bench"])
def test_every_module_of_a_measurement_is_hashed_or_known_to_be_harmless(module: str) -> None:
    assert files_behind(module) - set(fingerprint.MEASURING) - set(HARMLESS) == set()


def test_what_is_called_harmless_is_imported_and_not_hashed() -> None:
    assert set(HARMLESS) & set(fingerprint.MEASURING) == set()
    assert set(HARMLESS) <= files_behind("worker") | files_behind("bench")


def test_every_module_that_is_hashed_takes_part() -> None:
    modules = {file for file in fingerprint.MEASURING if file.endswith(".py")}
    assert modules <= files_behind("worker") | files_behind("bench")

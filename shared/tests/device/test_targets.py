"""The folder of a device under `reports/`, and what `environment/targets.toml` says of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from fakes import CPU, GPU, REPOSITORY, SPREADS, made_up_target, spreads_toml

from fluxbench.core.errors import SetupError
from fluxbench.device import targets
from fluxbench.device.model import Device
from fluxbench.device.targets import BetweenRuns, target_name


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop-gpu"),
        ("NVIDIA H200 MIG 1g.18gb", "h200-mig-1g-18gb"),
        ("AMD Instinct MI300X OAM", "amd-instinct-mi300x-oam"),
        ("../../etc", "etc"),
        ("", "cuda"),
    ],
)
def test_a_target_is_a_safe_folder_name(name: str, target: str) -> None:
    assert target_name(Device(kind="cuda", name=name)) == target


def test_a_slice_is_another_target_than_its_card_and_every_cpu_is_one() -> None:
    assert target_name(Device(kind="cuda", name="NVIDIA H200", mig=True)) == "h200-mig"
    assert target_name(Device(kind="cuda", name="NVIDIA H200 MIG 1g.18gb", mig=True)) == "h200-mig-1g-18gb"
    assert target_name(Device(kind="cpu", name="AMD EPYC 9654")) == "cpu"


def test_a_notebook_on_all_gpus_of_a_host_has_a_target_of_their_number() -> None:
    pair = Device(kind="cuda", name="NVIDIA H200", count=2)
    assert [target_name(pair, notebook) for notebook in ("parallel", "flux")] == ["h200-x2", "h200"]
    assert target_name(dataclasses.replace(pair, count=1), "parallel") == "h200"
    assert target_name(dataclasses.replace(CPU, count=2), "parallel") == "cpu"
    found = targets.of(pair, REPOSITORY, "parallel")
    assert found.required == targets.named("h200", REPOSITORY).required  # what it does not say is its device's
    assert found.slurm is not None
    assert (found.name, found.slurm.gpus, found.requires("torch_native", "parallel")) == ("h200-x2", 2, False)


def test_the_targets_of_the_repository() -> None:
    made_up = targets.of(GPU, REPOSITORY)
    assert (made_up.name, made_up.locks, made_up.exclude) == ("made-up", ("torch-2.13.0.txt",), ())
    assert made_up.required == ("torch_native", "torch_math")
    assert made_up.runs.source.startswith("an assumption")
    assert targets.of(CPU, REPOSITORY).locks == ("torch-2.13.0+cpu.txt", "torch-2.13.0.txt")
    h200 = targets.of(dataclasses.replace(GPU, name="NVIDIA H200"), REPOSITORY)
    assert (h200.name, h200.exclude) == ("h200", ("torch_math_compile_ma",))
    assert {"torch_cudnn", "flex", "triton_flash"} <= set(h200.required)
    assert h200.requires("triton_flash", "flux")
    assert h200.requires("torch_cudnn", "backward")
    assert not h200.requires("torch_efficient", "backward")  # which has no grouped heads
    assert made_up.requires("torch_math", "backward")
    # All scores do not fit at all lengths, and not every kernel takes float32 or is exact in it.
    names = ("torch_native", "torch_math", "torch_flash", "triton_flash")
    assert not any(target.requires(name, "scaling") for target in (made_up, h200) for name in names)
    assert 2 * h200.runs.variant < h200.cards.variant < made_up.cards.variant


def test_a_target_that_is_like_another_has_its_variants_and_not_what_was_measured_of_it() -> None:
    h100, h200 = targets.named("h100-sxm", REPOSITORY), targets.named("h200", REPOSITORY)
    assert (h100.exclude, h100.required, h100.required_in) == (h200.exclude, h200.required, h200.required_in)
    assert h100.runs == targets.named("made-up", REPOSITORY).runs != h200.runs
    four = targets.named("h100-sxm-x4", REPOSITORY)
    assert four.slurm is not None
    assert (four.required, four.slurm.constraint, four.slurm.gpus) == (h200.required, "h100", 4)


def test_a_target_is_like_one_that_exists(tmp_path: Path) -> None:
    write(tmp_path, '[one]\nlike = "two"\n')
    with pytest.raises(SetupError, match=r"target 'one' of .* must be like a target there, got 'two'"):
        targets.named("one", tmp_path)


SPREAD = BetweenRuns(variant=0.1, workload=0.2, df=3, source="s")


def write(root: Path, text: str) -> None:
    (root / "environment").mkdir()
    any_target = '[any]\nlocks = ["a.txt"]\nexclude = ["x"]\nrequired = ["y"]\n'
    (root / "environment" / "targets.toml").write_text(any_target + spreads_toml(SPREAD) + text, encoding="utf-8")


def test_a_field_that_a_target_omits_is_as_for_any(tmp_path: Path) -> None:
    write(tmp_path, '[made-up]\nrequired = ["z"]\n')
    found = dataclasses.replace(made_up_target(SPREAD), locks=("a.txt",), exclude=("x",), required=("z",))
    assert targets.of(GPU, tmp_path) == found


def test_an_unknown_field_is_refused(tmp_path: Path) -> None:
    write(tmp_path, '[made-up]\nexpects = ["z"]\n')
    with pytest.raises(
        SetupError,
        match=rf"only like, locks, .*, {', '.join(SPREADS)}, slurm, got expects; remove",
    ):
        targets.of(GPU, tmp_path)

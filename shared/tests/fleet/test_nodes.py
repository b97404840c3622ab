"""Whether nodes are as a target requests them, and where the folder is."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from fakes import made_up_target, spreads_toml

from fluxbench.core.errors import SetupError
from fluxbench.device import targets
from fluxbench.device.targets import BetweenRuns, Request, Target
from fluxbench.fleet import nodes
from fluxbench.fleet.call import fits

NODE = (
    "NodeName=n1 NodeHostName={host} AvailableFeatures=h200,ib Gres={gres} OS=Linux #1 SMP Partitions=gpu,all Reason=x"
)
MOUNTS = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw,relatime shared:5 - nfs4 server:/home rw
31 22 0:41 / /sha\040red rw - lustre mds:/fs rw
32 30 8:2 / /home/scratch rw - xfs /dev/sdb1 rw
"""
SPREAD = BetweenRuns(variant=0.1, workload=0.1, df=1, source="made up")


def target(partition: str | None = None, constraint: str | None = None, gpus: int = 0) -> Target:
    return made_up_target(SPREAD, slurm=Request(partition=partition, constraint=constraint, gpus=gpus))


def of(gres: str, host: str | None = None) -> list[nodes.Node]:
    return nodes.parse(NODE.format(gres=gres, host=host or platform.node()))


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [("(null)", 0), ("gpu:2", 2), ("gpu:h200:8(S:0-1)", 8), ("shard:4,gpu:a100:1,gpu:h200:3", 4), ("nvme:1", 0)],
)
def test_a_node_s_gpus_are_counted(gres: str, gpus: int) -> None:
    [node] = of(gres)
    assert (node.gpus, sorted(node.partitions), sorted(node.features)) == (gpus, ["all", "gpu"], ["h200", "ib"])


@pytest.mark.parametrize(
    "request_",
    [target("gpu"), target("none,all"), target("gpu", "ib", 8), target(None, "h200"), target("gpu", "h200&fast", 8)],
)
def test_a_node_as_requested_is_right(request_: Target, tmp_path: Path) -> None:
    nodes.check(request_, of("gpu:h200:8"), tmp_path)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (target("none"), "the partition of target 'made-up' must be one of all, gpu, got 'none'"),
        (target("gpu", "a100"), r"must be a feature of its nodes \(h200, ib\), got 'a100'"),
        (target("gpu", gpus=9), "must be those of one node, at most 8, got 9"),
    ],
)  # fmt: skip
def test_a_node_unlike_the_request_is_refused(request_: Target, says: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=says):
        nodes.check(request_, of("gpu:h200:8"), tmp_path)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/root/x", "ext4"),
        ("/home/me", "nfs4"),
        ("/home/scratch/me", "xfs"),
        ("/homes", "ext4"),
        ("/sha red/x", "lustre"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_mount(path: str, kind: str) -> None:
    assert nodes.file_system(Path(path), MOUNTS) == kind


def test_a_later_mount_covers_an_earlier_one() -> None:
    assert nodes.file_system(Path("/x"), MOUNTS + "40 22 0:50 / / rw - overlay overlay rw\n") == "overlay"


def test_a_folder_is_shared_once_a_node_has_written_there(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS, encoding="utf-8")
    nodes.check(target("gpu"), of("(null)"), tmp_path, mounts)
    with pytest.raises(SetupError, match="must be on a file system that the nodes share, got ext4 of this machine"):
        nodes.check(target("gpu"), of("(null)", "elsewhere"), tmp_path, mounts)
    nodes.check(target("gpu"), of("(null)", "elsewhere"), Path("/home/me/.fleet"), mounts)
    (tmp_path / nodes.SHARED).touch()
    nodes.check(target("gpu"), of("(null)", "elsewhere"), tmp_path, mounts)


@pytest.mark.parametrize(
    ("name", "device", "is_right"),
    [("h200", "h200", True), ("h200-x2", "h200", True), ("h2000", "h200", False), ("h100", "h200", False)],
)
def test_a_target_is_measured_on_its_own_device(name: str, device: str, is_right: bool) -> None:
    assert fits(name, device) is is_right


@pytest.mark.parametrize(
    "table", ["{ partitions = 'a' }", "{ partition = 1 }", "{ gpus = 1 }", "{ partition = 'a', gpus = -1 }", "'gpu'"]
)
def test_a_request_of_another_form_is_refused(table: str, tmp_path: Path) -> None:
    (tmp_path / "environment").mkdir()
    fields = f"locks = []\nexclude = []\nrequired = []\n{spreads_toml(SPREAD)}"
    text = f"[any]\n{fields}[made-up]\nslurm = {table}\n"
    (tmp_path / "environment" / "targets.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SetupError, match=r"slurm of target 'made-up' in environment/targets\.toml must "):
        targets.named("made-up", tmp_path)

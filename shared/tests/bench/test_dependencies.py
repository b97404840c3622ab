"""What a measuring cell's result depends on: its own variants and operations and no others, read off a copy."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from fake_workers import HEADER
from fakes import CPU, GPU, NEWER_DRIVER, REPOSITORY, clean

from fluxbench.bench import dependencies
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.environments import cell
from fluxbench.environments.cell import Cell
from fluxbench.records import fingerprint
from fluxbench.records.fingerprint import Fingerprint

PACKAGE = Path(fingerprint.__file__).parents[1]
RATES = HEADER.format("flux", 'measures = "rates"')
# Reads from its standard input [[source of a cell, files that are changed], ...]; prints what each cell depends on.
ASK = """
import json, sys
from pathlib import Path
from fluxbench.bench import dependencies
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.environments import cell

package, root = Path(dependencies.__file__).parents[1], Path(sys.argv[1])
assert not package.is_relative_to(root), "the copy is asked, not the repository"
device, settings = Device(kind="cuda", name="made up"), Settings(root=root, cache=Path("cache"))
answers = []
for source, files in json.load(sys.stdin):
    before = {file: (package / file).read_bytes() for file in files}
    for file, content in before.items():
        (package / file).write_bytes(content + b"\\n# changed\\n")
    answers.append(dict(dependencies.of(cell.parse(source, "a"), device, settings)))
    for file, content in before.items():
        (package / file).write_bytes(content)
print(json.dumps(answers))
"""


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    clean(monkeypatch)


def measuring(*names: str, more: str = "") -> str:
    return HEADER.format("flux", f"variants = {json.dumps(names)}{more}")


def depends(folder: Path, asked: Iterable[tuple[str, Iterable[str]]]) -> list[Fingerprint]:
    """Return what cells depend on with some files changed, as a process with a copy of the package answers."""
    shutil.copytree(PACKAGE, folder / "fluxbench", ignore=shutil.ignore_patterns("__pycache__"))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FLUXBENCH_", "UV", "PIP_"))}
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(REPOSITORY)],
        env={**inherited, "PYTHONPATH": str(folder)},
        input=json.dumps([(source, list(files)) for source, files in asked]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers: list[Fingerprint] = json.loads(done.stdout)
    return answers


MEASURING = {
    "timing/burst.py": "timing",
    "stats/student.py": "stats/student.py",
    "correctness/judging.py": "correctness",
    "worker/trial.py": "worker",
    "bench/recording.py": "bench",
    **{file: file for file in ("kernels/control.fatbin", "variants/_base.py", "variants/forms.py")},
    **{file: file for file in ("operations/roofline.py", "operations/workload.py", "device/peaks.py")},
}
ATTENTION = [
    "operations/attention.py",
    "operations/math_attention.py",
    "operations/qkv.py",
    "operations/sampled_rows.py",
    "operations/magnitudes.py",
]
REFERENCES = ["variants/torch_flash.py", "variants/torch_efficient.py", "variants/torch_math.py"]
TRITON = [
    "variants/triton_flash.py",
    *(f"kernels/flash_{name}.py" for name in ("attention", "forward", "forward_kernel", "tensors")),
    *(
        f"kernels/flash_gluon{name}.py"
        for name in ("", "_kernel", "_consumer", "_tiles", "_parts", "_softmax", "_barriers")
    ),
    *(f"kernels/flash_{name}.py" for name in ("backward", "backward_keys", "backward_queries")),
]
SHOWING = [
    "report/verdict.py",
    "device/peaks.toml",  # of other cards than this one
    "cli.py",
    "show.py",
    "variants/__init__.py",
    "operations/__init__.py",
    "notebook/build.py",
]
OTHERS = ["operations/decode.py", "operations/attention_backward.py", "variants/torch_cudnn.py", "variants/xformers.py"]
CASES = [
    # A cell, files that it depends on, files that it does not.
    (measuring("flex"), [*ATTENTION, *REFERENCES, "variants/flex.py"], [*OTHERS, *TRITON, "variants/slowed.py"]),
    (
        measuring("hf_local_flash"),
        ["variants/hf_local.py", "kernels/package.py", *TRITON],
        [*OTHERS, "variants/hf_kernels.py", "kernels/hub.py"],
    ),
    (measuring("flex_compile_d", "triton_flash"), ["variants/flex.py", *TRITON], [*OTHERS, "kernels/float8.py"]),
    (
        measuring("torch_math", more='\n# study = "certificate"\n# measures = "trials"'),
        ["variants/slowed.py", *REFERENCES],
        [*OTHERS, *TRITON],
    ),
    (RATES, [], [*ATTENTION, *REFERENCES, *TRITON, *OTHERS, "variants/flex.py"]),
]


def test_a_result_depends_on_what_measures_it_and_on_nothing_else(tmp_path: Path) -> None:
    asked: list[tuple[str, list[str]]] = []
    expected: list[list[str]] = []
    for source, own, others in CASES:
        asked += [(source, []), (source, [*MEASURING, *own]), (source, [*others, *SHOWING])]
        expected += [[], sorted(f"{name} changed" for name in {*MEASURING.values(), *own}), []]
    answers = depends(tmp_path, asked)
    for index, names in enumerate(expected):
        as_it_is = answers[index - index % 3]
        differences = fingerprint.differences(as_it_is, answers[index])
        assert sorted(map(str, differences)) == names, asked[index]


# In this process.

FLUX = cell.parse(measuring("torch_math"), "sdpa")


def facts(device: Device = GPU, this: Cell = FLUX, **settings: Any) -> Fingerprint:
    chosen = Settings(root=REPOSITORY, cache=REPOSITORY / ".cache", **settings)
    return dependencies.of(this, device, chosen)


def differences(before: Fingerprint, now: Fingerprint) -> list[str]:
    return [str(difference) for difference in fingerprint.differences(before, now)]


@pytest.mark.parametrize(
    ("before", "now", "phrases"),
    [
        ({}, {"device": NEWER_DRIVER}, ["driver 580.65.06 -> 580.159.04"]),
        ({}, {"device": dataclasses.replace(GPU, power_limit_w=600.0)}, ["power limit in W none -> 600.0"]),
        (
            {"device": CPU},
            {"device": CPU, "all": True},
            ["excluded variants *_compile_d *_compile_ma flex_[eb]* -> none"],
        ),
        ({}, {"python": sys.executable}, ["environment by uv -> ambient"]),
        ({}, {"this": dataclasses.replace(FLUX, source_sha256="0" * 64)}, ["the cell's source changed"]),
        ({"workloads": ("wan-480p",)}, {"workloads": ("wan-720p",)}, ["workloads wan-480p -> wan-720p"]),
        ({}, {"this": dataclasses.replace(FLUX, packages=("torch==2.13.0",))}, ["numpy 2.4.6 -> none"]),
    ],
)
def test_another_request_or_device_is_named(before: dict[str, Any], now: dict[str, Any], phrases: list[str]) -> None:
    assert set(phrases) <= set(differences(facts(**before), facts(**now)))


def test_modules_in_a_folder_of_operations_count_where_they_take_part() -> None:
    made = {f"code.operations/models/{name}.py" for name in ("build", "dispatch", "families", "step")}
    step = cell.parse(HEADER.format("model", 'variants = ["torch_math"]'), "sdpa")
    assert made <= facts(this=step).keys()
    assert made.isdisjoint(facts())


def test_the_number_of_gpus_counts_where_they_share_a_step() -> None:
    step, pair = (
        cell.parse(HEADER.format("parallel", 'variants = ["torch_native"]'), "two"),
        dataclasses.replace(GPU, count=2),
    )
    assert differences(facts(this=step), facts(pair, this=step)) == ["gpus 1 -> 2"]
    assert differences(facts(), facts(pair)) == []


def test_a_study_has_its_own_workloads_regimes_and_references() -> None:
    assert str(facts(CPU)["workloads"]).split()[0] == "flux1-256px-t128"
    assert str(facts(GPU)["workloads"]).split()[-1] == "flux1-1024px-t512"
    assert (facts()["references"], facts()["regimes"]) == ("torch_flash torch_efficient torch_math", "burst sustained")
    certificate = facts(this=dataclasses.replace(FLUX, study="certificate", measures="trials"))
    assert (certificate["workloads"], certificate["regimes"]) == (
        "flux1-1024px-t128 flux1-1024px-t384 flux1-1024px-t512",
        "burst sustained",
    )
    grid = facts(this=dataclasses.replace(FLUX, study="sdpa"))["regimes"]  # with less effort for each workload
    assert re.fullmatch("burst effort [0-9a-f]{12}", str(grid))
    broken = facts(python="/missing/python")
    assert str(broken["way"]).startswith("none: FLUXBENCH_PYTHON must be a working Python")
    assert broken["code.timing"] == facts()["code.timing"]
    peaks = [facts(dataclasses.replace(GPU, name=f"NVIDIA {name}"))["peak"] for name in ("Made Up", "H200", "L40S")]
    assert peaks[0] == facts(CPU)["peak"] == ""
    assert len(set(peaks)) == 3
    both = dataclasses.replace(FLUX, measures="trials", variants=("torch_math", "flex"))
    names = dependencies.measured_variants(both)
    assert names[:3] == ("torch_math_plus_0", "flex_plus_0", "torch_math_plus_0_twin")
    assert (len(names), names[-1], dependencies.measured_variants(FLUX)) == (12, "flex_plus_5", ("torch_math",))
    rates = facts(this=dataclasses.replace(FLUX, measures="rates", variants=()))
    assert [rates[key] for key in ("workloads", "shapes", "regimes", "references")] == ["", "", "", ""]


OUTSIDE = """
from fluxbench.operations import workload
from fluxbench.operations.attention import AttentionForward
from fluxbench.studies.study import Study

shape = {"seq_len_q": %d, "seq_len_k": 96, "heads": 2, "kv_heads": 2, "head_dim_qk": 64, "head_dim_v": 64}
ONE = workload("%s:AttentionForward", "one", shape, group="one", x=96, x_unit="tokens")
STUDY = Study(name="outside", references=("torch_math",), workloads=(ONE,))
"""


def test_studies_and_operations_outside_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    answers = []
    for name, seq_len, comment in (("outside_1", 96, ""), ("outside_2", 95, ""), ("outside_1", 96, "# changed")):
        (tmp_path / f"{name}.py").write_text(OUTSIDE % (seq_len, name) + comment, encoding="utf-8")
        answers.append(facts(this=dataclasses.replace(FLUX, study=f"{name}:STUDY")))
    assert answers[0]["workloads"] == answers[1]["workloads"] == "one"
    assert answers[0]["shapes"] != answers[1]["shapes"]
    assert differences(answers[0], answers[2]) == ["outside_1 changed"]


def test_the_hub_s_revisions_and_local_copies_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "environment").symlink_to(REPOSITORY / "environment")

    def of_hub(variant: str) -> object:
        this, settings = dataclasses.replace(FLUX, variants=(variant,)), Settings(root=tmp_path, cache=tmp_path)
        return dependencies.of(this, GPU, settings).get("hub")

    without = of_hub("hf_flash_attn2")
    (tmp_path / "shared" / "kernels.lock").write_text("a revision", encoding="utf-8")
    locked = of_hub("hf_flash_attn2")
    monkeypatch.setenv("LOCAL_KERNELS", "a/b=/c")
    assert len({without, locked, of_hub("hf_flash_attn2")}) == 3
    assert of_hub("torch_math") is None

"""Each operation of the package through a real worker process on the CPU, to its records.

The workers find no library that draws, writes pages or reads records strictly: measured environments have none.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from fakes import CPU, clean, tokens

from fluxbench import operations
from fluxbench.bench import recording
from fluxbench.bench.collected import Collected
from fluxbench.bench.pool import run_worker
from fluxbench.bench.recording import Context
from fluxbench.environments.cell import Cell
from fluxbench.environments.prepare import Environment
from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.records.line import parse
from fluxbench.records.schema import BURST, SUSTAINED, Record
from fluxbench.records.status import Status
from fluxbench.worker.request import Request


def larger(name: str, **shape: int) -> Workload:
    """Return what a named workload is with more tokens."""
    known = sets.by_name()[name]
    x, whole = shape.get("seq_len", known.x), {**known.shape, **shape}
    return operations.workload(known.operation, f"larger-{name}", whole, group="larger", x=x, x_unit=known.x_unit)


# Times are taken of a reference in two windows alone. Its calls here take 25 ms or more, so that another program that
# takes 4 to 8 ms between two of them, once or twice, is not taken for work of the variant outside of its calls.
WORKLOADS = {
    "attention": tokens("forward", 1024, heads=4),
    "attention_backward": tokens("backward", 512, "attention_backward", causal=True, heads=8),
    "attention_training": tokens("training", 512, "attention_training", causal=True, heads=6, kv_heads=3),
    "decode": tokens("decode", 4096, "decode", seq_len_q=1, heads=32, kv_heads=4),
    "decode_model": sets.by_name()["decode-model-small-b4-2048"],
    "language_training": larger("small-2x64-128-training", seq_len=256),
    "layer": larger("small-fused-layer", seq_len=512),
    "layer_backward": larger("small-fused-layer-backward", seq_len=512),
    "layer_training": larger("small-fused-layer-training", seq_len=512),
}
OUTPUTS = {
    "attention": {"out"},
    "attention_backward": {"dq", "dk", "dv"},
    "attention_training": {"out", "dq", "dk", "dv"},
    "decode": {"out"},
    "decode_model": {"logits", "kv"},
    "language_training": {"logits", "dx"},
    "layer": {"y"},
    "layer_backward": {"dx", "dw_qkv", "dw_o"},
    "layer_training": {"y", "dx", "dw_qkv", "dw_o"},
}
NAMES = ("torch_math", "torch_flash")
REFERENCES = NAMES[:1]  # the slower one at most of these workloads, in whose windows the other one is called as well
CELL = Cell(notebook="flux", id="sdpa", study="flux", packages=("torch==2.13.0",), source_sha256="0" * 64)
REFUSES = """
import sys
from importlib.machinery import ModuleSpec

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"msgspec", "jinja2", "pandas", "matplotlib"}:
            return ModuleSpec(name, self)  # torch asks for specs of what it does not import

    def create_module(self, spec):
        raise ModuleNotFoundError(f"no module named {spec.name!r} here", name=spec.name)

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Refuses())
print("refuses", flush=True)  # the worker is killed once it is done
"""


def measure(operation: str, folder: Path) -> tuple[list[Record], str]:
    """Return the records of one worker, and what it printed."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(REFUSES, encoding="utf-8")
    variables = {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    workload, collected = WORKLOADS[operation], Collected()
    request = Request(
        device="cpu", workloads=(workload,), variants=NAMES, references=REFERENCES, process=1, thorough_in=1
    )
    environment = Environment(python=sys.executable, variables=variables)
    assert run_worker(folder, environment, request, collected, time.monotonic() + 300) is None
    [log] = folder.glob("log-*.txt")
    context = Context(cell=CELL, device=CPU, processes=1, fingerprint={}, measured_at="", powers={})
    made = list(recording.of_cell(collected, NAMES, [workload], context))
    return made, log.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[Record], str]]:
    """What each operation's worker gave; two run at once, since more would disturb each other's times."""
    folder = tmp_path_factory.mktemp("workers")
    with pytest.MonkeyPatch.context() as monkeypatch, ThreadPoolExecutor(2) as threads:
        clean(monkeypatch)
        return dict(zip(WORKLOADS, threads.map(lambda name: measure(name, folder / name), WORKLOADS), strict=True))


@pytest.mark.parametrize("operation", WORKLOADS)
def test_an_operation_through_a_real_worker(measured: dict[str, tuple[list[Record], str]], operation: str) -> None:
    # Those of libraries are in tests/operations, and so are other passes of a language model.
    assert set(WORKLOADS) == {*operations.NAMES} - {"model_step", "shared_step", "language", "language_backward"}
    made, printed = measured[operation]
    assert "refuses" in printed
    assert [(record.variant, record.status, record.reason) for record in made] == [
        (name, Status.PASSED, None) for name in NAMES
    ]
    for record in made:
        assert (record.workload, set(record.timings)) == (WORKLOADS[operation], {BURST, SUSTAINED})
        assert set(record.errors) == OUTPUTS[operation]
        assert all(0 < (errors.rel_l2 or 0) <= errors.budget_rel_l2 for errors in record.errors.values())
        assert all(len(part) >= 2 for timing in record.timings.values() for part in timing.samples_ms)
        assert record.versions["torch"] == torch.__version__
        assert parse(record.to_json()) == record
    assert [record.timing and record.timing.ratio == 1.0 for record in made] == [True, False]

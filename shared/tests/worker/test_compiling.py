"""What a worker does while a compiler is at work, and what is known of the first compilation."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import until
from workers import register, variant

from fluxbench.core.device_lock import DeviceLock
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants._base import YES, Capabilities
from fluxbench.worker.compiling import given_back_while_compiling
from fluxbench.worker.device_use import DeviceUse
from fluxbench.worker.probing import probe
from fluxbench.worker.request import Request


@pytest.fixture(scope="module", autouse=True)
def benchmarker() -> Any:
    """Inductor's, loaded here: its import takes seconds, which a process that only collects this file does not need."""
    importlib.import_module("torch._inductor.compile_fx")
    return importlib.import_module("torch._inductor.runtime.benchmarking").benchmarker


def test_the_device_is_given_back_while_torch_compiles_and_held_when_the_call_runs(
    tmp_path: Path, benchmarker: Any
) -> None:
    lock, seen = DeviceLock(tmp_path, 0), []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        seen.append(("compiles", lock.is_held))
        benchmarker.benchmark(lambda: seen.append(("tunes", lock.is_alone)), device=torch.device("cpu"))

        def run(*arguments: torch.Tensor) -> object:
            seen.append(("runs", lock.is_held))
            return graph.forward(*arguments)

        return run

    compiled = torch.compile(lambda x: x + 1, backend=backend)
    phases: list[bool] = []
    with lock.held(short=True), given_back_while_compiling(lock, phases.append):
        compiled(torch.zeros(2))
    assert list(dict.fromkeys(seen)) == [("compiles", False), ("tunes", True), ("runs", True)]
    assert phases == [True, False]
    torch.compiler.reset()
    with lock.held(short=True):  # nothing is left of it
        compiled(torch.zeros(3))
    assert ("compiles", True) in seen


def test_each_attempt_at_a_capability_gives_the_device_back_while_torch_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[str] = []

    def load(call: AttentionCall) -> Any:
        return torch.compile(lambda q, k, v: q + k + v, backend=lambda graph, inputs: graph.forward)

    declared = Capabilities(dtypes=("bfloat16",), head_dims=(64, 128), minimum=(5, 0), cpu=True, causal=YES)
    register(monkeypatch, variant("made_up", load, capabilities=declared))
    request = Request(
        device="cpu", workloads=(), variants=(), references=(), probe=("made_up",), lock=str(tmp_path),
        compiled=str(tmp_path),
    )  # fmt: skip
    use = DeviceUse(request, torch.device("cpu"), lambda event, **fields: seen.append(fields["name"]))
    probe(request, ["made_up"], torch.device("cpu"), use, lambda event, **fields: None)
    assert seen.count("compiling") == 4  # a dtype, two head dims and causal


def test_the_device_is_given_back_while_torch_compiles_a_backward_pass_when_it_is_first_called(tmp_path: Path) -> None:
    lock, seen = DeviceLock(tmp_path, 0), []

    def compiler(name: str) -> Callable[..., Any]:
        def compiles(graph: torch.fx.GraphModule, inputs: object) -> Any:
            seen.append((name, lock.is_held))
            return boxed(graph.forward)

        return compiles

    boxed = importlib.import_module("functorch.compile").make_boxed_func
    common = importlib.import_module("torch._dynamo.backends.common")
    backend = common.aot_autograd(fw_compiler=compiler("forward"), bw_compiler=compiler("backward"))
    phases: list[bool] = []
    with lock.held(short=True), given_back_while_compiling(lock, phases.append), torch.enable_grad():
        out = torch.compile(lambda x: (x * x).sum(), backend=backend)(torch.ones(2, requires_grad=True))
        assert lock.is_held
        out.backward()
        assert lock.is_held
    assert seen == [("forward", False), ("backward", False)]
    assert phases == [True, False, True, False]


def test_the_device_is_given_back_between_measurements_of_a_compilation(tmp_path: Path, benchmarker: Any) -> None:
    lock = DeviceLock(tmp_path, 0)
    seen: list[bool | str] = []

    def measures() -> None:
        seen.append(lock.is_alone)

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        for _ in range(2):
            benchmarker.benchmark(measures, device=torch.device("cpu"))
        seen.append("last")
        seen.append(not until(lambda: not lock.is_held))
        return graph.forward

    with lock.held(short=True), given_back_while_compiling(lock, lambda _: None):
        torch.compile(lambda x: x + 7, backend=backend)(torch.zeros(2))
        assert lock.is_held
    assert list(dict.fromkeys(seen[: seen.index("last")])) == [True]
    assert seen[-1] is False


def test_what_max_autotune_chooses_from_is_compiled_before_the_device_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, benchmarker: Any
) -> None:
    lock, seen = DeviceLock(tmp_path, 0), list[tuple[str, bool]]()
    owner = importlib.import_module("torch._inductor.select_algorithm").AlgorithmSelectorCache

    class Choice:
        def __init__(self, name: str) -> None:
            self.name = name
            self.bmreq = self

        def precompile(self) -> None:
            seen.append((f"compiles {self.name}", lock.is_held))
            if self.name == "b":
                raise RuntimeError("no")

    class Extern:
        name = "extern"

    def benchmark(cls: type, choice: Any, arguments: object) -> float:
        benchmarker.benchmark(lambda: None, device=torch.device("cpu"))
        seen.append((f"timed {choice.name}", lock.is_alone))
        return 1.0

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        choices = [Choice("a"), Choice("b"), Extern()]
        assert list(owner.benchmark_choices(choices, None).values()) == [1.0, 1.0, 1.0]
        return graph.forward

    own = vars(owner)["benchmark_choices"]
    monkeypatch.setattr(owner, "benchmark_choice", classmethod(benchmark))
    with lock.held(short=True), given_back_while_compiling(lock, lambda _: None):
        torch.compile(lambda x: x + 11, backend=backend)(torch.zeros(2))
    assert seen == [
        *((f"compiles {name}", False) for name in ("a", "b")),
        *((f"timed {name}", True) for name in ("a", "b", "extern")),
    ]
    assert vars(owner)["benchmark_choices"] is own


def test_a_compilation_that_fails_holds_the_device_again(tmp_path: Path) -> None:
    lock = DeviceLock(tmp_path, 0)

    def backend(graph: object, inputs: object) -> object:
        raise RuntimeError("no")

    with lock.held(short=True), given_back_while_compiling(lock, lambda _: None):
        with pytest.raises(Exception, match="no"):
            torch.compile(lambda x: x * 3, backend=backend)(torch.zeros(2))
        assert lock.is_held
    assert not lock.is_held


class CuteCompiler:
    """As `cutlass.cute.compile`: called with a function, or by `compile[options]`."""

    def __init__(self, lock: DeviceLock) -> None:
        self.lock, self.seen = lock, list[bool]()

    def __getitem__(self, options: object) -> CuteCompiler:
        return self

    def __call__(self, function: Callable[[], object]) -> object:
        self.seen.append(self.lock.is_held)
        return function()


@pytest.fixture
def cute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CuteCompiler:
    module = type(sys)("cutlass.cute")
    vars(module)["compile"] = compiler = CuteCompiler(DeviceLock(tmp_path, 0))
    monkeypatch.setitem(sys.modules, "cutlass.cute", module)
    return compiler


def test_the_device_is_given_back_while_cute_dsl_compiles(cute: CuteCompiler) -> None:
    lock, phases = cute.lock, list[bool]()
    with lock.held(short=True), given_back_while_compiling(lock, phases.append):
        assert cute(lambda: 7) == 7
        assert lock.is_held
        with pytest.raises(ZeroDivisionError):
            cute["options"](lambda: 1 // 0)
        assert lock.is_held
    with lock.held(short=True):  # nothing is left of it
        cute(lambda: 8)
    assert (cute.seen, phases) == ([False, False, True], [True, False, True, False])


@pytest.mark.parametrize(
    ("module", "owner", "method"),
    [
        ("triton.runtime.jit", "JITFunction", "_do_compile"),
        ("cudnn", "pygraph", "build"),
        ("flashinfer.jit.core", "JitSpecNvcc", "build"),
    ],
)
def test_the_device_is_given_back_while_a_library_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, owner: str, method: str
) -> None:
    lock, seen = DeviceLock(tmp_path, 0), list[tuple[object, bool]]()

    def compiles(self: object, key: object) -> object:
        seen.append((key, lock.is_held))
        return key

    compiler = type(owner, (), {method: compiles})
    fake = type(sys)(module)
    vars(fake)[owner] = compiler
    monkeypatch.setitem(sys.modules, module, fake)
    with lock.held(short=True), given_back_while_compiling(lock, lambda _: None):
        assert getattr(compiler(), method)("bf16") == "bf16"
        assert lock.is_held
    with lock.held(short=True):
        getattr(compiler(), method)("fp16")
    assert seen == [("bf16", False), ("fp16", True)]


def test_a_triton_function_of_the_installed_version_is_compiled_by_the_method_that_is_wrapped() -> None:
    jit = pytest.importorskip("triton.runtime.jit")
    assert isinstance(vars(jit.JITFunction)["_do_compile"], types.FunctionType)


def test_cute_dsl_leaves_the_device_as_torch_has_it(cute: CuteCompiler, benchmarker: Any) -> None:
    lock, after = cute.lock, list[bool]()

    def compiles() -> None:
        cute(lambda: None)
        after.append(lock.is_held)

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        compiles()
        benchmarker.benchmark(compiles, device=torch.device("cpu"))
        return graph.forward

    with lock.held(short=True), given_back_while_compiling(lock, lambda _: None):
        torch.compile(lambda x: x - 5, backend=backend)(torch.zeros(2))
    assert cute.seen == after
    assert list(dict.fromkeys(after)) == [False, True]
    with lock.held(short=False), given_back_while_compiling(lock, lambda _: None):
        cute(lambda: None)
    assert cute.seen[-1]

"""What an exception of a library becomes: a status, and a sentence that says what to do."""

from __future__ import annotations

import re

import pytest
import torch

from fluxbench.core.errors import first_sentence
from fluxbench.records.status import Status
from fluxbench.worker.failures import classify, is_fatal, unusable

SYMBOL = "made_up.so: undefined symbol: _ZN3c104cuda9SetDeviceEab"


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ImportError("No module named 'made_up'"), Status.UNAVAILABLE, r"'made_up'; install what is missing$"),
        (RuntimeError("curand shared object not found."), Status.UNAVAILABLE, r"^curand .* not found; install what is"),
        (ImportError("too old; install 2.0"), Status.UNAVAILABLE, r"^too old; install 2\.0$"),
        (
            ImportError(SYMBOL),
            Status.UNAVAILABLE,
            r"^it was built for another torch than .*; install a build",
        ),
        (OSError(SYMBOL), Status.UNAVAILABLE, r"^it was built for another torch than .*undefined symbol"),
        (OSError("device is gone"), Status.ERROR, r"^OSError: device is gone$"),
        (NotImplementedError("no plan\nmore words"), Status.UNSUPPORTED, r"refuses this call here: no plan$"),
        (torch.OutOfMemoryError("Tried to allocate"), Status.OUT_OF_MEMORY, r"^Tried to allocate$"),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            Status.OUT_OF_MEMORY,
            "CUBLAS_STATUS_ALLOC_FAILED",
        ),
        (RuntimeError("CUDA error: out of memory\nmore"), Status.OUT_OF_MEMORY, r"^CUDA error: out of memory$"),
        (RuntimeError("CUDA error: no kernel image is available for"), Status.UNSUPPORTED, r"has no kernels for"),
        (
            RuntimeError("CUDA error: the provided PTX was compiled with an unsupported toolchain.\nmore"),
            Status.UNAVAILABLE,
            r"^torch \S+ \(its CUDA: \S+\) cannot use this GPU with .*driver.*: CUDA error: the provided PTX "
            r"was compiled with an unsupported toolchain; install a newer driver, or choose another torch by "
            r"FLUXBENCH_TORCH$",
        ),
        (
            RuntimeError("CUDA driver version is insufficient for CUDA runtime version"),
            Status.UNAVAILABLE,
            r"newer driver",
        ),
        (
            RuntimeError("CUDA-capable device(s) is/are busy or unavailable"),
            Status.ERROR,
            r"^RuntimeError: CUDA-capable",
        ),
        (
            RuntimeError("This flash attention build does not support paged KV."),
            Status.UNSUPPORTED,
            r"^this build of the library has no kernels for this call: This flash attention build does not .* paged KV",
        ),
        (
            RuntimeError(
                "No valid triton configs. OutOfResources: out of resource: shared memory, Required: 294912, "
                "Hardware limit: 232448. Reducing block sizes or `num_stages` may help."
            ),
            Status.UNSUPPORTED,
            r"^its kernel needs more shared memory than this GPU has: No valid triton configs.*294912",
        ),
        (RuntimeError("No available kernel. Aborting"), Status.UNSUPPORTED, r"^torch refuses this backend here"),
        (RuntimeError("No working C++ compiler found"), Status.UNAVAILABLE, r"^torch.compile needs a C\+\+ compiler"),
        (type("InvalidCxxCompiler", (Exception,), {})("no"), Status.UNAVAILABLE, r"install g\+\+$"),
        (RuntimeError("Failed to find C compiler."), Status.UNAVAILABLE, r"^Triton cannot compile here: .*is missing$"),
        (
            type("TritonMissing", (Exception,), {})("no"),
            Status.UNAVAILABLE,
            r"^Triton cannot compile here: no; ",
        ),
        (ValueError("shape"), Status.ERROR, r"^ValueError: shape$"),
    ],
)
def test_what_an_exception_becomes(error: Exception, status: Status, reason: str) -> None:
    named, sentence = classify(error)
    assert named is status
    assert re.search(reason, sentence), sentence


def test_an_error_of_cuda_is_fatal_unless_memory_is_out() -> None:
    words = ("CUDA error: an illegal memory access", "CUDA error: out of memory", "out of range")
    assert [is_fatal(RuntimeError(each)) for each in words] == [True, False, False]


def test_a_sentence_is_one_line_and_a_gpu_is_usable_where_a_kernel_runs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_sentence(ValueError("\n  first \nsecond")) == "first"
    assert len(first_sentence(ValueError("x" * 500))) == 200
    assert first_sentence(ValueError()) == "ValueError"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *sizes, device: ones(*sizes))
    assert (unusable(torch.device("cpu")), unusable(GPU)) == (None, None)

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

    monkeypatch.setattr(torch, "ones", refuse)
    reason = "this build of the library has no kernels for this GPU; it is too old or too new"
    assert unusable(GPU) == (Status.UNSUPPORTED, reason)


GPU = torch.device("cuda")


def test_of_what_nccl_says_the_cause_is_shown() -> None:
    said = "NCCL error in: x.cpp:3356, unhandled cuda error (run with NCCL_DEBUG=INFO)\nncclUnhandledCudaError: ...\n"
    assert (
        first_sentence(RuntimeError(f"{said}Last error:\nFailed to CUDA calloc 10 bytes"))
        == "Failed to CUDA calloc 10 bytes"
    )
    assert first_sentence(RuntimeError("one\ntwo")) == "one"


def of_subprocess(raised: str) -> str:
    """Return what torch's compiler says of an exception in one of its processes."""
    frames = '  File "kernel.py", line 9, in compile\n    raise CompilationError(src, node, repr(e)) from e\n'
    traceback = f"Traceback (most recent call last):\n{frames}"
    return (
        f"SubprocException: An exception occurred in a subprocess:\n\nName=triton_tem_fused_1\n{traceback}"
        "ValueError: the first one\n\nThe above exception was the direct cause of the following exception:\n\n"
        f"{traceback}{raised}\n\n\nSet TORCHDYNAMO_VERBOSE=1 for the internal stack trace.\n"
    )


TERNARY = "AssertionError('Ternary expression with dynamic condition has inconsistent types int64 and int32')"
AT = "triton.compiler.errors.CompilationError: at 96:14:"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (of_subprocess("RuntimeError: ptxas failed"), "RuntimeError: ptxas failed"),
        (of_subprocess(f"{AT}\n    x = e if e <= last else last\n        ^\n{TERNARY}"), f"{AT} {TERNARY}"),
        ("An exception occurred in a subprocess:\n\nName=kernel\nkilled", "killed"),
    ],
)
def test_of_an_exception_in_a_process_of_torch_s_compiler_what_was_raised_there_is_shown(
    said: str, sentence: str
) -> None:
    assert first_sentence(RuntimeError(said)) == sentence

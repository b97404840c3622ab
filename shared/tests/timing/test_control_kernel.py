"""The fixed kernel that is timed beside every variant: that it is right, and that it stays what it is."""

from __future__ import annotations

import gc
import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fluxbench import kernels
from fluxbench.timing import control_kernel

CPU, GPU = torch.device("cpu"), torch.device("cuda")
KERNELS = Path(kernels.__file__).parent
# What the control kernel is. With another of these, no result can be compared with an earlier one: never change them.
FIXED = {
    "control.fatbin": "314715877508d613bb074484d35a4866a1772e363f139b7ab2a5d0c99849279e",
    "control.cu": "b777f84a2dd6659fe3a640f335312e2706051759706ec8ec97cd05cf8cde4117",
}
ANSWER = "341aacac661ccb210720bedaa9ead5d668fe5ea41a73532fc147c71e34040df1"


@pytest.fixture
def _other_state() -> Iterator[None]:
    """Another seed and another default dtype than a fresh process has."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(7)
    yield
    torch.set_default_dtype(before)


def test_the_committed_files_are_what_they_always_were() -> None:
    assert {name: hashlib.sha256((KERNELS / name).read_bytes()).hexdigest() for name in FIXED} == FIXED


@pytest.mark.usefixtures("_other_state")
def test_on_a_cpu_it_hashes_the_same_text_to_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    control = control_kernel.load(CPU)
    out = control.call()
    assert bytes(out.tolist()).hex() == hashlib.sha256(bytes(range(256)) * 65_536).hexdigest() == ANSWER
    assert control.is_right(out)
    assert control.description.startswith("SHA-256 of 16 MiB by the hashlib of Python 3.")
    right = hashlib.sha256
    for place in (0, 31):
        out = control.call().clone()  # wrong in one bit
        out[place] ^= 1
        assert not control.is_right(out)
    monkeypatch.setattr(hashlib, "sha256", lambda text: right(text[:-1]))
    with pytest.raises(RuntimeError, match="the control kernel computed a wrong result on this device"):
        control_kernel.load(CPU)


@pytest.mark.parametrize("damage", [lambda image: image[:-1], lambda image: b"", lambda image: image[::-1]])
def test_damaged_machine_code_is_refused_before_a_driver_sees_it(damage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: damage(whole(path)))
    with pytest.raises(RuntimeError, match=r"machine code control.fatbin is damaged; install fluxbench again"):
        control_kernel.load(GPU)


def hashed(index: int) -> float:
    """Return a value of the operands by the arithmetic of whole numbers alone."""
    mixed = index * 2_654_435_761 % 2**32
    mixed = (mixed ^ (mixed >> 15)) * 1_103_515_245 % 2**32
    return ((mixed >> 24) - 127.5) / 64


def operand(seed: int) -> torch.Tensor:
    values = [hashed(2 * index + seed) for index in range(16 * 128 * 64)]
    return torch.tensor(values, dtype=torch.float64, device=GPU).view(16, 128, 64)


@pytest.mark.gpu
@pytest.mark.usefixtures("_other_state")
def test_on_a_gpu_it_is_the_product_of_two_fixed_operands() -> None:
    control = control_kernel.load(GPU)
    expected = 48 * operand(1) @ operand(2).transpose(1, 2)
    error = (control.call().double() - expected).norm() / expected.norm()
    assert float(error) < 1e-4  # float32 sums of 3,072 exact products
    major, minor = torch.cuda.get_device_capability()
    assert control.description == (
        "bfloat16 products of 128 x 64 tiles, 1056 x 48, fixed machine code "
        f"{FIXED['control.fatbin'][:12]} on compute capability {major}.{minor}"
    )


@pytest.mark.gpu
def test_on_a_gpu_it_computes_anew_from_what_it_keeps_alive_and_another_product_is_wrong() -> None:
    control = control_kernel.load(GPU)
    control.call().fill_(math.nan)
    gc.collect()
    torch.cuda.empty_cache()
    taken = [torch.full((2048, 8192), math.nan, dtype=torch.bfloat16, device=GPU) for _ in range(8)]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # it runs on the stream of the moment
        out = control.call().clone()
    stream.synchronize()
    assert control.is_right(out)
    assert not any(control.is_right(wrong) for wrong in (out * 0, out * math.nan, out.roll(1, 0)))
    assert all(bool(block.isnan().all()) for block in taken)

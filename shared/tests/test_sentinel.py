"""The fixed kernel that is timed beside every variant: that it is right, that it stays what it is, and its file."""

from __future__ import annotations

import gc
import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sample_turns import readings, timed

from fluxbench import variants
from fluxbench.bench.observations import Observations, to_sentinel
from fluxbench.records import schema as records
from fluxbench.records.schema import RecordError, Sentinel, read_sentinel
from fluxbench.timing import control_kernel as sentinel

CPU, GPU = torch.device("cpu"), torch.device("cuda")
KERNELS = Path(sentinel.__file__).parent / "kernels"
# What the sentinel is. With another of these, no result can be compared with an earlier one: never change them.
FIXED = {
    "sentinel.fatbin": "314715877508d613bb074484d35a4866a1772e363f139b7ab2a5d0c99849279e",
    "sentinel.cu": "a4537ba44035d8ba53e3152466bf478fa054c9118536843b5192a9536ae35bdd",
}
TEXT = bytes(range(256)) * 65_536
ANSWER = "341aacac661ccb210720bedaa9ead5d668fe5ea41a73532fc147c71e34040df1"


@pytest.fixture
def _other_state() -> Iterator[None]:
    """Another seed and another default dtype than a fresh process has."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(7)
    yield
    torch.set_default_dtype(before)


def text_of(out: torch.Tensor) -> str:
    return bytes(out.tolist()).hex()


@pytest.mark.parametrize("name", FIXED)
def test_the_committed_file_is_what_it_always_was(name: str) -> None:
    assert hashlib.sha256((KERNELS / name).read_bytes()).hexdigest() == FIXED[name]


def test_no_variant_goes_by_its_name() -> None:
    assert sentinel.NAME not in variants.NAMES


# On a CPU.


def test_on_a_cpu_it_hashes_the_same_text_to_the_same_answer() -> None:
    found = sentinel.load(CPU)
    out = found.call()
    assert text_of(out) == hashlib.sha256(TEXT).hexdigest() == ANSWER
    assert found.is_right(out)
    assert found.description.startswith("SHA-256 of 16 MiB by the hashlib of Python 3.")


@pytest.mark.usefixtures("_other_state")
def test_on_a_cpu_its_answer_does_not_depend_on_the_state_of_torch() -> None:
    found = sentinel.load(CPU)
    assert text_of(found.call()) == ANSWER


@pytest.mark.parametrize("place", [0, 31])
def test_on_a_cpu_an_answer_that_is_wrong_in_one_bit_is_wrong(place: int) -> None:
    found = sentinel.load(CPU)
    out = found.call().clone()
    out[place] ^= 1
    assert not found.is_right(out)
    assert not found.is_right(out[:16])


def test_a_cpu_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    right = hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda text: right(text[:-1]))
    with pytest.raises(RuntimeError, match="the sentinel computed a wrong result on this device"):
        sentinel.load(CPU)


# What a GPU gets, as far as no GPU is needed to see it.


def hashed(index: int) -> float:
    """Return a value of the operands by the arithmetic of whole numbers alone."""
    mixed = index * 2_654_435_761 % 2**32
    mixed = (mixed ^ (mixed >> 15)) * 1_103_515_245 % 2**32
    return ((mixed >> 24) - 127.5) / 64


@pytest.mark.usefixtures("_other_state")
@pytest.mark.parametrize("seed", [1, 2])
def test_the_operands_are_the_same_numbers_whatever_the_state_of_torch(seed: int) -> None:
    found = sentinel._operand(seed, CPU)
    assert (found.shape, found.dtype) == ((16, 128, 64), torch.bfloat16)
    flat, places = found.flatten(), [0, 1, 8_191, 8_192, 123_456, found.numel() - 1]
    assert [float(flat[place]) for place in places] == [hashed(2 * place + seed) for place in places]


@pytest.mark.parametrize(
    "damage",
    [lambda image: image[: len(image) // 2], lambda image: image[:-1], lambda image: b"", lambda image: image[::-1]],
    ids=["half of it", "all but a byte", "empty", "other bytes"],
)
def test_damaged_machine_code_is_refused_before_a_driver_sees_it(
    damage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "sentinel.fatbin"
    damaged.write_bytes(damage((KERNELS / "sentinel.fatbin").read_bytes()))
    monkeypatch.setattr(sentinel, "_IMAGE", damaged)
    with pytest.raises(RuntimeError, match=r"machine code sentinel.fatbin is damaged; install fluxbench again"):
        sentinel.load(GPU)


# On a GPU.


@pytest.mark.gpu
def test_on_a_gpu_it_is_the_product_that_torch_computes() -> None:
    found = sentinel.load(GPU)
    a, b = (sentinel._operand(seed, GPU).double() for seed in (1, 2))
    expected = 48 * torch.matmul(a, b.transpose(1, 2))
    error = (found.call().double() - expected).norm() / expected.norm()
    assert float(error) < 1e-4  # float32 sums of 3,072 exact products
    major, minor = torch.cuda.get_device_capability()
    assert found.description == (
        "bfloat16 products of 128 x 64 tiles, 1056 x 48, fixed machine code "
        f"{FIXED['sentinel.fatbin'][:12]} on compute capability {major}.{minor}"
    )


@pytest.mark.gpu
@pytest.mark.usefixtures("_other_state")
def test_on_a_gpu_its_answer_does_not_depend_on_the_state_of_torch() -> None:
    found = sentinel.load(GPU)
    out = found.call()
    assert found.is_right(out)
    one = sum(hashed(2 * k + 1) * hashed(2 * k + 2) for k in range(64))
    assert float(out[0, 0, 0]) == pytest.approx(48 * one, rel=1e-4)


@pytest.mark.gpu
def test_on_a_gpu_it_computes_anew_at_every_call() -> None:
    found = sentinel.load(GPU)
    found.call().fill_(math.nan)
    assert found.is_right(found.call())


@pytest.mark.gpu
@pytest.mark.parametrize("wrong", [lambda out: out * 0, lambda out: out * math.nan, lambda out: out.roll(1, 0)])
def test_on_a_gpu_another_product_is_wrong(wrong: Any) -> None:
    found = sentinel.load(GPU)
    assert not found.is_right(wrong(found.call()))


@pytest.mark.gpu
def test_on_a_gpu_it_keeps_what_it_reads_alive() -> None:
    found = sentinel.load(GPU)
    gc.collect()
    torch.cuda.empty_cache()
    taken = [torch.full((2048, 8192), math.nan, dtype=torch.bfloat16, device=GPU) for _ in range(8)]
    assert found.is_right(found.call())
    assert all(bool(block.isnan().all()) for block in taken)


@pytest.mark.gpu
def test_on_a_gpu_it_runs_on_the_stream_of_the_moment() -> None:
    found = sentinel.load(GPU)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = found.call().clone()
    stream.synchronize()
    assert found.is_right(out)


# Its file.

TIMES = Sentinel(kernel="made up", samples_ms={"flex": ((1.0, 1.25), (1.5,), ()), "torch_flash": ()})


def observed(*sentinels: dict[str, str], samples: tuple[tuple[float, ...], ...] = ()) -> Observations:
    """Return what processes said of their sentinels, and the times of those beside a variant."""
    found = Observations()
    for said in sentinels:
        found.add({"event": "sentinel", **said})
    for process, sentinel_ms in enumerate(samples):
        rounds = (9.0,) * max(1, len(sentinel_ms))
        found.add(timed("flex", process, began=100.0 * process, burst_ms=rounds, sentinel_ms=sentinel_ms))
    return found


def test_its_times_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "sdpa.sentinel.json"
    records.write_text(path, TIMES.to_json() + "\n")
    assert read_sentinel(path) == TIMES


def test_its_file_has_the_fixed_field_names() -> None:
    assert json.loads(TIMES.to_json()) == {
        "schema": 1,
        "kernel": "made up",
        "samples_ms": {"flex": [[1.0, 1.25], [1.5], []], "torch_flash": []},
    }


def test_where_there_is_no_file_there_was_no_sentinel(tmp_path: Path) -> None:
    assert read_sentinel(tmp_path / "sdpa.sentinel.json") is None


@pytest.mark.parametrize("cut", range(0, len(TIMES.to_json()), 7))
def test_a_part_of_a_file_is_refused_by_name(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "sdpa.sentinel.json"
    path.write_text(TIMES.to_json()[:cut], encoding="utf-8")
    with pytest.raises(RecordError, match=r"^sdpa.sentinel.json must hold the times of a sentinel"):
        read_sentinel(path)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "null",
        "7",
        "\x00",
        '"sentinel"',
        "{}",
        '{"schema": 1}',
        '{"schema": 1, "kernel": "made up"}',
        '{"schema": 1, "samples_ms": {}}',
        '{"schema": 1, "kernel": "made up", "samples_ms": []}',
        '{"schema": 1, "kernel": "made up", "samples_ms": {"tiny": 1.0}}',
        '{"schema": 1, "kernel": "made up", "samples_ms": {"tiny": [1.0]}}',
    ],
)
def test_a_file_of_something_else_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "sdpa.sentinel.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RecordError, match=r"^sdpa.sentinel.json must hold the times of a sentinel"):
        read_sentinel(path)


def test_a_file_that_is_not_text_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "sdpa.sentinel.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match=r"^sdpa.sentinel.json"):
        read_sentinel(path)


@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_a_file_of_another_schema_is_refused_with_what_to_do(tmp_path: Path, schema: object) -> None:
    path = tmp_path / "sdpa.sentinel.json"
    path.write_text(json.dumps({**json.loads(TIMES.to_json()), "schema": schema}), encoding="utf-8")
    with pytest.raises(RecordError, match=r"^sdpa.sentinel.json: .* must be 1; update fluxbench, or measure again"):
        read_sentinel(path)


def test_a_number_that_json_has_no_word_for_is_never_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Sentinel(kernel="made up", samples_ms={"tiny": ((math.nan,),)}).to_json()


# From what workers say to its times.

SAMPLES = ((1.0, 1.23456789), (), (1.5,))  # in the second process its output was wrong


def test_its_times_are_those_beside_a_variant_of_every_process_in_order() -> None:
    found = to_sentinel(observed({"description": "made up"}, samples=SAMPLES))
    assert found == Sentinel(kernel="made up", samples_ms={"flex": ((1.0, 1.234568), (), (1.5,))})


def test_each_variant_has_its_own() -> None:
    seen = observed({"description": "made up"}, samples=SAMPLES)
    for process in (1, 0):
        seen.add(timed("torch_flash", process, burst_ms=(9.0,), sentinel_ms=(2.0 + process,)))
    seen.add(timed("torch_flash", 1, began=30.0, burst_ms=None))  # a later turn, which has no burst
    found = to_sentinel(seen)
    assert found is not None
    assert found.samples_ms["torch_flash"] == ((2.0,), (3.0,))
    assert found.samples_ms["flex"] == ((1.0, 1.234568), (), (1.5,))


def test_a_round_that_is_not_ranked_is_not_ranked_for_the_sentinel_either() -> None:
    seen = observed({"description": "made up"}, samples=((1.0, 2.0, 3.0),))
    seen.readings = readings(0.0, 0.3, clock_mhz=lambda time_s: 1500.0 if 0.09 < time_s < 0.17 else 1980.0)
    found = to_sentinel(seen)
    assert found is not None
    assert found.samples_ms == {"flex": ((1.0, 3.0),)}


def test_of_a_process_that_was_started_again_the_later_times_count() -> None:
    seen = observed({"description": "made up"}, samples=SAMPLES)
    seen.add(timed("flex", 1, began=150.0, burst_ms=(9.0,), sentinel_ms=(4.0,)))
    found = to_sentinel(seen)
    assert found is not None
    assert found.samples_ms["flex"] == ((1.0, 1.234568), (4.0,), (1.5,))


def test_a_device_without_a_sentinel_has_none() -> None:
    assert to_sentinel(observed({"reason": "no driver API"}, samples=((),))) is None


def test_workers_that_never_came_to_a_sentinel_had_none() -> None:
    assert to_sentinel(observed(samples=((),))) is None


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_process_without_a_sentinel_costs_its_own_times_alone(place: int) -> None:
    said = [{"description": "made up"}] * 2
    said.insert(place, {"reason": "out of memory"})
    found = to_sentinel(observed(*said, samples=SAMPLES))
    assert found is not None
    assert found.kernel == "made up"
    assert found.samples_ms["flex"][0] == (1.0, 1.234568)

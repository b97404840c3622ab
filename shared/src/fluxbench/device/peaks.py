"""Peak rates of known NVIDIA GPUs, from `peaks.toml`. An unknown device has no peak: None, never zero.

Datasheets assume a boost clock that a card may exceed: an H200's 989.5 TFLOPS are 132 SMs at 1,830 MHz, and it runs at
up to 1,980 MHz. What a card cannot exceed is `Limits`: the widths of the chip at the highest clocks that it has.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fluxbench.core.errors import SetupError
from fluxbench.device.model import Device

FILE = Path(__file__).with_name("peaks.toml")
_MIB = 2**20
_GIB = 2**30
# NVML reports less than the nominal size (ECC, reserved pages): 44.99 of 48 GiB on an L40S.
_MEMORY_TOLERANCE = 0.1
_NO_MODEL = {"nvidia", "geforce", "tesla", "tensor", "core", "gpu"}
_INTEGERS = (
    *("memory_gib", "sm_count", "ops_16bit_per_sm_clock", "ops_narrow_per_sm_clock", "memory_bus_bits"),
    *("sm_clock_mhz", "memory_clock_mhz"),
)
_NUMBERS = ("bf16_tflops", "fp8_tflops", "memory_gb_s", "l2_mib")
_KEYS = ("target", "also", "source", *_INTEGERS, *_NUMBERS)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the chip does in a clock cycle at most, and its highest clocks: no kernel exceeds their product.

    The clocks are the highest that NVML reports for such a card, and count where a device does not report its own. The
    memory's data rate is twice its clock, for every kind of memory here.
    """

    sms: int
    ops_16bit: int  # per SM and clock, dense, with whatever accumulator is fastest
    ops_narrow: int  # the same in the fastest format of 8 or 4 bits
    memory_bits: int  # width of the memory's bus
    sm_clock_mhz: int
    memory_clock_mhz: int

    def tflops(self, *, narrow: bool = False, sm_clock_mhz: int | None = None) -> float:
        """Return the most operations in 10**12 a second, of 16-bit or of narrower formats."""
        ops = self.ops_narrow if narrow else self.ops_16bit
        return self.sms * ops * (sm_clock_mhz or self.sm_clock_mhz) / 1e6

    def gb_s(self, memory_clock_mhz: int | None = None) -> float:
        """Return the most that the memory moves, in 10**9 bytes a second."""
        return self.memory_bits / 8 * 2 * (memory_clock_mhz or self.memory_clock_mhz) / 1e3


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The rates that a device cannot exceed at the clocks its datasheet assumes, and its limits at any clock."""

    bf16_tflops: float  # dense, float32 accumulation
    fp8_tflops: float | None  # the same in fp8; None where the device has none
    memory_gb_s: float  # 10**9 bytes a second
    l2_bytes: int
    source: str
    limits: Limits


@dataclass(frozen=True, kw_only=True)
class Card:
    """A known model of GPU."""

    target: str  # its folder of reports/
    memory_gib: int  # nominal
    words: frozenset[str]  # by which a table may call it
    model: str  # the word without which a name is not of this model: "h200"
    peak: Peak


@functools.cache
def cards() -> Mapping[str, Card]:
    """Return the known models by their NVML name without "NVIDIA ". Raises `SetupError` as `read` does."""
    return read(FILE)


def peak(device: Device) -> Peak | None:
    """Return the device's peak rates; None for an unknown device, a MIG slice, or a card with another memory size.

    The name must match in full, so that a laptop part or an "RTX 4090 D" is not taken for the desktop card.
    """
    card = cards().get(device.name.removeprefix("NVIDIA "))
    if device.kind != "cuda" or device.mig or card is None:
        return None
    if device.memory_bytes is None:
        return card.peak
    return card.peak if abs(device.memory_bytes / _GIB / card.memory_gib - 1) <= _MEMORY_TOLERANCE else None


def by_name(name: str) -> Peak | None:
    """Return the peak of the card that a table calls so: "A100-80GB", "H200"; None where no known card fits.

    Every word must be one of the card's: of its NVML name, its memory ("80GB") or its form ("SXM"). Of several cards
    that fit, it is the one with the highest limits, so that no right time exceeds them.
    """
    words = set(re.findall(r"[a-z0-9]+", name.lower())) - _NO_MODEL
    peaks = (card.peak for card in cards().values() if card.model in words and words <= card.words)
    return max(peaks, key=lambda rates: (rates.limits.tflops(), rates.limits.gb_s()), default=None)


def read(path: Path) -> dict[str, Card]:
    """Return the cards of a file such as `peaks.toml`.

    Raises `SetupError` for a key that is missing or unknown, for a wrong value, and where the file is not TOML.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SetupError(f"{path.name} must be TOML: {error}; correct it") from error
    return {name: _card(name, table, path.name) for name, table in tables.items()}


def _card(name: str, table: object, file: str) -> Card:
    where = f"table {name!r} of {file}"
    if not isinstance(table, dict):
        raise SetupError(f"{where} must be a card, got {table!r}; begin it with a line such as [{name!r}]")
    if table.keys() != set(_KEYS):
        missing, unknown = sorted(_KEYS - table.keys()), sorted(table.keys() - _KEYS)
        rule = f"must have {', '.join(missing)}" if missing else f"must have no {', '.join(unknown)}"
        raise SetupError(f"{where} {rule}, got {', '.join(table) or 'nothing'}; the keys are at the top of the file")
    for key, value in table.items():
        if broken := _broken_rule(key, value):
            raise SetupError(f"{key} of {where} must be {broken}, got {value!r}; correct it")
    parts = re.findall(r"[a-z0-9]+", name.lower())
    fp8_tflops = table["fp8_tflops"]
    return Card(
        target=table["target"],
        memory_gib=table["memory_gib"],
        words=frozenset({*parts, f"{table['memory_gib']}gb", *table["also"]}),
        model=next((part for part in parts if re.search(r"\d", part)), " ".join(parts)),
        peak=Peak(
            bf16_tflops=float(table["bf16_tflops"]),
            fp8_tflops=None if fp8_tflops == "none" else float(fp8_tflops),
            memory_gb_s=float(table["memory_gb_s"]),
            l2_bytes=int(table["l2_mib"] * _MIB),
            source=table["source"],
            limits=Limits(
                sms=table["sm_count"],
                ops_16bit=table["ops_16bit_per_sm_clock"],
                ops_narrow=table["ops_narrow_per_sm_clock"],
                memory_bits=table["memory_bus_bits"],
                sm_clock_mhz=table["sm_clock_mhz"],
                memory_clock_mhz=table["memory_clock_mhz"],
            ),
        ),
    )


def _broken_rule(key: str, value: object) -> str | None:
    """Return what a value of `peaks.toml` must be, None where it is that."""
    if key in _INTEGERS:
        return None if type(value) is int and value > 0 else "a positive integer"
    if key == "fp8_tflops" and value == "none":
        return None
    if key in _NUMBERS:
        or_none = ' or "none"' if key == "fp8_tflops" else ""
        is_one = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
        return None if is_one else f"a positive number{or_none}"
    if key == "also":
        is_one = isinstance(value, list) and all(isinstance(word, str) for word in value)
        return None if is_one else "a list of words"
    return None if isinstance(value, str) and value else "a text"

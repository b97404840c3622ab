"""The device that was found: what `device.json` holds, and what a page shows of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fluxbench.device.describe import describe
from fluxbench.device.model import Device
from fluxbench.device.peaks import peak
from fluxbench.report.blocks import Block, Facts, Verbatim


class _Content(msgspec.Struct, frozen=True):
    """What of `device.json` is shown."""

    device: Device
    in_use_by: tuple[str, ...] = ()
    nvidia_smi: str | None = None


def content(device: Device, others: Sequence[str], nvidia_smi: str | None) -> dict[str, Any]:
    """Return what `device.json` holds: the device, its peak rates, the processes that use it too, nvidia-smi's text."""
    sheet = peak(device)
    return {
        "device": dataclasses.asdict(device),
        "peak": dataclasses.asdict(sheet) if sheet else None,
        "in_use_by": list(others),
        "nvidia_smi": nvidia_smi or None,
    }


def blocks(content: Mapping[str, Any]) -> list[Block]:
    """Return what this device is and its peak rates with their source. Raises `msgspec.ValidationError`."""
    found = msgspec.convert(content, _Content)
    if sheet := peak(found.device):
        rates = f"{sheet.bf16_tflops:g} TFLOP/s bfloat16, {sheet.memory_gb_s:,g} GB/s"
        peaks = [("peak, dense", rates), ("source", sheet.source)]
    else:
        peaks = [("peak", "unknown: this device is not in fluxbench's table of data sheets")]
    in_use = [("in use by", "; ".join(found.in_use_by))] if found.in_use_by else []
    facts = Facts([*describe(found.device), *peaks, *in_use])
    return [facts, Verbatim(found.nvidia_smi)] if found.nvidia_smi else [facts]

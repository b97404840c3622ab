"""What variants declare, and what came of trying it -> a table of what each library's attention can do."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fluxbench.records.schema import Record, Status, write_rows
from fluxbench.report.tables.text import WRAP, grid, prose
from fluxbench.variants._base import Capabilities, Variant

Tried = Mapping[str, Mapping[str, str]]  # variant -> capability -> "yes", "no: why" or "wrong: why"

_SHORT = {
    **{"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64", "int8": "int8"},
    **{"float8_e4m3fn": "fp8", "float8_e5m2": "fp8 e5m2"},
}
_WORDS = prose(
    "Yes, and a precision or head dim without a sign: it ran here and its values were right, in a measurement or in a"
    " small call (256 tokens, 4 heads; gradients against float64 ones).",
    "*: declared by the library, not tried here. !, FAILS: declared, tried here, and it failed. -: not declared.",
    "Causal: query i sees keys 0 to i. GQA: fewer key heads than query heads. Varlen: several sequences in one call."
    " Head dims: of 64, 96, 128, 192 and 256. Needs: the lowest compute capability, or that it runs on a CPU too.",
)
_OVER = re.compile(r"error (\d[\d.e+-]*) is over the budget (\d[\d.e+-]*\d)")  # as checking says it (`correctness`)
_HEADER = ("variant", "capability", "declared", "here")
_HEADS = ("variant", "precision", "causal", "GQA", "head dims", "backward", "varlen", "needs")


def capabilities_table(variants: Iterable[Variant], records: Iterable[Record], tried: Tried) -> str:
    """Return one row per variant of which there are records, in any form; below it why what was tried failed.

    A record that PASSED verifies its precision and head_dim as well.
    """
    rows: list[Sequence[str] | str] = []
    failed: dict[str, list[str]] = {}
    for variant, declared, results in _shown(variants, records, tried):
        switches = [
            _switch(getattr(declared, key), results.get(key)) for key in ("causal", "gqa", "backward", "varlen")
        ]
        causal, gqa, backward, varlen = switches
        precision = " ".join(_SHORT.get(name, name) + _sign(results.get(name)) for name in declared.dtypes)
        heads = " ".join(f"{size}{_sign(results.get(f'head_dim {size}'))}" for size in declared.head_dims)
        rows.append((variant.name, precision, causal, gqa, heads, backward, varlen, _needs(declared)))
        for key, result in results.items():
            if result != "yes":
                failed.setdefault(result, []).append(f"{variant.name} {key}")
    if not rows:
        return "There are no records of a variant that declares what it can do."
    parts = [grid(_HEADS, rows, left=range(len(_HEADS))), _WORDS, _reasons(failed)]
    return "\n\n".join(part for part in parts if part)


def write_capabilities_csv(variants: Iterable[Variant], records: Iterable[Record], tried: Tried, path: Path) -> None:
    """Write one row per variant and capability: whether it is declared, and what came of trying it. Raises `OSError`.

    `here` is empty where it was not tried. The capability "minimum" is a compute capability, or empty: a CPU too.
    """
    rows: list[Sequence[object]] = [_HEADER]
    for variant, declared, results in _shown(variants, records, tried):
        keys = (*declared.dtypes, *(f"head_dim {size}" for size in declared.head_dims))
        rows += [(variant.name, key, "yes", results.get(key)) for key in keys]
        for key in ("causal", "gqa", "backward", "varlen"):
            rows.append((variant.name, key, "yes" if getattr(declared, key) else "no", results.get(key)))
        rows.append((variant.name, "minimum", ".".join(map(str, declared.minimum or ())), None))
    write_rows(path, rows)


def _shown(
    variants: Iterable[Variant], records: Iterable[Record], tried: Tried
) -> list[tuple[Variant, Capabilities, dict[str, str]]]:
    """Return the variants of which there are records, with what they declare and what is known of it here."""
    found = list(records)
    here = {record.variant for record in found}
    verified: dict[str, dict[str, str]] = {}
    for record in found:
        if record.status is Status.PASSED:
            keys = (record.workload.dtype, f"head_dim {record.workload.head_dim}")
            verified.setdefault(record.variant, {}).update(dict.fromkeys(keys, "yes"))
    return [
        (variant, variant.capabilities, {**verified.get(variant.name, {}), **tried.get(variant.name, {})})
        for variant in variants
        if variant.capabilities and here & set(variant.names)
    ]


def _sign(result: str | None) -> str:
    if result is None:
        return "*"
    return "" if result == "yes" else "!"


def _switch(declared: object, result: str | None) -> str:
    if not declared:
        return "-"
    if result is None:
        return "yes*"
    return "yes" if result == "yes" else "FAILS"


def _needs(declared: Capabilities) -> str:
    return "a CPU will do" if declared.minimum is None else f"{declared.minimum[0]}.{declared.minimum[1]}"


def _reasons(failed: Mapping[str, Sequence[str]]) -> str:
    """Return lines: each reason once, with all of which it is the reason."""
    if not failed:
        return ""
    lines = ["Declared, and not so when it was tried here:"]
    for reason, what in failed.items():
        said = _OVER.sub(_times_over, reason.removeprefix("no: "))
        for indent, text in (("  ", said), ("      ", _together(what))):
            lines += textwrap.wrap(
                text, WRAP, initial_indent=indent, subsequent_indent="      ", break_on_hyphens=False
            )
    return "\n".join(lines)


def _times_over(found: re.Match[str]) -> str:
    """Return how far over its budget an error is, behind what was said of it."""
    return f"{found[0]}, {float(found[1]) / float(found[2]):.3g} times the budget"


def _together(what: Sequence[str]) -> str:
    """Return "torch_cudnn bfloat16, gqa; flex backward" of "torch_cudnn bfloat16", "torch_cudnn gqa", ..."""
    by_variant: dict[str, list[str]] = {}
    for text in what:
        name, _, key = text.partition(" ")
        by_variant.setdefault(name, []).append(re.sub("^head_dim ", "head dim ", key))
    return "; ".join(f"{name}: {', '.join(keys)}" for name, keys in by_variant.items())

"""What each library's attention can do: what its variants declare, and what came of trying it on this device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fluxbench import operations, variants
from fluxbench.bench.events import ProbeResult
from fluxbench.core.formatting import count
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.report.blocks import Block, Bullets, Column, Fold, Paragraph, Row, Table
from fluxbench.report.legend import name
from fluxbench.report.results import Results
from fluxbench.report.tables import Rows
from fluxbench.variants._base import NO, Capabilities, Support, Variant

_SHORT = {
    **{"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64", "int8": "int8"},
    **{"float8_e4m3fn": "fp8", "float8_e5m2": "fp8 e5m2"},
}
_SWITCHES = ("causal", "gqa", "backward", "varlen")
_HEADS = ("variant", "precision", "causal", "GQA", "head dims", "backward", "varlen", "needs")
_LINE = "*: declared, not tried here. !, FAILS: declared, and failed here. -: not declared."
_WORDS = (
    "Yes, and a precision or head dim without a symbol: it ran here and its values were right, in a measurement or in "
    "a small call (256 tokens, 4 heads; gradients against float64 ones). "
    "Causal: query i sees keys 0 to i. GQA: fewer key heads than query heads. Varlen: several sequences in one call. "
    "Head dims: of 64, 96, 128, 192 and 256; all where a library takes a few sizes. "
    "Needs: the lowest compute capability, or that it runs on a CPU too."
)
_YES = ProbeResult(status="yes", reason=None, rel_l2=None, budget=None)
_Outcomes = Mapping[str, ProbeResult]


def blocks(results: Results) -> list[Block]:
    """Return one row per variant of which there are records, in any form; below it why what was tried failed."""
    table_rows, failed = [], dict[str, dict[str, list[str]]]()
    for variant, outcomes in _shown(results):
        row = _row(variant, outcomes)
        table_rows.append(row)
        for key, outcome in outcomes.items():
            if outcome.status != "yes":
                of_reason = failed.setdefault(_why(outcome), {})
                of_reason.setdefault(variant.name, []).append(key.replace("head_dim", "head dim"))
    if not table_rows:
        return [Paragraph("There are no records of a variant that declares what it can do.")]
    table = Table([Column(head, left=True) for head in _HEADS], table_rows, notes=[_LINE, _WORDS])
    title = f"What the attention of {count(len(table_rows), 'variant')} can do"
    if not failed:
        return [Fold(title, [table])]
    items = [
        (reason, "; ".join(f"{name}: {', '.join(keys)}" for name, keys in of_reason.items()))
        for reason, of_reason in failed.items()
    ]
    return [Fold(title, [table, Bullets("Declared, but failed here:", items)])]


def rows(results: Results) -> Rows:
    """Return one row per variant and capability: whether it is declared, and what came of trying it.

    `here` is empty where it was not tried. The capability "minimum" is a compute capability, or empty: a CPU too.
    """
    csv: Rows = [("variant", "capability", "declared", "here")]
    for variant, outcomes in _shown(results):
        declared = variant.capabilities
        here = {key: _text(outcome) for key, outcome in outcomes.items()}
        keys = (*_precisions(declared), *(f"head_dim {size}" for size in declared.head_dims))
        csv += [(variant.name, key, "yes", here.get(key)) for key in keys]
        for key in _SWITCHES:
            csv.append((variant.name, key, "no" if getattr(declared, key) is NO else "yes", here.get(key)))
        csv.append((variant.name, "minimum", None if declared.cpu else _dotted(declared.minimum), None))
    return csv


def _shown(results: Results) -> Iterator[tuple[Variant, _Outcomes]]:
    """Yield the variants of which there are records, with what is known of them here."""
    names = {record.variant for record in results.records}
    for variant in variants.REGISTRY:
        if names & set(variant.names):
            measured = dict.fromkeys(_verified(variant, results.records), _YES)
            yield variant, {**measured, **results.capabilities.get(variant.name, {})}


def _verified(variant: Variant, records: Iterable[Record]) -> Iterator[str]:
    """Yield what a variant's PASSED records verify, in its eager form: precision, head_dim, and what was asked for."""
    for record in records:
        if record.variant != variant.name or record.status is not Status.PASSED:
            continue
        if record.workload.operation in operations.NAMES:
            call = operations.find(record.workload.operation).attention(record.workload.shape)
            yield from (call.dtype, f"head_dim {call.head_dim_qk}", f"head_dim {call.head_dim_v}")
            asked = {"causal": call.causal, "gqa": call.grouped, "backward": call.backward}
            yield from (key for key, is_asked in asked.items() if is_asked)


def _row(variant: Variant, outcomes: _Outcomes) -> Row:
    declared = variant.capabilities
    causal, gqa, backward, varlen = (_switch(getattr(declared, key), outcomes.get(key)) for key in _SWITCHES)
    precision = " ".join(_SHORT.get(name, name) + _symbol(outcomes.get(name)) for name in _precisions(declared))
    head_dims = " ".join(f"{size}{_symbol(outcomes.get(f'head_dim {size}'))}" for size in declared.head_dims)
    needs = "any, also a CPU" if declared.cpu else _dotted(declared.minimum)
    cells = (name(variant.name), precision, causal, gqa, head_dims, backward, varlen, needs)
    return Row(cells, failed="FAILS" in (causal, gqa, backward, varlen))


def _precisions(declared: Capabilities) -> tuple[str, ...]:
    return declared.computes_in or declared.dtypes


def _symbol(outcome: ProbeResult | None) -> str:
    if outcome is None:
        return "*"
    return "" if outcome.status == "yes" else "!"


def _switch(declared: Support, outcome: ProbeResult | None) -> str:
    if declared is NO:
        return "-"
    if outcome is None:
        return "yes*"
    return "yes" if outcome.status == "yes" else "FAILS"


def _why(outcome: ProbeResult) -> str:
    """Return why a capability is not there, and how far over its budget an error is."""
    reason = (outcome.reason if outcome.status == "no" else None) or _text(outcome)
    if outcome.rel_l2 is None or not outcome.budget:
        return reason
    return f"{reason}, {outcome.rel_l2 / outcome.budget:.3g} times the budget"


def _text(outcome: ProbeResult) -> str:
    return f"{outcome.status}: {outcome.reason}" if outcome.reason else outcome.status


def _dotted(capability: tuple[int, ...]) -> str:
    return ".".join(map(str, capability))

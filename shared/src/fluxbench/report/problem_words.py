"""What is wrong with published records, as sentences: the one place that words `analysis.verification`."""

from __future__ import annotations

from fluxbench.analysis.verification.problem import Kind, Problem
from fluxbench.records.files import cell_of

_LONGEST = 600  # characters
_WORDS = {
    Kind.DAMAGED: "{why}",
    Kind.NO_SAMPLES: "its times must follow from its samples, {cell}.samples.json.gz; there is no such file",
    Kind.TWICE: "there must be one record of it in {notebook}, got {count}",
    Kind.SEVERAL: "all records must be of one {what}, got {got}",
    Kind.OTHER_DEVICE_FILE: "device.json must be of the records' device, whose {name} is {expected}, got {got}",
    Kind.DEVICE_FILE: "device.json: {name} must {rule}, got {got}",
    Kind.RATES: "the device's rates: {name} must {rule}, got {got}",
    Kind.CAPABILITY: "capability {key} of {variant} must {rule}, got {got}",
    Kind.CONTROL: "the control kernel's times beside {beside} must be those of the samples, {expected}, got {got}",
    Kind.CONTROL_CYCLES: (
        "the control kernel must take as many cycles as in other cells on such a device, {expected:,.0f}, "
        "got {got:,.0f}"
    ),
    Kind.NO_RECORD: "{variant} at {workload} is in the samples and must have a record",
    Kind.LACKS: "its {where} must have {what}",
    Kind.DATE: "measured_at must {must}, got {got}",
    Kind.DRIVER: "its driver must be one, got {versions} in versions and {fingerprint} in fingerprint",
    Kind.WORKLOAD: "its workload must have the shape that fluxbench knows by this name",
    Kind.UNKNOWN_VARIANT: (
        "{variant} must be a registered variant; send its file for variants/ first (docs/adding-a-variant.md), or "
        "keep its records out of the public reports"
    ),
    Kind.NAME: "its {field} must be {expected}, got {got}",
    Kind.CLASS: "its precision class must be {expected}, as the variant declares, got {got}",
    Kind.OTHER_KERNEL: "the same kernel must run in all processes; {kernels} in process {process}",
    Kind.KERNELS: "one of its profiled kernels must match {pattern!r}, got {got}",
    Kind.BUDGET: "its budget in output {output} must be the variant's own, {expected:g}, got {got:g}",
    Kind.EXACT_BUDGET: (
        "the budget of an exact kernel must be at most {most:.3g}, as roundings of this dtype give, got {got:.3g} in "
        "output {output}"
    ),
    Kind.OTHER_BUDGET: (
        "its budget must be that of the other exact kernels there, {expected:.3g}, got {got:.3g} in output {output}"
    ),
    Kind.OVER_BUDGET: "PASSED must be within its budget of {budget:g}, got {got} in output {output}",
    Kind.OVER_SHARE: "PASSED must be within the budget of a {part}, got {got:.4g} times that in output {output}",
    Kind.ERRORS: "errors of output {output}: {rule}",
    Kind.RANGE: "{regime}: {what} within {least:g} to {most:g} ms, got {got:g}",
    Kind.ROOFLINE: "{regime}: {arithmetic}",
    Kind.SAMPLES: "{regime}: its samples must be those of its samples file, {what}: {expected}, got {got}",
    Kind.SHORT_SAMPLE: "{regime}: no sample can be {got:.4g} ms: {why}",
    Kind.COPIED: "{regime}: processes must have samples of their own, got the same in processes {one} and {other}",
    Kind.RANKED: (
        "{regime}: fewer than half of a process's samples can be discarded after the warm-up, got more in process "
        "{process}"
    ),
    Kind.REFERENCE: "{regime}: its reference must be that of its samples, {expected}, got {got}",
    Kind.VALUE: "{regime}: {name} must follow from the samples, {expected}, got {got}",
    Kind.WIDTH: "{regime}: half of {name} must be at least {least:.2%} for samples that vary so, got {got:.2%}",
    Kind.TELEMETRY: "{regime}: {name} must be {least:g} to {most:g}, got {got:g}",
    Kind.COST: "{name} must {rule}, got {got}",
    Kind.FLAG: "its flag {flag} must follow from its values: {expected}, got {got}",
    Kind.NO_FLAG: "it must have the flag {flag}: {why}",
}


def sentence(problem: Problem) -> str:
    """Return a problem as a clause that does not name the record."""
    words = _WORDS[problem.kind].format(**{"cell": cell_of(problem.path), **problem.values})
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def whose(problem: Problem) -> str:
    """Return whose problem it is: a record's, or a cell's."""
    cell = cell_of(problem.path)
    return f"{cell}, {problem.variant} at {problem.workload}" if problem.variant else cell

"""A second shape at which each variant is checked: two batch entries, a ragged length, and strides that differ.

Kernels are right at one batch entry, at lengths that are whole blocks and on contiguous tensors more often than
elsewhere, so what holds at a workload's own shape need not hold for its kernel.
"""

from __future__ import annotations

import functools

import torch

from fluxbench.correctness.case import Case
from fluxbench.correctness.guards import keep, poison, restore
from fluxbench.correctness.judging import judge
from fluxbench.device.model import Device
from fluxbench.operations import find, workload
from fluxbench.operations.protocol import Tensors
from fluxbench.operations.workload import Shape, Workload
from fluxbench.variants.forms import FormedVariant
from fluxbench.worker.failures import is_fatal

TOKENS = 333  # no multiple of 2; 13 more than whole blocks of 64
WHOLE = 320  # for a library that takes whole blocks alone
_MOST_QUERIES = 200  # where there are not as many queries as keys
_BATCH = 2
_MORE_TOKENS = {"k": 7, "v": 19, "dout": 5}  # that lie between two batch entries


def ragged_shape(shape: Shape, tokens: int = TOKENS) -> Shape | None:
    """Return the shape of the check at so many keys, of decoding with its one query; None where there are no keys."""
    if "seq_len_k" not in shape:
        return None
    queries = shape.get("seq_len_q", 1)
    queries = tokens if queries == shape["seq_len_k"] else min(int(queries), _MOST_QUERIES)
    return {**shape, "batch": _BATCH, "seq_len_q": queries, "seq_len_k": tokens}


def check_ragged(formed: FormedVariant, of: Workload, device: torch.device) -> str | None:
    """Return why a variant is wrong at the ragged shape, or None.

    k, v and the output's gradient are views with strides of their own, in memory where other values lie between their
    tokens. A library may refuse such views; it then gets contiguous tensors. One that refuses the length gets whole
    blocks of 64 keys. One that does not take these either is not checked, nor is a compiled form: its eager form runs
    the same kernel, and another shape would compile for up to a minute.
    """
    variant, operation = formed.variant, find(of.operation)
    shapes = [shape for tokens in (TOKENS, WHOLE) if (shape := ragged_shape(of.shape, tokens))]
    model = _model(device)
    shape = next((each for each in shapes if not variant.supports(model, operation.attention(each))), None)
    if shape is None or formed.form.compile_mode is not None:
        return None
    case = _case(of.operation, tuple(sorted(shape.items())), device)
    words = f"{_BATCH} batch entries of {shape['seq_len_k']} keys"
    reasons: list[str] = []
    for make, how in ((_strided, f"{words}, strides unequal"), (_contiguous, f"{words}, contiguous")):
        inputs = make(case.inputs)  # of its own: a kernel that changes them spoils no other's
        kept = keep(inputs)
        poison(case)
        try:
            outputs = operation.bind(formed, shape)(inputs)  # bound anew: it may keep the strides it was built for
        except Exception as error:  # a library says in words of its own that it takes no such views
            if make is _contiguous or is_fatal(error):
                raise
            continue
        wrong = judge(outputs, case, variant.quantized_budget_rel_l2, variant.precision_class)[1]
        if not (wrong := wrong or restore(inputs, kept)):
            return f"{reasons[0]}; right where they are contiguous" if reasons else None
        reasons.append(f"at {how}: {wrong}")
    return reasons[0] if len(reasons) == 1 else f"at {words}, whatever the strides: {reasons[-1].partition(': ')[2]}"


def _model(device: torch.device) -> Device:
    """Return what `Variant.supports` asks of a device."""
    if device.type != "cuda":
        return Device(kind=device.type, name=device.type)
    capability = torch.cuda.get_device_capability(device)
    return Device(kind="cuda", name=torch.cuda.get_device_name(device), compute_capability=capability)


@functools.lru_cache(maxsize=4)
def _case(operation: str, shape: tuple[tuple[str, int | float | bool | str], ...], device: torch.device) -> Case:
    """Return the case of a shape, which the workloads of a curve share; the contents of its batch entries differ."""
    of = workload(operation, "ragged", dict(shape), group="ragged", x=TOKENS, x_unit="keys")
    return Case.make(of, find(operation).input_kinds[0], 0, device)


def _contiguous(inputs: Tensors) -> Tensors:
    """Return copies of the inputs."""
    return {name: x.clone() for name, x in inputs.items()}


def _strided(inputs: Tensors) -> Tensors:
    """Return copies of the inputs, `[batch, tokens, heads, head_dim]`; all but q are views of longer, wider tensors."""
    strided = _contiguous(inputs)
    for width, name in enumerate(_MORE_TOKENS, start=2):
        if name in inputs:
            batch, tokens, *rest = inputs[name].shape
            whole = inputs[name].new_ones(batch, tokens + _MORE_TOKENS[name], width, *rest)
            strided[name] = whole[:, :tokens, 1].copy_(inputs[name])
    return strided

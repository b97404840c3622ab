"""A second shape at which each variant is checked: two batch entries, a ragged length, and strides that differ.

Kernels are right at one batch entry, at lengths that are whole blocks and on contiguous tensors more often than
elsewhere, so what holds at a workload's own shape need not hold for its kernel. Nor need it at scores that are all
large or all very negative, which no softmax of a row's own maximum notices: they are checked here too.
"""

from __future__ import annotations

import functools
import math

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
_SHIFT = 128.0  # by which all scores of a query are larger or smaller: exp leaves float32 at 89 and at -104
_MORE_TOKENS = {"q": 3, "k": 7, "v": 19, "dout": 5}  # that lie between two batch entries


def ragged_shape(shape: Shape, tokens: int = TOKENS) -> Shape | None:
    """Return the shape of the check at so many keys, of decoding with its one query; None where there are no keys."""
    if "seq_len_k" not in shape:
        return None
    queries = shape.get("seq_len_q", 1)
    queries = tokens if queries == shape["seq_len_k"] else min(int(queries), _MOST_QUERIES)
    return {**shape, "batch": _BATCH, "seq_len_q": queries, "seq_len_k": tokens}


def check_ragged(formed: FormedVariant, of: Workload, device: torch.device) -> str | None:
    """Return why a variant is wrong at the ragged shape, or None.

    The inputs are views with strides of their own, in memory where NaN lies between their tokens, of v between its
    heads: what a kernel reads beyond them shows even with a weight of 0. A library may refuse such views; it then gets
    contiguous tensors. One that refuses the length gets whole blocks of 64 keys. One that does not take these either is
    not checked, nor is a compiled form: its eager form runs the same kernel, and another shape would compile for up to
    a minute.
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
            if reasons:
                return f"{reasons[0]}; right where they are contiguous"
            return _check_shifted(formed, of.operation, shape, device, words)
        reasons.append(f"at {how}: {wrong}")
    return reasons[0] if len(reasons) == 1 else f"at {words}, whatever the strides: {reasons[-1].partition(': ')[2]}"


def _check_shifted(formed: FormedVariant, name: str, shape: Shape, device: torch.device, words: str) -> str | None:
    """Return why a variant is wrong where all scores of a query are large, or all very negative; or None.

    Of a quantized variant that is not asked, nor of gradients.
    """
    variant, case = formed.variant, _shifted_case(name, tuple(sorted(shape.items())), device)
    if case is None or variant.quantized_budget_rel_l2 is not None:
        return None
    outputs = find(name).bind(formed, shape)(_contiguous(case.inputs))
    wrong = judge(outputs, case, precision=variant.precision_class)[1]
    return wrong and f"at {words}, scores of a query all around {_SHIFT:.0f} or -{_SHIFT:.0f}: {wrong}"


def _model(device: torch.device) -> Device:
    """Return what `Variant.supports` asks of a device."""
    if device.type != "cuda":
        return Device(kind=device.type, name=device.type)
    capability = torch.cuda.get_device_capability(device)
    return Device(kind="cuda", name=torch.cuda.get_device_name(device), compute_capability=capability)


def _workload(operation: str, shape: tuple[tuple[str, int | float | bool | str], ...]) -> Workload:
    """Return the workload of the second shape."""
    return workload(operation, "ragged", dict(shape), group="ragged", x=TOKENS, x_unit="keys")


@functools.lru_cache(maxsize=4)
def _case(operation: str, shape: tuple[tuple[str, int | float | bool | str], ...], device: torch.device) -> Case:
    """Return the case of a shape, which the workloads of a curve share; the contents of its batch entries differ."""
    return Case.make(_workload(operation, shape), find(operation).input_kinds[0], 0, device)


@functools.lru_cache(maxsize=4)
def _shifted_case(
    name: str, shape: tuple[tuple[str, int | float | bool | str], ...], device: torch.device
) -> Case | None:
    """Return the case of a shape whose queries have one more score each, up and down in turn; None of gradients."""
    operation, case = find(name), _case(name, shape, device)
    if operation.differentiates or not {"q", "k"} <= case.inputs.keys():
        return None
    inputs = _contiguous(case.inputs)
    power = math.ceil(math.log2(_SHIFT * inputs["q"].shape[-1] ** 0.5))  # powers of two, which no format rounds
    tokens, heads = (torch.arange(size, device=device) for size in inputs["q"].shape[1:3])
    inputs["q"][..., 0] = (1 - 2 * ((tokens[:, None] + heads) % 2)) * 2.0 ** (power // 2)
    inputs["k"][..., 0] = 2.0 ** (power - power // 2)
    return Case.of(operation, _workload(name, shape), inputs)


def _contiguous(inputs: Tensors) -> Tensors:
    """Return copies of the inputs."""
    return {name: x.clone() for name, x in inputs.items()}


def _strided(inputs: Tensors) -> Tensors:
    """Return copies of the inputs, `[batch, tokens, heads, head_dim]`, that are views of longer, wider tensors."""
    strided = _contiguous(inputs)
    for width, name in enumerate(_MORE_TOKENS, start=2):
        if name in inputs:
            batch, tokens, *rest = inputs[name].shape
            apart = 1 if name == "v" else 0  # axes between the tokens and the width
            size = (batch, tokens + _MORE_TOKENS[name], *rest[:apart], width, *rest[apart:])
            whole = inputs[name].new_full(size, float("nan"))
            strided[name] = whole[:, :tokens].select(2 + apart, 1).copy_(inputs[name])
    return strided

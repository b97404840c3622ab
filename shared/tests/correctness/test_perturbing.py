"""Inputs whose contents change in place to others whose answer is known, poisoned memory, and inputs that came back."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest
import torch
from fakes import tokens

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.correctness.guards import poison, restore
from fluxbench.correctness.perturbing import PerturbedInputs
from fluxbench.operations.protocol import Tensors
from fluxbench.operations.workload import Workload

CPU = torch.device("cpu")
GROUPED: dict[str, Any] = {"heads": 6, "kv_heads": 2, "head_dim_qk": 32, "head_dim_v": 16}
SMALL, CAUSAL = tokens("small", 40, **GROUPED), tokens("causal", 40, causal=True, **GROUPED)
BACKWARD = tokens("backward", 24, "attention_backward", **GROUPED)
DECODE = tokens("decode", 40, "decode", seq_len_q=1, **GROUPED)
of_each = pytest.mark.parametrize("workload", [SMALL, CAUSAL, BACKWARD, DECODE], ids=lambda workload: workload.name)


def made(workload: Workload) -> Tensors:
    return operations.find(workload.operation).inputs(workload.shape, "flux", 0, CPU)


def answer(workload: Workload, inputs: Tensors) -> Tensors:
    return operations.find(workload.operation).reference(workload.shape, inputs, torch.float64)


def copied(inputs: Tensors) -> Tensors:
    return {name: x.clone() for name, x in inputs.items()}


def same(inputs: Tensors, others: Tensors) -> list[bool]:
    return [torch.equal(x, others[name]) for name, x in inputs.items()]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@of_each
def test_the_answer_of_perturbed_inputs_follows_from_the_first_one(workload: Workload, dtype: str) -> None:
    shape = {**workload.shape, "dtype": dtype}
    workload = operations.workload(workload.operation, "other", shape, group="other", x=1, x_unit="tokens")
    inputs = made(workload)
    first = answer(workload, copied(inputs))
    perturbed = PerturbedInputs(workload, inputs, 0)
    for _ in range(3):
        perturbed.perturb()
        torch.testing.assert_close(answer(workload, inputs), perturbed.expected(first), rtol=1e-11, atol=1e-11)


@of_each
def test_contents_are_new_every_time_at_the_same_addresses_and_the_same_for_the_same_seed(workload: Workload) -> None:
    inputs, twin = made(workload), made(workload)
    addresses = [x.data_ptr() for x in inputs.values()]
    perturbed, other = PerturbedInputs(workload, inputs, 7), PerturbedInputs(workload, twin, 7)
    seen = [copied(inputs)]
    for _ in range(4):
        perturbed.perturb()
        other.perturb()
        assert [x.data_ptr() for x in inputs.values()] == addresses
        assert all(same(inputs, twin))
        assert not any(itertools.chain(*(same(inputs, before) for before in seen)))
        seen.append(copied(inputs))


@pytest.mark.parametrize("perturbations", [0, 1, 4])
@pytest.mark.parametrize("spoiled", ["", "q", "k", "v", "dout"])
def test_an_input_that_a_kernel_changed_is_named(spoiled: str, perturbations: int) -> None:
    inputs = made(BACKWARD)
    first = copied(inputs)
    perturbed = PerturbedInputs(BACKWARD, inputs, 0)
    for _ in range(perturbations):
        perturbed.perturb()
    if spoiled:
        inputs[spoiled].view(-1)[-1] += 1
    assert perturbed.restore() == (f"the kernel changes its inputs: {spoiled}" if spoiled else None)
    assert all(same(inputs, first))
    assert perturbed.expected(first) is first
    assert perturbed.restore() is None


class Unknown(type(operations.find("attention"))):  # type: ignore[misc]
    """Attention, of which nothing is said to follow."""

    def perturbations(self, *_: Any) -> None:
        return None


def test_without_exact_perturbations_contents_are_those_of_other_cases_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "an_operation", sys.modules[__name__])
    workload = tokens("unknown", 12, "an_operation:Unknown")
    inputs = made(workload)
    first, contents = answer(workload, inputs), copied(inputs)
    PerturbedInputs(workload, inputs, 0).perturb()
    assert all(same(inputs, contents))  # there is no other case
    others = [Case.make(workload, "normal", seed, CPU) for seed in (1, 2)]
    perturbed = PerturbedInputs(workload, inputs, 0, others)
    for case in (others[0], others[1], others[0]):
        perturbed.perturb()
        assert all(same(inputs, case.inputs))
        assert perturbed.expected(first) is case.expected
    assert perturbed.restore() is None
    assert perturbed.expected(first) is first


def test_changed_inputs_are_put_back_and_memory_is_poisoned_as_outputs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = made(SMALL)
    kept = copied(inputs)
    assert restore(inputs, kept) is None
    inputs["q"].view(-1)[0] += 1
    inputs["v"].view(-1)[-1] += 1
    assert restore(inputs, kept) == "the kernel changes its inputs: q, v"
    assert all(same(inputs, kept))
    filled: list[torch.Tensor] = []
    full = torch.full

    def recorded(*given: Any, **options: Any) -> torch.Tensor:
        filled.append(full(*given, **options))
        return filled[-1]

    monkeypatch.setattr(torch, "full", recorded)
    poison([torch.zeros(2, 3), torch.zeros(4)], torch.bfloat16)
    assert {(tuple(x.shape), x.dtype) for x in filled} == {((2, 3), torch.bfloat16), ((4,), torch.bfloat16)}
    assert all(bool(x.isnan().all()) for x in filled)

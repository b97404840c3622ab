"""Which kernels run, as the profiler of a GPU tells it: of two calls of one variant, and of another one."""

from __future__ import annotations

import functools

import pytest
import torch

from fluxbench import operations, variants
from fluxbench.bench.believing import another_kernel
from fluxbench.operations import sets
from fluxbench.records.schema import KernelShare
from fluxbench.timing.profiler import profile_call
from fluxbench.variants._base import part_of
from fluxbench.worker.checking import make
from fluxbench.worker.prepared import PreparedWorkload

NAMES = ("torch_flash", "torch_efficient", "torch_cudnn", "torch_math")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["sdpa-b8-s64-h12-d64-bf16", "sdpa-b8-s64-h12-d64-bf16-training", "flux1-1024px-t512"])
def test_a_kernel_is_told_from_any_other_and_is_itself_in_every_call(name: str) -> None:
    device, workload = torch.device("cuda"), sets.by_name()[name]
    operation = operations.find(workload.operation)
    asked = operation.attention(workload.shape)
    inputs = PreparedWorkload.make(workload, device, 1, most=2).contents.inputs
    ran: dict[str, list[str]] = {}
    first: dict[str, list[KernelShare]] = {}
    with torch.inference_mode(not operation.differentiates), torch.set_grad_enabled(False):
        for each in NAMES:
            formed = variants.find(each)
            bound = make(formed, workload, inputs)
            parts = functools.partial(part_of, formed.variant, asked, operation.parts)
            _, seen = profile_call(bound, inputs, device, parts)
            first[each] = [KernelShare(**kernel) for kernel in seen.kernels]
            ran[each] = profile_call(bound, inputs, device, parts)[1].names
    for each in NAMES:
        others = {other for other in NAMES if another_kernel(first[each], ran[other])}
        assert others == {*NAMES} - {each}, (first, ran)

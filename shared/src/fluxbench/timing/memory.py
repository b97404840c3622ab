"""The memory that a call takes, by torch's own allocator."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import torch

from fluxbench.operations.protocol import Bound, Tensors

OUT_OF_MEMORY = "CUDA error: out of memory"  # where CUDA itself asks for memory: for events, graphs, kernels


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch, CUDA or cuBLAS got no memory of a GPU."""
    text = str(error)
    lacks = "CUBLAS_STATUS_ALLOC_FAILED" in text or OUT_OF_MEMORY in text
    return lacks or isinstance(error, torch.OutOfMemoryError)


@dataclass(frozen=True, kw_only=True)
class CallMemory:
    """Bytes of one warm call, without its inputs unless it says so. Preparation is a forward pass before a backward."""

    inputs_bytes: int  # q, k, v, and of a backward pass the gradient of the output
    kept_bytes: int  # what preparation leaves: before a backward pass, all that the forward pass keeps for it
    allocated_bytes: int  # peak, preparation and outputs included
    reserved_bytes: int  # the same, with what the allocator took from the device beyond it; its cache was empty before
    call_bytes: int  # peak of the call alone, outputs included


def memory_of(bound: Bound, inputs: Tensors, device: torch.device) -> CallMemory | None:
    """Return the memory of one warm call.

    None on a CPU, and where a call allocates nothing: a CUDA graph's memory was taken when it was captured. What
    a library holds until the next call is prepared counts as the call's; garbage of earlier calls does not.
    """
    if device.type != "cuda":
        return None
    gc.disable()
    try:
        return _measured(bound, inputs, device)
    finally:
        gc.enable()


def _measured(bound: Bound, inputs: Tensors, device: torch.device) -> CallMemory | None:
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    prepared = bound.prepared(inputs)
    torch.cuda.synchronize(device)
    kept, peak = torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
    reserved = torch.cuda.max_memory_reserved(device)
    torch.cuda.reset_peak_memory_stats(device)
    bound.call(prepared)
    torch.cuda.synchronize(device)
    peak_of_call = torch.cuda.max_memory_allocated(device)
    reserved = max(reserved, torch.cuda.max_memory_reserved(device))
    others = min(before, kept)  # what is allocated while nothing of the call is
    if peak_of_call == kept:
        return None
    return CallMemory(
        inputs_bytes=sum(x.nbytes for x in inputs.values()),
        kept_bytes=kept - others if bound.prepare else 0,
        allocated_bytes=max(peak, peak_of_call) - others,
        reserved_bytes=reserved - others,
        call_bytes=peak_of_call - kept,
    )

"""What a library or torch itself fails at, to a status and a sentence for a person."""

from __future__ import annotations

import torch

from fluxbench.records.status import Status


def classify(error: Exception) -> tuple[Status, str]:
    """Return the status and the sentence for an exception of a library."""
    sentence = first_sentence(error)
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError):
        return Status.OUT_OF_MEMORY, sentence
    if isinstance(error, ImportError) and ";" in sentence:  # it says what to do
        return Status.UNAVAILABLE, sentence
    if isinstance(error, ImportError | OSError) and "undefined symbol" in text:
        words = f"it was built for another torch than {torch.__version__}: {sentence}"
        return Status.UNAVAILABLE, f"{words}; install a build that fits"
    if isinstance(error, ImportError):
        return Status.UNAVAILABLE, f"{sentence}; install what is missing"
    if isinstance(error, NotImplementedError):
        return Status.UNSUPPORTED, f"the library refuses this call here: {sentence}"
    if "no kernel image is available" in text:
        return Status.UNSUPPORTED, "this build of the library has no kernels for this GPU; it is too old or too new"
    if "No available kernel" in text:
        return Status.UNSUPPORTED, f"torch refuses this backend here: {sentence}"
    if "InvalidCxxCompiler" in type(error).__name__ or "No working C++ compiler" in text:
        return Status.UNAVAILABLE, "torch.compile needs a C++ compiler on a CPU; install g++"
    if "Failed to find C compiler" in text or "TritonMissing" in type(error).__name__:
        return Status.UNAVAILABLE, f"Triton cannot compile here: {sentence}; install what is missing"
    return Status.ERROR, f"{type(error).__name__}: {sentence}"


def unusable(device: torch.device) -> tuple[Status, str] | None:
    """Return the status and the reason why this torch cannot use the device at all, or None."""
    if device.type == "cpu":
        return None
    if not torch.cuda.is_available():
        return Status.UNAVAILABLE, (
            f"torch {torch.__version__} cannot use this machine's GPU (its CUDA: {torch.version.cuda or 'none'}); "
            "install a torch that was built for CUDA and for this driver"
        )
    try:
        torch.ones(1, device=device).add_(1).item()
    except RuntimeError as error:
        return classify(error)
    return None


def first_sentence(error: BaseException) -> str:
    """Return the first line of what an exception says, of 200 characters at most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    sentence = (lines or [type(error).__name__])[0]
    return sentence if len(sentence) <= 200 else sentence[:199] + "…"

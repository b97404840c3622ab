"""The gradient of attention: forward and backward pass together, and the backward pass alone."""

from dataclasses import replace

from fluxbench.studies.study import Study
from fluxbench.worker.request import Effort

_FEW = ("flux1-1024px-t128", "flux1-1024px-t512")
_4K = ("llama3-8b-4096", "llama3.2-1b-4096")
_16K = ("llama3-8b-16384", "llama3.2-1b-16384")
_PASSES = ("training", "backward")


def _of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the workloads or sets of these names in both passes, and in the backward pass alone."""
    return tuple(f"{name}-{each}" for each in _PASSES for name in names)


# On a CPU torch's flash backend takes 1.1 s of a core for the gradient at 384 tokens, the math one an eighth.
_CPU = _of(("flux1-128px-t128", "llama3.2-1b-256"))
STUDY = Study(
    name="backward",
    sets={"cpu": _CPU, "any": _of(("flux1-1024px", *_4K, *_16K))},
    references=("torch_flash", "torch_efficient", "torch_math"),
    unlike_lengths=True,
    burst_alone=("attention_backward",),  # training runs both passes: their sustained time decides
    # Four processes that check all six text lengths on all kinds of inputs would take more memory than an H200 has.
    effort=Effort(fully=(*_CPU, *_of((*_FEW, *_4K, *_16K)))),
)
# Cells whose variants keep all scores: at 16,384 tokens a call takes up to half a second, and 17 GB for one matrix.
UNFUSED = replace(STUDY, sets={"cpu": _CPU, "any": _of((*_FEW, *_4K))})
AUTOTUNED = replace(STUDY, sets={"cpu": _CPU, "any": ("flux1-1024px-t512-training",)})

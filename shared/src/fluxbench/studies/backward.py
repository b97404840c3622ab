"""The gradient of attention: forward and backward pass together, and the backward pass alone."""

from dataclasses import replace

from fluxbench.studies.study import Study

# Three of the six text lengths of the forward pass: with all six a process holds 40 GB while it checks all, and four
# processes of an H200 more than it has; and a page would take a quarter longer.
_FLUX = tuple(f"flux1-1024px-t{text}" for text in (128, 320, 512))
_PASSES = ("training", "backward")


def _of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the workloads or sets of these names in both passes, and in the backward pass alone."""
    return tuple(f"{name}-{each}" for each in _PASSES for name in names)


# On a CPU torch's flash backend takes 1.1 s of a core for the gradient at 384 tokens, the math one an eighth.
_CPU = _of(("flux1-128px-t128", "llama3.2-1b-256"))
STUDY = Study(
    name="backward",
    sets={"cpu": _CPU, "any": _of((*_FLUX, "llama3-8b", "llama3.2-1b"))},
    references=("torch_flash", "torch_efficient", "torch_math"),
    burst_alone=("attention_backward",),  # training runs both passes: their sustained time decides
)
# Cells whose variants keep all scores: at 16,384 tokens a call takes up to half a second, and 17 GB for one matrix.
UNFUSED = replace(STUDY, sets={"cpu": _CPU, "any": _of((*_FLUX, "llama3-8b-4096", "llama3.2-1b-4096"))})
AUTOTUNED = replace(STUDY, sets={"cpu": _CPU, "any": ("flux1-1024px-t512-training",)})

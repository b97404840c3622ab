"""Attention as FLUX.1 calls it: which kernel on this device, over text lengths."""

from fluxbench.studies.study import Study

# Of a CPU, whose calls take a few hundred times as long, three of the six text lengths: the page is to take minutes.
STUDY = Study(
    name="flux",
    sets={"cpu": ("flux1-512px-t128", "flux1-512px-t320", "flux1-512px-t512"), "any": ("flux1-1024px",)},
    references=("torch_flash", "torch_efficient", "torch_math"),
)

"""Attention as FLUX.1 calls it: which kernel on this device, over text lengths."""

from fluxbench.studies.study import Study

STUDY = Study(
    name="flux",
    sets={"cpu": ("flux1-512px",), "any": ("flux1-1024px",)},
    references=("torch_flash", "torch_efficient", "torch_math"),
)

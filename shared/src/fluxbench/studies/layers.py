"""Whole attention layers, forward, backward and both: those of the published table, and those of today's models."""

from fluxbench.studies.study import Study
from fluxbench.worker.request import Effort

# Inputs, contents and references of these layers are 14 GB at most; of all layers, both passes, 55 GB. Four processes
# hold 57 of an H200's 150 GB: unfused attention of DeepSeek-V3 takes 26 more, a float64 reference that is computed 13.
_HELD_BYTES = 2_500_000_000

STUDY = Study(
    name="layers",
    sets={"cpu": ("layers-small",), "any": ("layers-models", "layers-published")},
    references=("torch_native", "torch_math"),
    measures=("burst",),
    effort=Effort(held_bytes=_HELD_BYTES),
    tables=("layers", "layer_parts", "layers_published"),
)

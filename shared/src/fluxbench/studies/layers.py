"""Whole attention layers, forward, backward and both: those of the published table, and those of today's models."""

from fluxbench.studies.study import Study

STUDY = Study(
    name="layers",
    sets={"cpu": ("layers-small",), "any": ("layers-models", "layers-published")},
    references=("torch_native", "torch_math"),
    measures=("burst",),
    tables=("layers", "layer_parts", "layers_published"),
)

"""One step of a diffusion transformer through diffusers: what a kernel is worth where it is used."""

from fluxbench.studies.study import Study

STUDY = Study(
    name="model",
    sets={"cpu": ("flux1-small-steps",), "any": ("flux1-steps", "model-blocks")},
    references=("torch_native", "torch_math"),
    at_once=2,  # each holds the weights of all models, 30 GB
    tables=("model", "model_parts"),
)
# Compiled whole, at one size: each takes minutes to compile.
WHOLE = Study(
    name="model",
    sets={"cpu": ("flux1-small-128px-step",), "any": ("flux1-1024px-step",)},
    references=STUDY.references,
    at_once=STUDY.at_once,
)

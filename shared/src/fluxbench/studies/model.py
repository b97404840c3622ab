"""One step of a diffusion transformer through diffusers: what a kernel is worth where it is used."""

from dataclasses import replace

from fluxbench.studies.study import Study
from fluxbench.worker.request import Effort

_PROFILED = (  # the first of a process is also repeated on the same contents
    *("flux1-512px-step", "flux1-1024px-step", "flux1-2048px-step"),
    *("flux1-small-128px-step", "flux1-small-256px-step"),
)
_AT_1024 = {"cpu": ("flux1-small-128px-step",), "any": ("flux1-1024px-step",)}

STUDY = Study(
    name="model",
    sets={"cpu": ("flux1-small-steps",), "any": ("flux1-steps", "model-blocks")},
    references=("torch_native", "torch_math"),
    effort=Effort(long=True, probes=False, fully=_PROFILED),
    at_once=6,  # most of a cell is compiling, in one thread
    cell_bytes=18_000_000_000,  # each holds the weights of all models, 12 GB: four on a card of 80 GB
    in_order=True,
    tables=("model", "model_parts"),
)
# Of libraries, each of which has processes and a reference of its own, two sizes or one, and other models' blocks.
LIBRARIES = replace(
    STUDY,
    sets={**STUDY.sets, "any": ("flux1-1024px-step", "flux1-2048px-step", "model-blocks")},
)
LIBRARIES_AT_1024 = replace(STUDY, sets={**STUDY.sets, "any": ("flux1-1024px-step", "model-blocks")})
# What is compiled whole, for minutes at each size; unfused attention, a step of which takes seconds at 2048 px; what
# diffusers does not find, a row that says why.
AT_1024 = replace(STUDY, sets=_AT_1024)

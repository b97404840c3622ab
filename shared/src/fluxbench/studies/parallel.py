"""One step of a diffusion transformer on several GPUs of one host, by diffusers' context parallelism."""

from dataclasses import replace

from fluxbench.studies.study import Study
from fluxbench.worker.request import Effort

STUDY = Study(  # on 2 GPUs
    name="parallel",
    sets={"cpu": ("shared-small-by-2",), "any": ("shared-by-2",)},
    references=("torch_cudnn", "torch_native"),
    effort=Effort(long=True, probes=False),
    at_once=1,  # it has all GPUs
    answer="",
    tables=("parallel",),
)
FOUR = replace(STUDY, sets={"cpu": ("shared-small-by-4",), "any": ("shared-by-4",)})
EIGHT = replace(STUDY, sets={"cpu": ("shared-small-by-8",), "any": ("shared-by-8",)})

_COMPILED = ("torch_cudnn_blocks", "torch_native_blocks")
BLOCKS = replace(STUDY, references=_COMPILED)
FOUR_BLOCKS = replace(FOUR, references=_COMPILED)
EIGHT_BLOCKS = replace(EIGHT, references=_COMPILED)

"""Decoding: one token of each sequence against its cache, by batch and cached tokens; and a whole model's step."""

import dataclasses

from fluxbench.studies.study import Study
from fluxbench.worker.request import ALONE, Effort

STEPS = Effort(replayed=True, held_bytes=ALONE)  # of a whole model: graphs of several would each keep their memory

STUDY = Study(
    name="decode",
    sets={
        "cpu": ("decode-small",),
        "any": (
            *("llama3-8b-decode-b128", "llama3-8b-decode-b32", "llama3-8b-decode-b8", "llama3-8b-decode"),
            "llama3-8b-decode-pages",
        ),
    },
    references=("torch_flash", "torch_math"),
    measures=("burst",),
    rate="GB/s",
    in_order=True,  # each cell keeps the device in each process, so they end in the order in which they start
    tables=("decode", "decode_pages", "decode_model"),
)
MODEL = Study(  # of the cell that measures whole models
    name="decode",
    sets={"cpu": ("decode-model-small",), "any": ("llama3-8b-decode-model",)},
    references=("torch_flash", "torch_math"),
    measures=("burst",),
    rate="GB/s",
    effort=STEPS,
)
UNFUSED_MODEL = dataclasses.replace(  # whose step takes 20 times as long as others at the largest of all these
    MODEL, sets={**MODEL.sets, "any": ("llama3-8b-decode-model-4096", "llama3-8b-decode-model-b32-4096")}
)

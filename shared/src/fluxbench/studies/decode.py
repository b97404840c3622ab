"""Decoding: one token of each sequence against its cache, by batch and cached tokens; and a whole model's step."""

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

"""Time and memory over the length of a sequence, up to where memory ends.

`STUDY` is attention of one causal head, `PLAIN` plain attention, `MODELS` the shapes of FLUX.1 and Wan 2.1.
"""

from fluxbench.studies.study import Study

_WHOLE_UP_TO = 2**28  # scores: those of 16,384 tokens to themselves in one head

STUDY = Study(
    name="scaling",
    sets={"cpu": ("lengths-causal-small",), "any": ("lengths-causal",)},
    references=("torch_native", "torch_math"),
    measures=("burst",),
    whole_up_to=_WHOLE_UP_TO,
    tables=("crossovers", "exponents", "memory", "lengths_published"),
)
PLAIN = Study(
    name="scaling",
    sets={"cpu": ("lengths-plain-small",), "any": ("lengths-plain",)},
    references=("torch_math",),
    measures=("burst",),
    whole_up_to=_WHOLE_UP_TO,
)
MODELS = Study(
    name="scaling",
    sets={"cpu": ("lengths-models-small",), "any": ("lengths-models",)},
    references=("torch_native", "torch_math"),
    whole_up_to=_WHOLE_UP_TO,
)

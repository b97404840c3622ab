"""Language models: a profile of three sizes, training and memory of models by their shapes, and their generation.

`STUDY` is the profile. Standard attention is `torch_eager`, fused attention `torch_flash`.
"""

from fluxbench.operations import language_sets
from fluxbench.studies import decode
from fluxbench.studies.study import Study
from fluxbench.worker.request import ALONE, Effort

_REFERENCES = ("torch_flash", "torch_native", "torch_math")
# Long calls, each with a model of its own: one at a time. Those of one model have the same kernels, so the shortest of
# each set is checked in full.
_SHORTEST = {
    (name, language_sets.name_of_model(one), one.operation): one.name
    for name in ("llama2-7b-model-training", "llama3-8b-model-training", "language-models-training", "llama2-7b-memory",
                 "small-llama-model-training", "small-gpt-j-model-training", "small-llama-memory")
    for one in sorted(language_sets.sets()[name], key=lambda one: -one.cost.flops)
}  # fmt: skip
_LONG = Effort(grid=True, held_bytes=ALONE, fully=tuple(_SHORTEST.values()))

STUDY = Study(
    name="language",
    sets={"cpu": ("language-small-sizes",), "any": ("language-sizes",)},
    references=_REFERENCES,
    measures=("burst",),
    tables=("language", "language_training", "language_memory", "language_published"),
)
LLAMA = Study(  # of the cell that trains Llama-2 7B and Llama-3 8B
    name="language",
    sets={"cpu": ("small-llama-model-training",), "any": ("llama2-7b-model-training", "llama3-8b-model-training")},
    references=_REFERENCES,
    measures=("burst",),
    effort=_LONG,
)
MODELS = Study(  # of the cell that trains the other models
    name="language",
    sets={"cpu": ("small-gpt-j-model-training",), "any": ("language-models-training",)},
    references=_REFERENCES,
    measures=("burst",),
    effort=_LONG,
)
MEMORY = Study(
    name="language",
    sets={"cpu": ("small-llama-memory",), "any": ("llama2-7b-memory",)},
    references=_REFERENCES,
    measures=("burst",),
    effort=_LONG,
)
GENERATION = Study(
    name="language",
    sets={"cpu": ("small-llama-generation",), "any": ("llama2-7b-generation",)},
    references=_REFERENCES,
    measures=("burst",),
    effort=decode.STEPS,
)

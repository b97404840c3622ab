"""Time and memory over the length of a sequence, up to where memory ends.

`STUDY` is attention of one causal head, `PLAIN` plain attention, `MODELS` the shapes of FLUX.1 and Wan 2.1.
"""

from fluxbench.operations import scaling_sets
from fluxbench.studies.study import Study
from fluxbench.worker.request import Effort

_WHOLE_UP_TO = 2**27  # scores: those of 11,585 tokens to themselves in one head
# Unfused attention takes 78 GB in one causal head of 65,536 tokens, beside which another cell holds up to 40: two cells
# share a card of 141 GB, and one of 80 GB has one at a time.
_AT_ONCE, _CELL_BYTES = 2, 60_000_000_000
# One length of each curve is checked on all kinds of inputs and profiled, of the models two; on a CPU a shorter one.
_FULLY = tuple(
    each.name
    for name, tokens in (("lengths-causal", 1024), ("lengths-plain", 1024), ("lengths-causal-small", 128),
                         ("lengths-plain-small", 128), ("lengths-models-small", 128), ("lengths-models", 1024),
                         ("lengths-models", 4608), ("lengths-models", 1560), ("lengths-models", 7800))
    for each in scaling_sets.sets()[name]
    if each.x == tokens
)  # fmt: skip

STUDY = Study(
    name="scaling",
    sets={"cpu": ("lengths-causal-small",), "any": ("lengths-causal",)},
    references=("torch_native", "torch_math"),
    measures=("burst",),
    whole_up_to=_WHOLE_UP_TO,
    effort=Effort(plans=True, fully=_FULLY),
    at_once=_AT_ONCE,
    cell_bytes=_CELL_BYTES,
    tables=("crossovers", "exponents", "memory", "lengths_published"),
)
PLAIN = Study(
    name="scaling",
    sets={"cpu": ("lengths-plain-small",), "any": ("lengths-plain",)},
    references=("torch_math",),
    measures=("burst",),
    whole_up_to=_WHOLE_UP_TO,
    effort=Effort(plans=True, fully=_FULLY),
    at_once=_AT_ONCE,
    cell_bytes=_CELL_BYTES,
)
MODELS = Study(
    name="scaling",
    unlike_lengths=True,
    sets={"cpu": ("lengths-models-small",), "any": ("lengths-models",)},
    references=("torch_native", "torch_math"),
    whole_up_to=_WHOLE_UP_TO,
    # Curves over lengths rank no kernels that are within a percent, for which further processes are.
    effort=Effort(plans=True, fully=_FULLY, most=3, probes=False),
    at_once=_AT_ONCE,
    cell_bytes=_CELL_BYTES,
)

"""What a row states beside its figures: the card, the call that was measured, the model.

Nothing is guessed but what `docs/audit.md` lists: one key head for the bytes, 16 bits, the forward pass of a known
workload.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from fluxbench import operations
from fluxbench.analysis.audit import cards, models
from fluxbench.analysis.audit.columns import CAUSAL, COMPONENTS, DTYPES, LAYERS, NARROW, NO_WINDOW, PASSES
from fluxbench.analysis.audit.models import Model
from fluxbench.device.peaks import Peak
from fluxbench.operations import sets
from fluxbench.operations.workload import Cost, Workload

_LARGEST = 10**12  # of a size
_OPERATIONS = {
    "forward": ("attention",),
    "backward": ("attention_backward",),
    "forward+backward": ("attention", "attention_backward"),
}
PASSES_OF = {  # an operation of ours -> its passes
    "attention": "forward", "attention_backward": "backward", "attention_training": "forward+backward",
}  # fmt: skip
# A column of a size -> the field of an attention's shape that it gives.
_SIZES = {
    "batch": "batch",
    "seq_len": "seq_len_q",
    "kv_seq_len": "seq_len_k",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "head_dim": "head_dim_qk",
    "head_dim_v": "head_dim_v",
}
_SAME = {"kv_seq_len": "seq_len", "head_dim_v": "head_dim"}  # a column -> the one that counts where it is missing
_KEY = (
    *("source", "table", "gpu", "implementation", "pass", "dtype", "causal", "component"),
    *("batch", "seq_len", "kv_seq_len", "heads", "kv_heads", "head_dim", "head_dim_v", "window"),
    *("latent_dim", "layer", "model", "workload", "per"),
)
_LABEL = ("source", "table", "gpu", "implementation", "model", "component", "workload", "pass", "dtype")
_SHAPE = ("batch", "seq_len", "heads", "kv_heads", "head_dim")


class NotDecidable(Exception):
    """A figure cannot be judged; the message says what is missing."""


@dataclass(frozen=True, eq=False)
class Context:
    """The cells of a row by column, without its figures; rows with the same cells share one.

    Properties raise `NotDecidable` where the row does not state what is asked for.
    """

    cells: Mapping[str, str]
    others: tuple[str, ...] = ()  # cells of columns that the audit does not know
    page_gpu: str | None = None  # the card where the row names none
    causal_unless_stated: bool = False
    given_peak: Peak | None = None  # for a card that is not known
    inferred_from: str = ""  # the table that the shape was taken from, where the row has none

    def get(self, column: str) -> str:
        """Return a cell, empty where there is none."""
        return self.cells.get(column, "")

    @property
    def label(self) -> str:
        """The row's own words for what was measured."""
        named = [self.get(name) for name in _LABEL if self.get(name)]
        sizes = [f"{name} {self.get(name)}" for name in _SHAPE if self.get(name)]
        return ", ".join([*named, *sizes])

    def key(self, *without: str) -> tuple[str, ...]:
        """Return what rows of one configuration have in common: source, card, shape, mask and all other columns."""
        return (*("" if name in without else self.cells.get(name, "") for name in _KEY), *self.others)

    @property
    def gpu(self) -> str:
        """The card's name."""
        if name := self.get("gpu") or self.page_gpu:
            return name
        raise NotDecidable("the GPU is not stated")

    @cached_property
    def rates(self) -> Peak:
        """The card's peak rates."""
        if found := cards.find(self.gpu) or self.given_peak:
            return found
        raise NotDecidable(f"the peak of {self.gpu} is not known; give it with --peak")

    @property
    def passes(self) -> str:
        """Which passes were measured: "forward", "backward", "forward+backward" or "generation"."""
        of_known = PASSES_OF.get(self.known.operation, "forward") if self.known else "forward"
        stated = self.cells.get("pass", of_known).lower().replace(" ", "")
        if stated not in PASSES:
            raise NotDecidable(f"the pass is {stated!r}" if stated else "the pass is not stated")
        return PASSES[stated]

    @cached_property
    def is_narrow(self) -> bool:
        """Whether a format of 8 or 4 bits is named, as dtype or in the implementation's name."""
        return bool(NARROW.search(" ".join(map(self.get, ("dtype", "precision_class", "implementation")))))

    @property
    def states_precision(self) -> bool:
        """Whether a dtype or a precision is named, by the row or by its workload; if not, 16 bits are assumed."""
        return bool(self.get("dtype") or self.get("precision_class") or self.known or self.is_narrow)

    @property
    def dtype(self) -> str:
        """The dtype of the inputs, 16 bits where none is stated or a narrow one."""
        known = self.known.dtype if self.known else "bfloat16"
        dtype = self.get("dtype").lower().removeprefix("torch.") or known
        if dtype not in DTYPES and not NARROW.search(dtype):
            raise NotDecidable(f"the dtype is {dtype!r}")
        return DTYPES.get(dtype, "bfloat16")

    @property
    def causal(self) -> bool | None:
        """Whether the call was causal; None where that is not stated."""
        if stated := self.get("causal").lower():
            if stated not in CAUSAL:
                raise NotDecidable(f"causal is {stated!r}, neither true nor false")
            return CAUSAL[stated]
        if self.known:
            return bool(self.known.shape.get("causal"))
        return True if self.causal_unless_stated else None

    @property
    def may_be_causal(self) -> bool:
        """Whether the call may have been causal: there is no such call of more queries than keys."""
        if self.causal is False or self.known_whole:
            return bool(self.causal)
        return self.shape["seq_len_q"] <= self.shape["seq_len_k"]

    @property
    def layer(self) -> str:
        """What beside attention was measured: "" for nothing, or one of `columns.LAYERS`."""
        layer = self.get("layer").lower()
        if layer and layer not in LAYERS:
            raise NotDecidable(f"the layer is {layer!r}, none of {', '.join(LAYERS)}")
        return layer

    @property
    def component(self) -> str:
        """Whose memory it is: "" for all that was in use, or one of `columns.COMPONENTS`."""
        component = self.get("component").lower()
        if component and component not in COMPONENTS:
            raise NotDecidable(f"the component is {component!r}, none of {', '.join(COMPONENTS)}")
        return component

    @property
    def model(self) -> Model:
        """The language model."""
        if not self.get("model"):
            raise NotDecidable("the model is not stated")
        if model := models.find(self.get("model")):
            return model
        raise NotDecidable(f"the size of {self.get('model')} is not known")

    @cached_property
    def known(self) -> Workload | None:
        """The workload of this package that the row names; None where it names none that is known."""
        return sets.by_name().get(self.get("workload"))

    @property
    def known_whole(self) -> Workload | None:
        """The workload of this package that the row names, where it is more than attention, such as a layer."""
        return self.known if self.known and self.known.operation not in PASSES_OF else None

    def size(self, column: str) -> int:
        """Return a size."""
        known = self.known.shape.get(_SIZES[column]) if self.known and column in _SIZES else None
        text = self.get(column) or ("" if known is None else str(known))
        if not text:
            raise NotDecidable(f"{column} is not stated")
        return _whole(column, text)

    @cached_property
    def shape(self) -> dict[str, int]:
        """The sizes of the attention by field. Key heads that are not stated count as one: the fewest bytes."""
        sizes = {}
        missing = [] if self.get("gpu") or self.page_gpu else ["the GPU"]
        for column, field in _SIZES.items():
            known = self.known.shape.get(field) if self.known else 1 if field == "kv_heads" else None
            if text := self.get(column) or ("" if known is None else str(known)) or self.get(_SAME.get(column, "")):
                sizes[field] = _whole(column, text)
            elif column not in _SAME:
                missing.append(column)
        if missing:
            listed = missing[0] if len(missing) == 1 else f"{', '.join(missing[:-1])} and {missing[-1]}"
            raise NotDecidable(f"{listed} {'is' if len(missing) == 1 else 'are'} not stated")
        return sizes

    def workload(self, *, causal: bool) -> Workload:
        """Return the call that was measured; two passes together move at least the bytes of one of them.

        A workload of ours that is more than attention is taken as it is known by its name.
        """
        if self.known_whole:
            return self.known_whole
        if self.passes not in _OPERATIONS:
            raise NotDecidable(f"the operations of {self.passes} are not known")
        if self.get("window").lower() not in NO_WINDOW:
            raise NotDecidable("the operations of a sliding window are not counted")
        return _workload(self.passes, tuple(self.shape.items()), self.dtype, causal)

    @cached_property
    def counted(self) -> Workload:
        """The call as its rate is counted: causal where that is stated."""
        return self.workload(causal=bool(self.causal))

    def with_shape_of(self, other: Context) -> Context:
        """Return this row with the sizes that it lacks taken from another one."""
        taken = {name: other.get(name) for name in _SHAPE if not self.get(name)}
        return dataclasses.replace(self, cells={**self.cells, **taken}, inferred_from=other.get("table"))


def projection_flops(context: Context) -> int:
    """Return the fewest operations of a layer's projections, of q, k, v and the output, in the passes measured.

    The width is assumed to be heads x head_dim. In the backward pass a projection needs its weight's gradient and its
    input's; the input of the layer is assumed to need none. `layer` "latent": k and v come from a latent of
    `latent_dim`, and q does too where that has fewer operations (DeepSeek-AI, DeepSeek-V2, 2024, section 2.1).
    """
    shape, width = context.shape, context.shape["heads"] * context.shape["head_dim_qk"]
    tokens = shape["batch"] * shape["seq_len_q"]
    if context.layer == "latent":
        latent = context.size("latent_dim")
        inputs = min(width * width, 2 * width * latent) + 3 * width * latent
    else:
        inputs = width * (width + 2 * context.size("kv_heads") * shape["head_dim_qk"])
    forward_inputs, forward_output = 2 * tokens * inputs, 2 * tokens * width * width
    forward, backward = forward_inputs + forward_output, forward_inputs + 2 * forward_output
    return {"forward": forward, "backward": backward}.get(context.passes, forward + backward)


@functools.lru_cache(maxsize=1 << 14)
def _workload(passes: str, sizes: tuple[tuple[str, int], ...], dtype: str, causal: bool) -> Workload:
    shape: dict[str, int | float | bool | str] = {**dict(sizes), "dtype": dtype, "causal": causal}
    try:
        each = [operations.workload(name, "row", shape, group="row", x=1, x_unit="row") for name in _OPERATIONS[passes]]
    except ValueError as error:
        raise NotDecidable(f"no shape: {error}") from error
    cost = Cost(
        flops=sum(one.cost.flops for one in each),
        min_flops=sum(one.cost.min_flops for one in each),
        min_bytes=min(one.cost.min_bytes for one in each),
    )
    return dataclasses.replace(each[0], cost=cost)


def _whole(column: str, text: str) -> int:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (number >= 1 and number == math.floor(number) and number <= _LARGEST):
        raise NotDecidable(f"{column} is not a whole number up to {_LARGEST:,}: {text[:60]}")
    return int(number)

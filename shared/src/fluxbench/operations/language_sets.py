"""Workloads of language models: a profile of three sizes, and the training and memory of models by their shapes.

Three sizes are those of GPT-2's first three, with a vocabulary of 10,000. The models are those of a guide's tables
(`assets/published`, source `speed-guide`), and Llama-3 8B, by their published configurations: config.json of
meta-llama/Llama-2-7b, -13b and -70b, openai-community/gpt2, EleutherAI/gpt-j-6b and gpt-neox-20b; torchtitan,
`models/llama3/__init__.py`.

Of a model that is trained there are some of its layers, whole ones with all that they keep for the backward pass: so
many that a step has 20 to 50 TFLOP, a tenth of a second of an H200, in which unfused attention fits too. All layers are
alike, so the time and the memory of more of them follow. A vocabulary of 1,024 stands for the model's own, on which a
step of few layers would spend most of its time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fluxbench.operations import workload
from fluxbench.operations.language_shape import GPT2, GPT_J, GPT_NEOX, LLAMA, LanguageShape
from fluxbench.operations.workload import Shape, Workload

PASSES = {"language_training": "-training", "language": "-forward", "language_backward": "-backward"}  # and suffixes
TRAINING, FORWARD = "language_training", "language"
_CONTEXTS = (128, 256, 512, 1024)
_INFERENCE_CONTEXTS = (2048, 4096, 8192, 16_384, 32_768)
_GENERATED_AT = (16_384, 8192, 4096, 2048, 512)  # cached tokens; the largest cache first, as in `decode_sets`
_BATCH = 4
_VOCABULARY = 1024  # at most, of a model of which there are some layers
_INFERENCE_LAYERS = 2  # nothing is kept of a layer but its keys and values, so two need as much as all


def _gpt2(layers: int, width: int, heads: int, vocabulary: int) -> Shape:
    sizes = {"layers": layers, "width": width, "heads": heads, "kv_heads": heads, "head_dim": width // heads}
    return {"family": GPT2, **sizes, "mlp": 4 * width, "vocabulary": vocabulary}


def _other(family: str, layers: int, heads: tuple[int, int, int], mlp: int, vocabulary: int) -> Shape:
    """`heads`: of q, of k and v, and their size; the width of these models is that of all heads of q."""
    of_q, of_kv, head_dim = heads
    sizes = {"layers": layers, "width": of_q * head_dim, "heads": of_q, "kv_heads": of_kv, "head_dim": head_dim}
    return {"family": family, **sizes, "mlp": mlp, "vocabulary": vocabulary}


SIZES: Mapping[str, Shape] = {
    "sm-12x768": _gpt2(12, 768, 12, 10_000),
    "md-24x1024": _gpt2(24, 1024, 16, 10_000),
    "lg-36x1280": _gpt2(36, 1280, 20, 10_000),
}
MODELS: Mapping[str, Shape] = {
    "llama2-7b": _other(LLAMA, 32, (32, 32, 128), 11_008, 32_000),
    "llama3-8b": _other(LLAMA, 32, (32, 8, 128), 14_336, 128_256),
    "llama2-13b": _other(LLAMA, 40, (40, 40, 128), 13_824, 32_000),
    "llama2-70b": _other(LLAMA, 80, (64, 8, 128), 28_672, 32_000),
    "gpt2-124m": _gpt2(12, 768, 12, 50_257),
    "gpt-j-6b": _other(GPT_J, 28, (16, 16, 256), 16_384, 50_400),
    "gpt-neox-20b": _other(GPT_NEOX, 44, (64, 64, 96), 24_576, 50_432),
    "small-llama": _other(LLAMA, 4, (4, 2, 32), 256, 256),  # of a CPU
    "small-gpt-j": _other(GPT_J, 4, (2, 2, 64), 256, 256),
}
_SMALL_SIZES: Mapping[str, Shape] = {"small-2x64": _gpt2(2, 64, 2, 256)}
# Batch and tokens of the guide's tables, and layers. It states no batch of the last three.
_OF_LLAMA = ((4, 2048, 4), (8, 2048, 2), (4, 4096, 2), (8, 4096, 1), (2, 8192, 2))
_OF_MODELS = {
    "llama2-13b": (4, 2048, 2),
    "llama2-70b": (4, 2048, 1),
    "gpt2-124m": (4, 1024, 12),
    "gpt-j-6b": (4, 1024, 4),
    "gpt-neox-20b": (4, 1024, 2),
}
_DEPTHS = ((2048, 2), (4096, 1), (8192, 1), (8192, 2))  # tokens and layers: with other layers, a layer's memory follows


def sets() -> dict[str, tuple[Workload, ...]]:
    """Return the sets by name."""
    trained = {
        f"{model}-model-training": tuple(_of_model(model, TRAINING, *of) for of in _OF_LLAMA)
        for model in ("llama2-7b", "llama3-8b")
    }
    return {
        **trained,
        "language-sizes": _profiles(SIZES, _BATCH, _CONTEXTS),
        "language-small-sizes": _profiles(_SMALL_SIZES, 2, (32, 128)),
        "language-models-training": tuple(_of_model(model, TRAINING, *of) for model, of in _OF_MODELS.items()),
        "small-llama-model-training": tuple(_of_model("small-llama", TRAINING, 2, tokens, 2) for tokens in (32, 128)),
        "small-gpt-j-model-training": (_of_model("small-gpt-j", TRAINING, 2, 64, 2),),
        "llama2-7b-memory": (
            *(_of_model("llama2-7b", FORWARD, 1, tokens, _INFERENCE_LAYERS) for tokens in _INFERENCE_CONTEXTS),
            *(_of_model("llama2-7b", TRAINING, _BATCH, *of, f"-n{of[1]}") for of in _DEPTHS),
        ),
        "small-llama-memory": (_of_model("small-llama", FORWARD, 1, 64, 2),),
        "llama2-7b-generation": tuple(_generation("llama2-7b", tokens) for tokens in _GENERATED_AT),
        "small-llama-generation": (_generation("small-llama", 512),),
    }


def name_of_model(one: Workload) -> str:
    """Return the name in `MODELS` of the model that a workload is of; empty where it is of none."""
    name = re.sub(r"-(b\d+(-n\d+)?|generation)$", "", one.group)
    return name if name in MODELS else ""


def whole(one: Workload) -> LanguageShape:
    """Return all of the model of which a workload has some layers, at the workload's batch and tokens."""
    sizes = {"batch": one.shape["batch"], "seq_len": one.x, "dtype": one.shape["dtype"]}
    return LanguageShape.of({**MODELS[name_of_model(one)], **sizes})


def _of_model(model: str, operation: str, batch: int, tokens: int, layers: int, suffix: str = "") -> Workload:
    """Return a workload of some layers of a model, or of all, then with its own vocabulary."""
    own = MODELS[model]
    if layers < int(own["layers"]):
        own = {**own, "layers": layers, "vocabulary": min(_VOCABULARY, int(own["vocabulary"]))}
    shape = {**own, "batch": batch, "seq_len": tokens, "dtype": "bfloat16"}
    name = f"{model}-b{batch}-{tokens}{suffix}{PASSES[operation]}"
    return workload(operation, name, shape, group=f"{model}-b{batch}{suffix}", x=tokens, x_unit="tokens")


def _generation(model: str, cached: int) -> Workload:
    """Return a step of generation, by the operation `decode_model`."""
    shape = {name: value for name, value in MODELS[model].items() if name != "family"}
    shape = {**shape, "batch": 1, "cached": cached, "dtype": "bfloat16"}
    name = f"{model}-generation"
    return workload("decode_model", f"{name}-{cached}", shape, group=name, x=cached, x_unit="cached tokens")


def _profiles(sizes: Mapping[str, Shape], batch: int, contexts: tuple[int, ...]) -> tuple[Workload, ...]:
    return tuple(
        workload(
            operation, f"{name}-{tokens}{suffix}",
            {**shape, "batch": batch, "seq_len": tokens, "dtype": "bfloat16"},
            group=name, x=tokens, x_unit="tokens",
        )
        for operation, suffix in PASSES.items()
        for name, shape in sizes.items()
        for tokens in contexts
    )  # fmt: skip

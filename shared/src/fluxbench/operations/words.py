"""Workloads in words."""

from __future__ import annotations

from fluxbench.core.formatting import count
from fluxbench.operations.decode_model import DecoderShape
from fluxbench.operations.language_shape import GPT2, GPT_J, GPT_NEOX, LLAMA, LanguageShape
from fluxbench.operations.layer_shape import FUSED, GROUPED, LATENT, LATENT_ROTARY, MULTI_QUERY, SEPARATE, LayerShape
from fluxbench.operations.model_shape import FLUX1, FLUX2, QWEN_IMAGE, WAN, ModelShape
from fluxbench.operations.sharing import model_of
from fluxbench.operations.workload import Shape, Workload

KIND = {
    FUSED: "multi-head, fused QKV",
    SEPARATE: "multi-head, separate Q/K/V",
    GROUPED: "grouped-query",
    MULTI_QUERY: "multi-query",
    LATENT: "multi-head latent, plain",
    LATENT_ROTARY: "multi-head latent, rotary",
}
MODEL = {FLUX1: "FLUX.1", FLUX2: "FLUX.2", QWEN_IMAGE: "Qwen-Image", WAN: "Wan 2.1"}

FAMILY = {
    GPT2: "GPT-2 architecture",
    GPT_J: "GPT-J architecture",
    GPT_NEOX: "GPT-NeoX architecture",
    LLAMA: "Llama architecture",
}
_BOTH = "forward + backward"
OPERATION = {  # what is timed, where it is not attention's forward pass
    "attention_backward": "backward",
    "attention_training": _BOTH,
    "layer": "layer, forward",
    "layer_backward": "layer, backward",
    "layer_training": f"layer, {_BOTH}",
    "decode": "decoding",
    "decode_model": "a model's decoding step",
    "model_step": "a model's step",
    "shared_step": "a model's step on several devices",
    "language": "language model, forward",
    "language_backward": "language model, backward",
    "language_training": "language model, training step",
}


def describe(workload: Workload, *, parts: bool = True) -> str:
    """Return a workload's shape in words: "4,608 tokens (512 of them text), 24 heads of 128, bfloat16".

    Without `parts`, all tokens are one number. Of a layer: "grouped-query, 32/8 heads of 128, width 4,096, 1 x 4,096
    tokens, causal, bfloat16". Of a model: "FLUX.1, 19 double + 38 single blocks, 24 heads of 128, 4,096 + 512 text
    tokens, bfloat16".
    """
    shape = dict(workload.shape)
    if "family" in shape:
        return _of_language(LanguageShape.of(shape))
    if {"layers", "vocabulary"} <= shape.keys():
        return _of_decoder(DecoderShape.of(shape))
    if {"kind", "width"} <= shape.keys():
        return _of_layer(shape)
    if {"model", "layers"} <= shape.keys():
        return _of_model(shape)
    if not {"seq_len_q", "seq_len_k", "heads", "kv_heads", "head_dim_qk", "head_dim_v", "batch"} <= shape.keys():
        return ", ".join(
            f"{name} {value:,}" if type(value) is int else f"{name} {value}" for name, value in shape.items()
        )
    text = f" ({workload.x:,} of them text)" if parts and workload.x_unit == "text tokens" else ""
    queries, keys = shape["seq_len_q"], shape["seq_len_k"]
    many = "one query" if queries == 1 else f"{queries:,} queries"
    tokens = f"{keys:,} tokens{text}" if queries == keys else f"{many} on {keys:,} keys"
    grouped = "" if shape["heads"] == shape["kv_heads"] else f" on {shape['kv_heads']} of keys and values"
    dims = (
        f"{shape['head_dim_qk']}"
        if shape["head_dim_qk"] == shape["head_dim_v"]
        else (f"{shape['head_dim_qk']} (values {shape['head_dim_v']})")
    )
    words = [f"batch {shape['batch']}"] if shape["batch"] != 1 else []
    words += [tokens, f"{count(int(shape['heads']), 'head')} of {dims}{grouped}", str(shape["dtype"])]
    words += [f"in pages of {shape['page_size']}"] if shape.get("page_size") else []
    return ", ".join(words + ["causal"] * bool(shape.get("causal")))


def operation(name: str) -> str:
    """Return what an operation times: "layer, forward + backward"; empty of attention's forward pass."""
    last = name.rpartition(":")[2]
    return "" if last == "attention" else OPERATION.get(last, last)


def _heads(heads: int, kv_heads: int) -> str:
    """Return the heads of q, and those of keys and values where these are fewer: "32 heads", "32/8 heads"."""
    return count(heads, "head") if heads == kv_heads else f"{heads}/{kv_heads} heads"


def _of_decoder(model: DecoderShape) -> str:
    heads = f"{model.heads}/{model.kv_heads} heads of {model.head_dim}"
    words = [
        f"batch {model.batch}",
        f"{model.cached:,} cached tokens",
        f"{count(model.layers, 'layer')} of width {model.width:,}",
    ]
    return ", ".join([*words, heads, model.dtype])


def _of_language(model: LanguageShape) -> str:
    words = [
        FAMILY[model.family],
        f"{count(model.layers, 'layer')} of width {model.width:,}",
        f"{_heads(model.heads, model.kv_heads)} of {model.head_dim}",
    ]
    return ", ".join([*words, f"{model.batch} x {model.seq_len:,} tokens", model.dtype])


def _of_layer(shape: Shape) -> str:
    layer = LayerShape.of(shape)
    dims = f"{layer.head_dim}" + (f" + {layer.rotary_dim} rotated" if layer.rotary_dim else "")
    words = [KIND[layer.kind], f"{_heads(layer.heads, layer.kv_heads)} of {dims}", f"width {layer.width:,}"]
    words += [f"latent {layer.latent_dim:,}"] if layer.latent_dim else []
    words += [f"{layer.batch} x {layer.seq_len:,} tokens"]
    words += ["rotary"] * layer.rotary + ["norm of q and k"] * layer.qk_norm + ["causal"] * layer.causal
    return ", ".join([*words, layer.dtype])


def _of_model(shape: Shape) -> str:
    model = ModelShape.of(model_of(shape))
    kinds = ((model.layers, "double" if model.single_layers else ""), (model.single_layers, "single"))
    blocks = " + ".join(f"{number} {kind}".strip() for number, kind in kinds if number)
    noun = "block" if model.layers + model.single_layers == 1 else "blocks"
    tokens = f"{model.image_tokens:,} + {model.text_tokens:,} text tokens"
    words = [
        MODEL[model.model],
        f"{blocks} {noun}",
        f"{count(model.heads, 'head')} of {model.head_dim}",
        tokens,
        model.dtype,
    ]
    names = {"ulysses": "Ulysses", "ring": "ring"}
    ways = (f"{name} {shape[way]}" for way, name in names.items() if int(shape.get(way, 1)) > 1)
    return ", ".join([*words, *([" and ".join(ways) or "alone"] if "gpus" in shape else [])])

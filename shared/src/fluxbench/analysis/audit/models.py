"""Language models by name: what their memory and their operations are counted from.

Sources: config.json of each model on the Hugging Face hub; Touvron et al., Llama 2 (2023), table 1; Grattafiori et al.,
The Llama 3 Herd of Models (2024), table 3; Black et al., GPT-NeoX-20B (2022), section 2; Radford et al., GPT-2 (2019).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder: parameters and what its cache of keys and values holds."""

    name: str
    params: float
    layers: int
    kv_heads: int
    head_dim: int

    def weights_bytes(self, bytes_per_weight: float) -> float:
        """Return the bytes of its weights."""
        return self.params * bytes_per_weight

    def cache_bytes(self, tokens: float, bytes_per_element: float) -> float:
        """Return the bytes of the keys and values of so many tokens."""
        return 2 * self.layers * self.kv_heads * self.head_dim * tokens * bytes_per_element


_MODELS = (
    Model(name="Llama-2-7B", params=6.738e9, layers=32, kv_heads=32, head_dim=128),
    Model(name="Llama-2-13B", params=13.016e9, layers=40, kv_heads=40, head_dim=128),
    Model(name="Llama-2-70B", params=68.977e9, layers=80, kv_heads=8, head_dim=128),
    Model(name="Llama-3-8B", params=8.030e9, layers=32, kv_heads=8, head_dim=128),
    Model(name="Llama-3-70B", params=70.554e9, layers=80, kv_heads=8, head_dim=128),
    Model(name="GPT-2 124M", params=0.1244e9, layers=12, kv_heads=12, head_dim=64),
    Model(name="GPT-J 6B", params=6.051e9, layers=28, kv_heads=16, head_dim=256),
    Model(name="GPT-NeoX 20B", params=20.555e9, layers=44, kv_heads=64, head_dim=96),
)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_BY_NAME = {_plain(model.name): model for model in _MODELS}
NAMES = tuple(model.name for model in _MODELS)


def find(name: str) -> Model | None:
    """Return a model by its name, whatever stands between its parts; None where it is not known."""
    return _BY_NAME.get(_plain(name))

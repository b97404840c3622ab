"""cuDNN's graph API as a fake: it takes what nvidia-cudnn-frontend takes, and computes what the graph describes."""

from __future__ import annotations

import types
from typing import Any

import pytest
import signatures
import torch

STREAM = 7
DTYPES = {
    "BFLOAT16": torch.bfloat16,
    "HALF": torch.float16,
    "FLOAT": torch.float32,
    "FP8_E4M3": torch.float8_e4m3fn,
}


class NotSupportedError(Exception):
    """What cuDNN raises where it has no plan for a graph."""


class Tensor:
    """A tensor of a graph, whose setters return it."""

    def __init__(self, **fields: Any) -> None:
        self.is_output = False
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("set_"):
            raise AttributeError(name)

        def setter(value: Any) -> Tensor:
            setattr(self, {"set_output": "is_output"}.get(name, name.removeprefix("set_")), value)
            return self

        return setter

    def of(self, pack: dict[int, torch.Tensor]) -> torch.Tensor:
        """Return its buffer as the graph describes it; it must be of the described type and no smaller."""
        buffer = pack[self.uid]
        assert buffer.dtype == DTYPES[self.data_type]
        return buffer.as_strided(self.dim, self.stride)


class Graph:
    """A graph of one node. Its calls are recorded in `log`."""

    def __init__(self, log: list[str], refuse: str | None, keywords: dict[str, Any]) -> None:
        signatures.signature("cudnn.pygraph").bind(**keywords)
        assert keywords["handle"] == "handle"
        self.log, self.refuse = log, refuse
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.node: dict[str, Any] = {}

    def tensor(self, **keywords: Any) -> Tensor:
        signatures.signature("cudnn.pygraph.tensor").bind(**keywords)
        self.inputs.append(Tensor(**keywords))
        return self.inputs[-1]

    def sdpa(self, **keywords: Any) -> list[Tensor | None]:
        if keywords["generate_stats"]:
            return [*self._node("cudnn.pygraph.sdpa", keywords, outputs=2)]
        return [*self._node("cudnn.pygraph.sdpa", keywords, outputs=1), None]

    def sdpa_fp8(self, **keywords: Any) -> list[Tensor | None]:
        assert keywords["generate_stats"] is False
        out, *amaxes = self._node("cudnn.pygraph.sdpa_fp8", keywords, outputs=3)
        return [out, None, *amaxes]

    def sdpa_backward(self, **keywords: Any) -> list[Tensor]:
        return self._node("cudnn.pygraph.sdpa_backward", keywords, outputs=3)

    def _node(self, name: str, keywords: dict[str, Any], outputs: int) -> list[Tensor]:
        signatures.signature(name).bind(**keywords)
        if keywords.get("use_deterministic_algorithm"):
            self.log.append("deterministic")
        self.node = keywords
        self.outputs = [Tensor() for _ in range(outputs)]
        return self.outputs

    def build(self, heuristics: Any) -> None:
        self.log.append("build")
        if self.refuse:
            raise NotSupportedError(self.refuse)
        assert all(output.is_output for output in self.outputs)
        uids = [tensor.uid for tensor in (*self.inputs, *self.outputs)]
        assert len(set(uids)) == len(uids)

    def get_workspace_size(self) -> int:
        return 16

    def execute(self, pack: dict[int, torch.Tensor], workspace: torch.Tensor, handle: str) -> None:
        signatures.signature("cudnn.pygraph.execute").bind(pack, workspace, handle=handle)
        self.log.append("execute")
        assert set(pack) == {tensor.uid for tensor in (*self.inputs, *self.outputs)}
        assert (workspace.numel(), workspace.dtype) == (16, torch.uint8)
        scale = {name: x.of(pack).item() for name, x in self.node.items() if "scale_" in name and name != "attn_scale"}
        q, k, v = (self.node[name].of(pack).float() * scale.get(f"descale_{name}", 1.0) for name in "qkv")
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        scores = q @ k.transpose(2, 3) * self.node["attn_scale"]
        if 0 in (self.node.get("diagonal_band_right_bound"), self.node.get("right_bound")):
            scores.masked_fill_(torch.ones_like(scores).triu(1).bool(), float("-inf"))
        if "dO" in self.node:
            self._differentiate(pack, q, k, v, scores, group)
            return
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        sums = weights.sum(-1, keepdim=True)
        if scale:
            weights = (weights * scale["scale_s"]).to(torch.float8_e4m3fn).float() * scale["descale_s"]
        out = weights @ v / sums * scale.get("scale_o", 1.0)
        self.outputs[0].of(pack).copy_(out)
        if self.node["generate_stats"]:
            self.outputs[1].of(pack).copy_(torch.logsumexp(scores, dim=-1, keepdim=True))

    def _differentiate(
        self, pack: dict[int, torch.Tensor], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scores: torch.Tensor,
        group: int,
    ) -> None:  # fmt: skip
        """Write the gradients from what the forward pass left: its output, and the logarithms of the sums."""
        out, dout, stats = (self.node[name].of(pack).float() for name in ("o", "dO", "stats"))
        weights = torch.exp(scores - stats)
        of_scores = weights * (dout @ v.mT - (dout * out).sum(-1, keepdim=True)) * self.node["attn_scale"]
        of_k, of_v = (x.unflatten(1, (-1, group)).sum(2) for x in (of_scores.mT @ q, weights.mT @ dout))
        for output, gradient in zip(self.outputs, (of_scores @ k, of_k, of_v), strict=True):
            output.of(pack).copy_(gradient)


def install(monkeypatch: pytest.MonkeyPatch, *, refuse: str | None = None, handle: bool = True) -> list[str]:
    """Let cudnn be imported; return the log of what is called. It may refuse every graph, or have no cuDNN."""
    log: list[str] = []
    cudnn = signatures.module(monkeypatch, "cudnn")

    def create_handle() -> str:
        if not handle:
            raise RuntimeError("Unable to find symbol cudnnCreate")
        return "handle"

    def stream_set(handle: str, stream: int) -> None:
        assert (handle, stream) == ("handle", STREAM)
        log.append("stream")

    signatures.install(monkeypatch, "cudnn.create_handle", create_handle)
    signatures.install(monkeypatch, "cudnn.set_stream", stream_set)
    cudnn.__dict__.update(
        __version__="1.32.0",
        backend_version_string=lambda: "9.19.0",
        pygraph=lambda **keywords: Graph(log, refuse, keywords),
        data_type=types.SimpleNamespace(**{name: name for name in DTYPES}),
        heur_mode=types.SimpleNamespace(A="A", FALLBACK="FALLBACK"),
        cudnnGraphNotSupportedError=NotSupportedError,
    )
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: types.SimpleNamespace(cuda_stream=STREAM))
    return log

"""cuDNN's frontend: its graph, what it says where that is refused, and its gradient."""

from __future__ import annotations

import calls
import fake_cudnn
import pytest
import torch
from calls import call
from families import named


@pytest.mark.parametrize("name", ["cudnn_frontend", "cudnn_frontend_fp8"])
def test_a_graph_is_built_once_and_runs_on_the_current_stream(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fake_cudnn.install(monkeypatch)
    attention = named(name).load(call())
    assert log == []  # a handle takes hold of the device
    attention(*calls.tensors())
    attention(*calls.tensors())
    assert log == ["build", "stream", "execute", "stream", "execute"]
    detail = named(name).detail
    assert detail
    assert detail() == "cuDNN 9.19.0"


@pytest.mark.parametrize("name", ["cudnn_frontend", "cudnn_frontend_fp8"])
def test_what_cudnn_refuses_is_said_in_its_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cudnn.install(monkeypatch, refuse="no engine proposed a plan\nand more")
    with pytest.raises(NotImplementedError, match=r"^cuDNN 9.19.0 refuses the graph: no engine proposed a plan$"):
        named(name).load(call())(*calls.tensors())


def test_cudnn_s_gradient_of_one_input_alone_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cudnn.install(monkeypatch)
    attention = named("cudnn_frontend").load(call(backward=True, kv_heads=2))
    q, k, v = calls.tensors(kv_heads=2)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    of_all = torch.autograd.grad(attention(*leaves).sum(), leaves)
    attention(alone := q.clone().requires_grad_(), k, v).sum().backward()
    assert alone.grad.equal(of_all[0])
    assert k.grad is None
    with torch.no_grad():
        assert not attention(*leaves).requires_grad


def test_a_frontend_without_cudnn_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cudnn.install(monkeypatch, handle=False)
    with pytest.raises(ImportError, match=r"1.32.0 finds no cuDNN that works: Unable to find symbol cudnnCreate"):
        named("cudnn_frontend").load(call())(*calls.tensors())

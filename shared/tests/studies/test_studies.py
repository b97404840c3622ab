"""Studies by name, and what each measures on a device."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections import Counter
from typing import Any

import pytest
from fakes import CPU, GPU, REPOSITORY, tokens

from fluxbench import studies
from fluxbench.core import cores
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.notebook.width import Width
from fluxbench.operations import attention_memory, whole_of
from fluxbench.operations.layer_shape import LayerShape
from fluxbench.operations.workload import Workload
from fluxbench.studies.study import Study
from fluxbench.worker.request import USUAL, Request, inputs_of

ONE, OTHER = tokens("one", 8), tokens("other", 9)


def names(study: Study, device: Device = CPU, *chosen: str) -> list[str]:
    settings = Settings(root=REPOSITORY, cache=REPOSITORY, workloads=chosen)
    return [workload.name for workload in study.workloads_on(device, settings)]


def test_the_studies_of_this_package() -> None:
    flux, certificate = studies.find("flux"), studies.find("certificate")
    of_text = (128, 256, 320, 384, 448, 512)
    assert names(flux) == [f"flux1-256px-t{text}" for text in (128, 256, 384, 512)]
    assert names(flux, GPU) == [f"flux1-1024px-t{text}" for text in of_text]
    assert names(certificate) == ["flux1-512px-t128"]
    assert names(certificate, GPU) == [f"flux1-1024px-t{text}" for text in (128, 384, 512)]
    backward = studies.find("backward")
    assert {each.rpartition("-")[2] for each in (*names(backward), *names(backward, GPU))} == {"training", "backward"}
    assert [len(names(backward, device)) for device in (CPU, GPU)] == [4, 20]
    assert flux.measures == certificate.measures == ("burst", "sustained")
    assert flux.references == certificate.references == ("torch_flash", "torch_efficient", "torch_math")


def test_layers_are_measured_in_three_passes_and_in_burst_alone() -> None:
    layers = studies.find("layers")
    assert len(names(layers, GPU)) == 57
    assert names(layers, GPU)[0] == "llama3-8b-layer-training"  # of which the verdict at the top is
    assert len(names(layers)) == 18
    assert layers.measures == ("burst",)


def layer_bytes(workload: Workload) -> int:
    """What a process holds of a layer: its inputs twice, those of its contents, and all of their references.

    x, y and their gradients have `elements`; weights are the same in every content. The backward pass alone has inputs
    of its own for its calls, and all else of both passes.
    """
    layer = LayerShape.of(workload.shape)
    elements, weights = layer.batch * layer.seq_len * layer.width, weights_of(layer)
    backward = workload.operation != "layer"
    of_contents = 2 * elements * (1 + backward)  # bytes, in bfloat16
    inputs = 2 * weights + of_contents
    if workload.operation == "layer_backward":
        return inputs
    contents = 2 if workload.cost.flops > 1e12 else 4
    references = 8 * elements * (1 + backward) + 4 * weights * backward
    return 2 * inputs + contents * of_contents + (1 + contents) * references


def weights_of(layer: LayerShape) -> int:
    return sum(math.prod(shape) for shape in layer.weights.values())


def test_cells_of_layers_that_run_at_once_fit_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "available", lambda: 16)
    layers, memory = studies.find("layers"), 139.8 * 2**30  # of an H200
    workloads = layers.workloads_on(GPU, Settings(root=REPOSITORY, cache=REPOSITORY))
    in_order = [inputs_of(one) for one in workloads]
    alike = sorted(workloads, key=lambda one: in_order.index(inputs_of(one)))
    of_processes = [
        tuple(one for one in alike if whole_of(one.operation) == each) for each in ("layer_training", "layer")
    ]
    asked: Any = {"device": "cuda", "variants": (), "references": (), "effort": layers.effort}
    parts = [part for each in of_processes for part in Request(workloads=each, **asked).held_together]
    shapes = [LayerShape.of(one.shape) for one in workloads]
    unfused = max(attention_memory.held(shape.call(), fused=False, backward=True).peak for shape in shapes)
    reference = max(20 * weights_of(shape) for shape in shapes)  # these and gradients in float64, gradients in float32
    at_once = Width.on(GPU, layers.at_once).measuring
    held = max(sum(map(layer_bytes, part)) for part in parts)
    assert at_once * held + unfused + (at_once - 1) * reference < 0.9 * memory
    assert len(parts) <= 6  # in each every variant begins with a rest


@pytest.mark.parametrize(
    ("at_once", "cell_gb", "memory_gb", "cells", "at_least"),
    [
        (None, None, 80, None, 1),
        (3, None, 80, 3, 1),
        (3, 24, 80, 3, 1),
        (3, 24, 48, 1, 1),
        (3, 24, 8, 1, 1),
        (3, 24, 8, 2, 2),
        (None, 24, 141, 5, 1),
        (3, 24, None, 3, 1),
    ],
)
def test_as_many_cells_share_a_gpu_as_its_memory_holds(
    at_once: int | None, cell_gb: int | None, memory_gb: int | None, cells: int | None, at_least: int
) -> None:
    holds = cell_gb and cell_gb * 10**9
    study = Study(name="s", references=(), at_once=at_once, cell_bytes=holds, at_least=at_least)
    device = dataclasses.replace(GPU, memory_bytes=memory_gb and memory_gb * 10**9)
    assert study.cells_on(device) == cells


def test_language_models_are_measured_in_five_studies_of_one_notebook_the_long_ones_one_at_a_time() -> None:
    found = {
        name: studies.find(f"fluxbench.studies.language:{name}")
        for name in ("STUDY", "LLAMA", "MODELS", "MEMORY", "GENERATION")
    }
    settings = Settings(root=REPOSITORY, cache=REPOSITORY)
    of = {name: study.workloads_on(GPU, settings) for name, study in found.items()}
    assert {name: len(its) for name, its in of.items()} == {
        "STUDY": 36, "LLAMA": 10, "MODELS": 5, "MEMORY": 9, "GENERATION": 5,
    }  # fmt: skip
    assert all(study.measures == ("burst",) for study in found.values())
    for name, device in itertools.product(("LLAMA", "MODELS", "MEMORY"), (CPU, GPU)):
        here, effort = found[name].workloads_on(device, settings), found[name].effort
        of_models = [(one.shape["width"], one.shape["mlp"], one.operation) for one in here if one.name in effort.fully]
        assert sorted(of_models) == sorted({(one.shape["width"], one.shape["mlp"], one.operation) for one in here})
        assert effort.held_bytes == 1
    trained = [one for name in ("LLAMA", "MODELS") for one in of[name]]
    assert all(1e12 < one.cost.flops < 6e13 for one in trained)  # a tenth of a second of an H200
    assert sum(len(names(study)) for study in found.values()) == 6 + 2 + 1 + 1 + 1


def test_lengths_are_measured_in_three_studies_of_one_notebook_until_they_do_not_fit() -> None:
    causal, plain, models = (studies.find(f"fluxbench.studies.scaling:{name}") for name in ("STUDY", "PLAIN", "MODELS"))
    assert studies.find("scaling") == causal
    assert [len(names(study, GPU)) for study in (causal, plain, models)] == [240, 56, 11]
    assert {study.whole_up_to for study in (causal, plain, models)} == {2**27}
    for study, device in itertools.product((causal, plain), (GPU, CPU)):  # one length of each curve is checked in full
        settings = Settings(root=REPOSITORY, cache=REPOSITORY)
        of_curves = Counter(one.group for one in study.workloads_on(device, settings) if one.name in study.effort.fully)
        assert of_curves == Counter({one.group: 1 for one in study.workloads_on(device, settings)})
    assert [study.measures for study in (causal, plain, models)] == [("burst",), ("burst",), ("burst", "sustained")]
    cards = [dataclasses.replace(GPU, memory_bytes=its) for its in (84_929_347_584, 150_129_868_800)]
    assert [[study.cells_on(card) for card in cards] for study in (causal, plain, models)] == [[1, 2]] * 3
    settings = Settings(root=REPOSITORY, cache=REPOSITORY)
    shapes = [dict(each.shape) for each in plain.workloads_on(GPU, settings)]
    scores = {8 * int(shape["seq_len_k"]) ** 2 * 4 for shape in shapes}  # bytes of one matrix in float32
    assert max(scores) > 0.9 * 141e9  # of which a softmax needs two: on no card of today
    assert min(scores) < 1e7
    for study in (causal, plain, models):
        assert max(each.x for each in study.workloads_on(CPU, settings)) <= 1024


def test_the_grid_has_135_shapes_in_two_dtypes_and_two_passes() -> None:
    sdpa = studies.find("sdpa")
    found = sdpa.workloads_on(GPU, Settings(root=REPOSITORY, cache=REPOSITORY))
    sizes = Counter(tuple(one.shape[size] for size in ("batch", "seq_len_k", "head_dim_qk", "heads")) for one in found)
    wanted = itertools.product((8, 16, 64), (64, 128, 256, 512, 1024), (32, 64, 128), (12, 16, 24))
    assert sizes == dict.fromkeys(wanted, 4)
    kinds = Counter((one.operation, one.dtype) for one in found)
    assert kinds == dict.fromkeys(
        itertools.product(("attention", "attention_training"), ("bfloat16", "float16")), 135
    )  # fmt: skip
    assert all(one.shape["seq_len_q"] == one.shape["seq_len_k"] and not one.shape["causal"] for one in found)
    fully = Counter(
        (one.operation, one.dtype, one.shape["head_dim_qk"]) for one in found if one.name in sdpa.effort.fully
    )  # fmt: skip
    assert len(fully) == 12
    assert min(fully.values()) >= 3
    small = names(sdpa)
    assert len(small) == 12
    assert set(small) <= {one.name for one in found} & set(sdpa.effort.fully)


def test_settings_and_the_kind_of_device_choose_the_workloads() -> None:
    own = Study(name="own", references=("torch_math",), workloads=(ONE, OTHER))
    assert names(own) == names(own, GPU) == ["one", "other"]
    assert names(own, CPU, "other", "wan-480p", "other") == ["other", "wan-480p"]
    flux = studies.find("flux")
    assert names(flux, CPU, "wan-480p", "flux1-512px-t128") == ["wan-480p", "flux1-512px-t128"]
    study = Study(name="sets", references=(), sets={"cpu": ("wan-480p",), "any": ("wan-720p",)})
    assert (names(study), names(study, GPU)) == (["wan-480p"], ["wan-720p"])
    with pytest.raises(SetupError, match="study 'none' must name workloads for a device of kind 'cuda', got none"):
        names(Study(name="none", references=(), sets={"cpu": ("wan-480p",)}), GPU)


def test_a_study_that_would_measure_or_show_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="rate of study 'a' must be TFLOP/s or GB/s, got 'TB/s'"):
        Study(name="a", references=(), rate="TB/s")
    for measures in (("brust",), ()):
        with pytest.raises(ValueError, match="measures of study 'a' must be some of burst, sustained, got"):
            Study(name="a", references=(), measures=measures)
    with pytest.raises(SetupError, match="workloads of study 'a' must have different names, got one name twice"):
        names(Study(name="a", references=(), workloads=(ONE, tokens("one", 9))))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("certificat", "study must be a known name or module:attribute, got 'certificat'; did you mean 'certificate'?"),
        (
            "x",
            "study must be a known name or module:attribute, got 'x'; the studies are backward, certificate, decode, "
            "flux, language, layers, model, parallel, scaling, sdpa, versions",
        ),
        ("nowhere:STUDY", "study 'nowhere:STUDY' cannot be loaded: No module named 'nowhere'"),
        ("a_study:NONE", "study 'a_study:NONE' cannot be loaded: "),
        ("a_study:__name__", "study 'a_study:__name__' must be a fluxbench.studies.study.Study, got str"),
    ],
)
def test_a_study_that_does_not_exist_is_one_sentence(monkeypatch: pytest.MonkeyPatch, name: str, sentence: str) -> None:
    monkeypatch.setitem(sys.modules, "a_study", type(sys)("a_study"))
    with pytest.raises(SetupError) as caught:
        studies.find(name)
    assert str(caught.value).startswith(sentence)


def test_of_the_flux_page_a_cpu_checks_the_shortest_and_the_longest_fully_and_alone_any_other() -> None:
    flux = studies.find("flux")

    def fully(device: Device, *chosen: str) -> list[str]:
        settings = Settings(root=REPOSITORY, cache=REPOSITORY, workloads=chosen)
        here = flux.workloads_on(device, settings)
        named = flux.effort_on(device, here).fully
        return [one.name for one in here if not named or one.name in named]

    assert fully(CPU) == ["flux1-256px-t128", "flux1-256px-t512"]
    assert fully(CPU, "flux1-256px-t256", "flux1-256px-t320") == ["flux1-256px-t256", "flux1-256px-t320"]
    for chosen in ((), ("flux1-256px",), ("flux1-256px", "flux1-1024px")):
        assert fully(GPU, *chosen) == names(flux, GPU, *chosen)
    assert flux.effort_on(GPU, flux.workloads_on(GPU, Settings(root=REPOSITORY, cache=REPOSITORY))) == USUAL

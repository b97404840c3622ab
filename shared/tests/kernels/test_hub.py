"""The hub's kernels: loaded by the real package from a copy and from a made-up hub, or refused with a reason."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from calls import wrong

from fluxbench import variants
from fluxbench.kernels import hub
from fluxbench.variants import hf_kernels

pytest.importorskip("kernels", reason="needs the package of locks/dev.txt")
import huggingface_hub
import kernels.archs
import kernels.verify

TESTS = Path(__file__).parents[1]
SHIPPED = TESTS / "hub" / "attention"
REVISION = "0123456789abcdef0123456789abcdef01234567"
NAMES = {
    "hf_flash_attn2": hf_kernels.FLASH_ATTN_2,
    "hf_flash_attn3": hf_kernels.FLASH_ATTN_3,
    "hf_sage": hf_kernels.SAGE,
}


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped repository, and the environment of a machine that has set nothing."""
    monkeypatch.delenv("LOCAL_KERNELS", raising=False)
    monkeypatch.setattr(hub, "LOCK", tmp_path / "kernels.lock")
    monkeypatch.setattr(hub, "_found", {})
    return Path(shutil.copytree(SHIPPED, tmp_path / "attention"))


def reason(repository: str = hf_kernels.FLASH_ATTN_2) -> str:
    """Return why a kernel is refused."""
    with pytest.raises(ImportError) as caught:
        hub.load(repository, hf_kernels.VERSIONS[repository])
    said = str(caught.value)
    assert len(said) <= 200  # a longer one would lose its advice in a record
    assert "\n" not in said
    return said


# From a local copy.


@pytest.mark.parametrize("name", NAMES)
def test_a_local_copy_is_loaded_and_computes_attention(name: str, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KERNELS", f"someone/else=/missing:{NAMES[name]}={copy}")
    variant = variants.find(name).variant
    assert wrong(variant) is None
    assert wrong(variant, causal=True) is None
    assert variant.detail
    assert variant.detail() == f"{NAMES[name]} v1, build torch-universal, a local copy, not verified"


def test_a_copy_whose_builds_are_for_other_machines_is_refused(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (copy / "build" / "torch-universal").rename(copy / "build" / "torch20-cxx11-cu118-x86_64-linux")
    monkeypatch.setenv("LOCAL_KERNELS", f"{hf_kernels.FLASH_ATTN_2}={copy}")
    said = reason()
    assert "none of its 1 builds fits: torch20-cxx11-cu118-x86_64-linux: Torch version (2.0) does not match" in said
    assert said.endswith("; name another in LOCAL_KERNELS")


@pytest.mark.parametrize("words", ["undefined symbol: _ZN3c106detail", "a_package_that_nobody_has", "syntax"])
def test_a_kernel_that_cannot_be_imported_is_refused_with_its_own_words(
    copy: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    broken = {"syntax": "this is no Python", "a_package_that_nobody_has": f"import {words}"}
    (copy / "build" / "torch-universal" / "__init__.py").write_text(
        broken.get(words, f"raise OSError('lib.so: {words}')"), encoding="utf-8"
    )
    monkeypatch.setenv("LOCAL_KERNELS", f"{hf_kernels.FLASH_ATTN_2}={copy}")
    sentence = reason()
    assert words in sentence
    assert str(copy) not in sentence


# From a hub.


class Hub:
    """A hub that holds the shipped repository at one revision, under every name; the tests change what it says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.is_trusted, self.asked = folder, True, set[str | None]()
        for name in ("get_organization_overview", "list_repo_refs", "list_repo_tree", "hf_hub_download"):
            monkeypatch.setattr(huggingface_hub.HfApi, name, self.answers(getattr(self, name)))
        monkeypatch.setattr(huggingface_hub.HfApi, "snapshot_download", self.answers(self.snapshot_download))
        self.verified: Any = kernels.verify.VerificationResult.Success()
        monkeypatch.setattr(kernels.verify, "verify_variant", lambda path: self.verified)

    @staticmethod
    def answers(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda api, *arguments, **keywords: method(*arguments, **keywords)

    def get_organization_overview(self, publisher: str) -> Any:
        return SimpleNamespace(trustedKernelPublisher=self.is_trusted)

    def list_repo_refs(self, **keywords: Any) -> Any:
        branches = [SimpleNamespace(name=f"v{n}", ref=f"refs/heads/v{n}", target_commit=REVISION) for n in (1, 2, 3)]
        return SimpleNamespace(branches=branches)

    def list_repo_tree(self, repo_id: str, **keywords: Any) -> Any:
        self.asked.add(keywords["revision"])
        folders = sorted((self.folder / "build").iterdir())
        return [huggingface_hub.hf_api.RepoFolder(path=f"build/{each.name}", oid="0") for each in folders]

    def hf_hub_download(self, repo_id: str, filename: str, **keywords: Any) -> str:
        return str(self.folder / filename)

    def snapshot_download(self, repo_id: str, **keywords: Any) -> str:
        return str(self.folder)


@pytest.fixture
def made_up(copy: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    return Hub(copy, monkeypatch)


def test_a_signed_kernel_of_a_trusted_publisher_is_loaded_and_its_revision_said(made_up: Hub) -> None:
    (made_up.folder / "build" / "torch20-cxx11-cu118-x86_64-linux").mkdir()
    hub.load(hf_kernels.SAGE, 2)
    assert hub.loaded(hf_kernels.SAGE) == f"{hf_kernels.SAGE} v1, build torch-universal, revision {REVISION}"


def test_a_locked_revision_is_taken(made_up: Hub) -> None:
    locked = "f" * 40
    dependency = kernels.load.KernelDependency(hf_kernels.SAGE, kernels.load.KernelVersion.Version(2))
    lock = kernels.locking.KernelLocks({dependency: kernels.locking.KernelLock(locked)})
    hub.LOCK.write_text(lock.to_json(), encoding="utf-8")
    hub.load(hf_kernels.SAGE, 2)
    assert made_up.asked == {locked}
    assert "is not locked" in reason(hf_kernels.FLASH_ATTN_2)


def test_a_publisher_that_is_not_trusted_is_refused_and_the_hub_is_asked_once(made_up: Hub) -> None:
    made_up.is_trusted = False
    refused = reason()
    assert refused.endswith("is not from a trusted publisher; name a copy that you trust in LOCAL_KERNELS")
    made_up.is_trusted = True
    assert reason() == refused
    module = hub.load(hf_kernels.SAGE, 2)
    made_up.is_trusted = False
    assert hub.load(hf_kernels.SAGE, 2) is module


def test_a_build_without_a_signature_is_refused_before_it_is_imported(
    made_up: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels.verify, "verify_variant", REALLY)
    (made_up.folder / "build" / "torch-universal" / "__init__.py").write_text("raise SystemExit(9)", encoding="utf-8")
    assert "its build is not signed; " in reason()


REALLY = kernels.verify.verify_variant


def test_a_signature_that_does_not_hold_is_refused(made_up: Hub) -> None:
    made_up.verified = kernels.verify.VerificationResult.DigestMissing()
    assert "its build's signature does not hold: DigestMissing" in reason()


def test_a_hub_that_cannot_be_reached_is_said(made_up: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*arguments: Any, **keywords: Any) -> Any:
        raise ConnectionError("[Errno -2] Name or service not known: https://hub.example/api/kernels")

    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_refs", unreachable)
    assert "the hub cannot be reached: [Errno -2] Name or service not known: the hub; " in reason()


def test_the_versions_are_those_that_are_locked() -> None:
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["kernels"]["dependencies"] == hf_kernels.VERSIONS

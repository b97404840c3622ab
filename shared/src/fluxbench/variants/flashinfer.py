"""FlashInfer's batch decoding (`flashinfer-python`), on a cache in pages; one without is cut into pages of 16 tokens.

Exact: sums are float32. It plans how to split the work once for a table of pages and its lengths, as servers do once a
step for all layers; planning is not timed. Its kernels are compiled by nvcc at the first call, unless the wheel of its
own index that holds them (`flashinfer-jit-cache`) is installed. Runs on compute capability 8.0 or newer.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base

_WORKSPACE_BYTES = 128 << 20  # what its documentation recommends
_TENSOR_CORES_FROM = 4  # query heads to a head of k and v; its documentation: "faster for large group size"
_PAGE = 16  # tokens that a contiguous cache is cut into, where its length is a multiple


def load(call: AttentionCall) -> Attention:
    """Return `BatchDecodeWithPagedKVCacheWrapper.run`, planned anew for each table of another address.

    Raises `ImportError` where its kernels can neither be compiled nor are there.
    """
    import torch
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper

    if not (_has_nvcc() or importlib.util.find_spec("flashinfer_jit_cache")):
        raise ImportError("FlashInfer compiles its kernels by nvcc, and there is none; install the CUDA toolkit")
    if not shutil.which("ninja"):  # of its own dependency, which lies beside this interpreter
        os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    page_size = call.page_size or (call.seq_len_k if call.seq_len_k % _PAGE else _PAGE)
    pages = -(-call.seq_len_k // page_size)
    planned: dict[str, Any] = {}

    def plan(q: Any, table: Any) -> None:
        options = {"dtype": torch.int32, "device": q.device}
        if "workspace" not in planned:  # of all plans, as servers share it: to fill it takes longer than a call
            planned["workspace"] = torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)
        tensor_cores = call.heads // call.kv_heads >= _TENSOR_CORES_FROM
        planned["run"] = BatchDecodeWithPagedKVCacheWrapper(planned["workspace"], "NHD", use_tensor_cores=tensor_cores)
        planned["run"].plan(
            torch.arange(call.batch + 1, **options) * pages,
            table,
            torch.full((call.batch,), call.seq_len_k - (pages - 1) * page_size, **options),
            call.heads,
            call.kv_heads,
            call.head_dim_qk,
            page_size,
            q_data_type=q.dtype,
            kv_data_type=q.dtype,
        )
        planned["table"] = table

    def attend(q: Any, k: Any, v: Any, table: Any = None) -> Any:
        if table is None:
            k, v = (x.view(-1, page_size, *x.shape[2:]) for x in (k, v))
            known = planned.get("table")
            table = torch.arange(call.batch * pages, dtype=torch.int32, device=q.device) if known is None else known
        if "table" not in planned or planned["table"].data_ptr() != table.data_ptr():
            plan(q, table.view(-1))
        return planned["run"].run(q.squeeze(1), (k, v)).unsqueeze(1)

    return attend


def _has_nvcc() -> bool:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    return bool(shutil.which("nvcc")) or (Path(home) / "bin" / "nvcc").is_file()


VARIANT = _base.Variant(
    name="flashinfer",
    label="FlashInfer",
    load=load,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        head_dims=(64, 128, 256),
        minimum=(8, 0),
        gqa=_base.YES,
        varlen=_base.DOCUMENTED,
        paged=_base.YES,
    ),
    kernel_pattern=r"(?i)BatchDecode|BatchPrefill|flashinfer",
    jit=True,
    packages=("torch", "flashinfer-python"),
    only_decodes=True,
)

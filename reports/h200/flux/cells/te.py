# /// script
# requires-python = ">=3.11"
# dependencies = ["fluxbench"]
#
# [tool.uv.sources]
# fluxbench = { path = "../../../shared", editable = true }
#
# [tool.fluxbench]
# notebook = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6", "transformer-engine==2.20.2"]
# lock = "transformer-engine"
# ///
from fluxbench import bench

bench.measure(
    "te_fused", "te_fused_compile_d", "te_fused_compile_ma",
    "te_flash", "te_unfused",
)
# /// script
# requires-python = ">=3.11"
# dependencies = ["fluxbench"]
#
# [tool.uv.sources]
# fluxbench = { path = "../../../shared", editable = true }
#
# [tool.fluxbench]
# notebook = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6", "sageattention==1.0.6"]
# lock = "sage"
# ///
from fluxbench import bench

bench.measure("sage_int8_fp16_triton", "sage_int8_fp16_cuda", "sage_int8_fp8_sm90")
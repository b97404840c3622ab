# /// script
# requires-python = ">=3.11"
# dependencies = ["fluxbench"]
#
# [tool.uv.sources]
# fluxbench = { path = "../../../shared", editable = true }
#
# [tool.fluxbench]
# notebook = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6", "nvidia-cudnn-frontend==1.32.0"]
# lock = "cudnn-frontend"
# ///
from fluxbench import bench

bench.measure("cudnn_frontend", "cudnn_frontend_fp8")
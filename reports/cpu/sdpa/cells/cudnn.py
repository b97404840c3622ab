# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "sdpa"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6"]
# tool.fluxbench.variants = ["torch_native", "torch_cudnn"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()
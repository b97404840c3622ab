# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "flux"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6"]
# tool.fluxbench.variants = ["torch_flash", "torch_cudnn", "torch_efficient", "torch_math", "torch_native",
#     "torch_flash_copy", "torch_cudnn_copy", "torch_efficient_copy"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()
# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "flux"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6", "kernels==0.17.2"]
# tool.fluxbench.lock = "hf-kernels"
# tool.fluxbench.variants = ["hf_flash_attn2", "hf_flash_attn3", "hf_sage", "hf_local_flash"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()
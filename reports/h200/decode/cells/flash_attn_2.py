# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "decode"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6", "flash-attn==2.8.3.post2"]
# tool.fluxbench.lock = "flash-attn-2"
# tool.fluxbench.variants = ["flash_attn_2_kvcache", "flash_attn_2"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()
# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "decode"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6", "fa3-fwd==0.0.3", "triton==3.7.1"]
# tool.fluxbench.lock = "flash-attn-3"
# tool.fluxbench.variants = ["flash_attn_3_kvcache", "flash_attn_3"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()
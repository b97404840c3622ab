# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "flux"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6", "triton==3.7.1"]
# tool.fluxbench.variants = ["gluon_flash", "gluon_int8_fp8"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()
# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "flux"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6", "sageattention==1.0.6"]
# tool.fluxbench.lock = "sage"
# tool.fluxbench.variants = ["sage_int8_fp16_triton", "sage_int8_fp16_cuda", "sage_int8_fp8_sm90"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()
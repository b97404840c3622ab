"""Anyone's table of published figures, row by row: against physics, against itself, against ours. No device, no torch.

`docs/audit.md` lists the columns, the units and what each judgement means.
"""

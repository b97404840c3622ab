"""What this machine has and lacks: device, tools, packages, disk, and which variants will run here.

Imports no torch, starts nothing on the device, builds and downloads nothing.
"""

"""Code that leaves processes behind, for tests of who ends them."""

# Leaves three processes behind: a child, a child in a session of its own, and a daemon that nobody's list holds, which
# gave up its parents, its session and its streams.
CHILDREN = """
import os, subprocess, sys, time
pids = open(os.environ["PIDS"], "a")
for apart in (False, True):
    print(subprocess.Popen(["sleep", "600"], start_new_session=apart).pid, file=pids, flush=True)
if os.fork() == 0:
    os.setsid()
    if daemon := os.fork():
        print(daemon, file=pids, flush=True)
        os._exit(0)
    os.chdir("/")
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    os.execlp("sleep", "sleep", "600")
os.wait()
"""

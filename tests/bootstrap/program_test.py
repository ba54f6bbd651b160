"""Runs the program of docs/bootstrap.md, named by the argument, as two ranks."""
import os
import socket
import subprocess
import sys

with socket.socket() as s:  # a port that nobody has
    s.bind(("127.0.0.1", 0))
    root = "127.0.0.1:%d" % s.getsockname()[1]
environment = {**os.environ, "VCCL_RANKS": "2", "VCCL_ROOT": root, "VCCL_SECRET": "a secret of this test"}
ranks = [subprocess.Popen([sys.argv[1]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**environment, "VCCL_RANK": str(r)})
         for r in (1, 0)]
said = [p.communicate(timeout=100)[0] for p in ranks]
assert said == ["rank 1 of 2: 3\n", "rank 0 of 2: 3\n"] and all(p.returncode == 0 for p in ranks), said

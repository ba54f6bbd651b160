"""bench/report.py: figures, tables and pictures out of what benches print.  check_report.py SOURCE SCRATCH"""
import json
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree

source, scratch = map(pathlib.Path, sys.argv[1:])
shutil.rmtree(scratch, ignore_errors=True)
script = source / "bench/report.py"


def report(name, text):
    subprocess.run([sys.executable, script, name, scratch], input=text, text=True, check=True)
    made = json.loads((scratch / f"{name}.json").read_text())
    assert made["bench"] == name and made["lines"] == text.splitlines()
    return made


def shapes(file, tag):
    return len(list(xml.etree.ElementTree.parse(scratch / file).iter("{http://www.w3.org/2000/svg}" + tag)))


ports = report("two_ports", """GB/s simulated; ports of 5.0 GB/s, 5 us one way, chunks of 256 KiB
QPs |  1 port 2 ports  ratio |   one lost  ratio |   returned  ratio | RTT us
  1 |    4.99   10.00  2.003 |       5.19  1.039 |      10.00  2.003 |   12.0
  8 |    4.99    9.87  1.976 |       5.10  1.021 |       9.92  1.987 |   12.0
BENCH two_ports ratio=1.976 after_loss=1.021 note=slow
""")
assert ports["figures"] == {"ratio": 1.976, "after_loss": 1.021, "note": "slow"}
assert ports["tables"] == [{"columns": ["", "QPs", "1 port", "2 ports", "ratio", "one lost", "ratio", "returned", "ratio", "RTT us"],
                            "rows": [["", 1, 4.99, 10.0, 2.003, 5.19, 1.039, 10.0, 2.003, 12.0],
                                     ["", 8, 4.99, 9.87, 1.976, 5.1, 1.021, 9.92, 1.987, 12.0]]}], ports["tables"]
assert shapes("two_ports-rates.svg", "rect") == 1 + 8, "a bar for each of four rates, twice, on a ground"

scale = report("scale", """                | ns/chunk ratio | set-up us ratio |   heap KiB  objects
channels      1 |       40  1.00 |      22.1  1.00 |      195.1     42.5
channels   1024 |      203  5.06 |      90.7  4.10 |      199.8     42.5
lanes         8 |       67  1.07 |      54.0  3.18 |      514.9     42.5
BENCH scale channels_ratio=8.26
""")
assert scale["tables"][0]["columns"] == ["", "", "ns/chunk", "ratio", "set-up us", "ratio", "heap KiB", "objects"]
assert scale["tables"][0]["rows"][1] == ["channels", 1024, 203, 5.06, 90.7, 4.1, 199.8, 42.5]
assert shapes("scale-channels.svg", "circle") == 2 and shapes("scale-channels.svg", "polyline") == 1
assert not (scratch / "scale-failover.svg").exists(), "no picture of what was not printed"

size = report("size", "one of each               seconds    more  text KiB    more\nthe headers alone            0.53               0.0\n"
                      "defaults                     2.67   +0.00      72.1    +0.0\nproxy_thread                 2.57   -0.10   1,074.8    +2.8\n")
assert size["figures"] == {} and size["tables"][1]["columns"] == ["", "seconds", "more", "text KiB", "more"], size["tables"]
assert size["tables"][1]["rows"][1] == ["proxy_thread", 2.57, -0.1, 1074.8, 2.8]

report("peers_guest", """                                      perftest     ucx-put        vccl
MiB/s, 64 B                                0.4         0.2         0.3
MiB/s, 65536 B                            32.7           -        28.5
us, half a round trip of 8 B              17.2        22.0        18.0

to perftest in the same run           perftest     ucx-put        vccl
MiB/s, 64 B                               1.00        0.44        0.75
MiB/s, 65536 B                            1.00        0.24        0.87
""")
assert shapes("peers_guest-bandwidth.svg", "circle") == 5, "two sizes of three systems, once, but for what was not measured"

assert report("idle", "nothing but words, 7 of them\n")["tables"] == []
with_pictures = subprocess.run([sys.executable, script, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
assert with_pictures and all((source / "bench" / name).is_dir() for name in with_pictures), with_pictures

"""Runs the program named by the argument in a new folder and has XML and JSON parsers read what it wrote."""
import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

svg = "{http://www.w3.org/2000/svg}"
with tempfile.TemporaryDirectory() as name:
    subprocess.run([sys.argv[1], name], check=True)
    folder = pathlib.Path(name)

    picture = xml.parse(folder / "sample.svg").getroot()
    words = [t.text for t in picture.iter(svg + "text")]
    for wanted in ("A to B <256 MiB>", "1 failover & 1 fail-back", "throughput (GB/s)", "time (ms)", "A.nic0.p0 (primary)",
                   "A.nic0.p1 (backup)", "failed over to A.nic0.p1", "back on A.nic0.p0", "A.nic0.p0 goes down <script>"):
        assert wanted in words, (wanted, words)
    assert len(list(picture.iter(svg + "path"))) == 2, "one curve a lane"
    width, height = float(picture.get("width")), float(picture.get("height"))
    for line in picture.iter(svg + "line"):
        assert all(0 <= float(line.get(k)) <= width for k in ("x1", "x2")) and all(0 <= float(line.get(k)) <= height for k in ("y1", "y2"))
    assert xml.parse(folder / "empty.svg").getroot().tag == svg + "svg"

    events = json.loads((folder / "sample.json").read_text())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {1: 'A "sender"', 2: "B\\receiver"}, processes
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = [e for e in events if e["ph"] == "X" and e["pid"] == 1]
    assert len(slices) == 256 and sum(e["args"]["bytes"] for e in slices) == 256 << 20
    assert {tracks[1, e["tid"]] for e in slices} == {"A.nic0.p0", "A.nic0.p1"}
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in zip(slices, slices[1:])), "slices of the sample do not overlap"
    assert sum(e["ph"] == "i" for e in events) == 10
    assert any(e["ph"] == "C" and e["args"]["A.nic0.p1"] > 0 for e in events)

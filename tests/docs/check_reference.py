"""The API reference: it is made, and every public name has a word about it; one that has none is found.

    check_reference.py SOURCE SCRATCH
"""
import pathlib
import re
import shutil
import subprocess
import sys

source, scratch = map(pathlib.Path, sys.argv[1:])
make = source / "docs/site/make.py"
shutil.rmtree(scratch, ignore_errors=True)


def made(out, tree):
    return subprocess.run([sys.executable, make, "--api", "--source", tree, out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


ran = made(scratch / "site", source)
assert ran.returncode == 0, ran.stdout
assert 'href="api/index.html"' in (scratch / "site/index.html").read_text(), "the first page leads to the reference"
classes = (scratch / "site/api/annotated.html").read_text()
for name in ("basic_host_sender", "host_context", "counters", "sibling_port", "device_result", "communicator", "soft_fabric"):
    assert f">{name}<" in classes, f"{name} is not in the reference"
assert "soft_detail" not in classes and "ledger" not in classes, "the inside of the library is in the reference"

sender = re.sub(r"<[^>]*>", " ", (scratch / "site/api/classvccl_1_1basic__host__sender.html").read_text())
for member in ("send", "health", "abort"):  # its own, the endpoint's, the core's
    assert re.search(rf"\b{member} +\(", sender), f"a sender's {member} is not in the reference"
assert not re.search(r"\bcore_tick +\(", sender), "what endpoints call of each other is in the reference"

tree = scratch / "tree"
(tree / "include/vccl").mkdir(parents=True)
(tree / "tests/package").mkdir(parents=True)
(tree / "docs").mkdir()
(tree / "tests/package/layers.cmake").write_text("set(layers base)\n")
(tree / "README.md").write_text("# Title\n")
(tree / "include/vccl/some.hpp").write_text("""#pragma once
/// \\file
/// Some header.
namespace vccl::inline v0 {
/// Said.
struct said {
    using policy_axis = int;
    int silent{};
    said(said&&) = delete;
    friend bool operator==(const said&, const said&) = default;
protected:
    int inner{};
private:
    int own{};
};
namespace detail {
struct inside {};
}  // namespace detail
void quiet();
}  // namespace vccl::inline v0
""")
ran = made(scratch / "bad", tree)
said = sorted(line.split(" warning: ")[1].split(" is not")[0] for line in ran.stdout.splitlines())
assert ran.returncode == 1 and said == ["Member quiet() (function) of namespace vccl", "Member silent (variable) of struct vccl::said"], ran.stdout

"""The site: it is made without a broken link, from every page and header; and a broken link is found.  check_site.py SOURCE SCRATCH"""
import pathlib
import shutil
import subprocess
import sys

source, scratch = map(pathlib.Path, sys.argv[1:])
make = source / "docs/site/make.py"
shutil.rmtree(scratch, ignore_errors=True)


def made(out, tree):
    return subprocess.run([sys.executable, make, "--source", tree, out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


ran = made(scratch / "site", source)
assert ran.returncode == 0, ran.stdout
index = (scratch / "site/index.html").read_text()
for page in (source / "docs").glob("*.md"):
    assert f'href="{page.stem}.html"' in index, f"{page.name} cannot be reached from the first page"
headers = (scratch / "site/headers.html").read_text()
for header in (source / "include").rglob("*.?pp"):
    assert f">{header.relative_to(source / 'include')}<" in headers, header
assert "</td><td></td>" not in headers, "a header does not say what it is"
if shutil.which("dot"):
    assert "<svg" in (scratch / "site/protocol.html").read_text(), "state diagrams are pictures"

tree = scratch / "tree"
for folder in ("docs", "include/vccl", "tests/package"):
    (tree / folder).mkdir(parents=True)
(tree / "tests/package/layers.cmake").write_text("set(layers base)\n")
(tree / "README.md").write_text("# Title\n\n[good](docs/one.md#part-one) [file](docs/none.md) [heading](docs/one.md#part-two)\n")
(tree / "docs/one.md").write_text("# One\n\n## Part `one`\n")
ran = made(scratch / "bad", tree)
assert ran.returncode == 1 and ran.stdout.splitlines() == ["index.html: missing/docs/none.md leads nowhere",
                                                           "index.html: one.html#part-two: there is no such heading"], ran.stdout

"""Fails unless the backend of the cookbook has as many lines as the page says, at most 150, and clang-format 16, where there is
one, would leave them as they are: no line is saved by cramming.  lines.py PAGE SOURCE"""
import pathlib
import re
import shutil
import subprocess
import sys

page, source = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2]
text = re.search(r"^```cpp file=in_process.hpp\n(.*?)^```$", page, re.M | re.S)[1]
said = int(re.search(r"^(\d+) lines that pass the contract suite", page, re.M)[1])
if (lines := text.count("\n")) != said or lines > 150:
    sys.exit(f"the backend of docs/cookbook.md has {lines} lines; the page says {said}, and 150 are wanted")
formatter = shutil.which("clang-format-16") or shutil.which("clang-format")
if formatter and " 16." in subprocess.run([formatter, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout:
    style = ["--style=file:" + source + "/.clang-format", "--assume-filename=in_process.hpp"]
    if subprocess.run([formatter, *style], input=text, stdout=subprocess.PIPE, text=True, check=True).stdout != text:
        sys.exit("the backend of docs/cookbook.md is not formatted as the sources are")

"""Writes each block of a page whose fence says `cpp file=NAME` into FOLDER/NAME.  extract.py PAGE FOLDER"""
import pathlib
import re
import sys

page, folder = map(pathlib.Path, sys.argv[1:])
folder.mkdir(parents=True, exist_ok=True)
for name, text in re.findall(r"^```cpp file=(\S+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
    (folder / name).write_text(text, encoding="utf-8")

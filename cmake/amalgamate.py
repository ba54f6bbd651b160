#!/usr/bin/env python3
"""Writes headers of vccl, and all of vccl that they include, as one header: for a quick trial without an installation.

    amalgamate.py OUTPUT [HEADER...]

OUTPUT is a file. A HEADER is named as a program would, such as vccl/verbs/ibv.hpp; without any: vccl/vccl.hpp and
vccl/verbs/soft.hpp. Every header appears once, where it is included first, so a program compiles to the same code with
either form. Include the one file in as many sources as you like, but not beside the headers that it was made of.
"""
import pathlib
import re
import sys

include = pathlib.Path(__file__).resolve().parent.parent / "include"
default = ("vccl/vccl.hpp", "vccl/verbs/soft.hpp")


def version():
    config = (include / "vccl/base/config.hpp").read_text(encoding="utf-8")
    return ".".join(re.search(rf"#define VCCL_VERSION_{part} (\d+)", config).group(1) for part in ("MAJOR", "MINOR", "PATCH"))


def inline(header, seen, out):
    if header in seen:
        return
    seen.add(header)
    path = include / header
    if not path.is_file():
        sys.exit(f"amalgamate.py: there is no {header} in {include}")
    conditions = 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        directive = re.match(r"\s*#\s*(\w+)", line)
        word = directive.group(1) if directive else ""
        conditions += (word in ("if", "ifdef", "ifndef")) - (word == "endif")
        own = re.match(r'\s*#\s*include\s*[<"](vccl/[^>"]*)[>"]', line)
        if own and conditions:
            # Whether it is wanted is known only when the program is compiled; a later include may need it in any case.
            sys.exit(f"amalgamate.py: {header}:{number} includes {own.group(1)} under a condition")
        if own:
            inline(own.group(1), seen, out)
        elif not re.match(r"#\s*pragma once", line):
            out.append(line)


def main(output, *headers):
    headers = headers or default
    out = ["#pragma once", f"// vccl {version()} in one file, made by cmake/amalgamate.py from {', '.join(headers)}. Licence: Apache-2.0."]
    seen = set()
    for header in headers:
        inline(header, seen, out)
    target = pathlib.Path(output)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(out) + "\n", encoding="utf-8")


if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)
main(*sys.argv[1:])

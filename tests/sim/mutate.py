#!/usr/bin/env python3
"""Breaks the library on purpose, one named breakage at a time, and says what notices.

    mutate.py [--only NAME,...] [--quick | --check]

A breakage is a file of tests/sim/mutations: a sentence, `file:` under include/vccl, and the lines to be replaced. It must match in
exactly one place, so that it cannot be lost when the code moves. Each is applied to a copy of the headers; then come, until one
notices: the core simulation, the tests that `then:` names, and the storms. Exit status 0: every breakage was noticed.
"""
import argparse, pathlib, re, shutil, subprocess, sys, tempfile, time

here = pathlib.Path(__file__).resolve().parent
top = here.parent.parent
flags = ["-std=c++20", "-O1", "-w"]
core_seeds, storm_seeds = 60000, 400


def read(path):
    text = path.read_text()
    head, old, new = re.fullmatch(r"(.*?)<<<<\n(.*)\n====\n(.*)\n>>>>\n", text, re.S).groups()
    lines = head.splitlines()
    fields = dict(l.split(": ", 1) for l in lines[1:] if ": " in l)
    return lines[0], fields["file"], fields.get("then", "").split(), old, new


def spaces(code):
    """A pattern for the code that does not mind how it is laid out."""
    return r"\s+".join(re.escape(word) for word in code.split())


class Tree:
    """A copy of what is compiled, one header of which is broken."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        shutil.copytree(top / "include", self.folder / "include")
        shutil.copytree(top / "tests", self.folder / "tests", ignore=shutil.ignore_patterns("mutations"))

    def breaks(self, file, old, new):
        path = self.folder / "include/vccl" / file
        whole = path.read_text()
        places = list(re.finditer(spaces(old), whole))
        if len(places) != 1:
            return None
        path.write_text(whole[: places[0].start()] + new + whole[places[0].end() :])
        return lambda: path.write_text(whole)

    def build(self, source, program, *more):
        command = ["g++", *flags, f"-I{self.folder}/include", str(self.folder / "tests" / source), *more, "-o", program, "-lrt", "-pthread"]
        if shutil.which("ccache"):
            command.insert(0, "ccache")
        built = subprocess.run(command, capture_output=True, text=True)
        return built.returncode == 0 or print(built.stderr[-2000:])


def tries(file, then):
    """Programs in turn: (what, source, arguments, further sources). The cores know nothing of the layers above them."""
    if file.startswith("channel/"):
        yield "sim_core", "sim/core_main.cpp", ["1", str(core_seeds), "--first"], []
    for test in then:
        yield "tests/" + test, test, ["--no-intro", "--abort-after=1"], [str(top / "tests/doctest_main.cpp")]
    yield "sim_storm", "sim/storm_main.cpp", ["1", str(storm_seeds), "--first"], []


def what_noticed(text, status):
    """The seed and the invariant, or the name of the test case."""
    if found := re.search(r"^seed (\d+): (.*?)(, after step .*)?$", text, re.M):
        return f"seed {found[1]}: {found[2]}"
    if found := re.search(r"^TEST CASE:\s+(.*)$", text, re.M):
        return f'"{found[1]}"'
    return f"exit status {status}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--check", action="store_true", help="only whether each breakage still has its one place in the headers")
    arguments.add_argument("--quick", action="store_true", help="the core simulation alone")
    chosen = arguments.parse_args()
    names = set(filter(None, chosen.only.split(",")))
    survivors = 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder)
        for path in sorted((here / "mutations").glob("*.txt")):
            if names and path.stem not in names:
                continue
            sentence, file, then, old, new = read(path)
            restore = tree.breaks(file, old, new)
            row = None
            if restore is None:
                row = ("does not apply", f"{file} has not exactly one such place", 0)
            else:
                for what, source, args, more in () if chosen.check else tries(file, then):
                    if chosen.quick and what != "sim_core":
                        break
                    if not tree.build(source, folder + "/try", *more):
                        row = ("does not compile", source, 0)
                        break
                    begin = time.monotonic()
                    try:
                        ran = subprocess.run([folder + "/try", *args], capture_output=True, text=True, timeout=240)
                        status, text = ran.returncode, ran.stdout + ran.stderr
                    except subprocess.TimeoutExpired:
                        status, text = 1, "exit status: still running after 240 s"
                    if status != 0:
                        row = (what, what_noticed(text, status), time.monotonic() - begin)
                        break
                restore()
            if chosen.check and row is None:
                row = ("applies", file, 0)
            if row is None or row[0].startswith("does not"):
                survivors += 1
            row = row or ("nobody", "survived", 0)
            rows.append(row)
            print(f"| {path.stem} | {sentence} | {row[0]} | {row[1]} | {row[2]:.1f} s |", flush=True)
    print(f"{len(rows)} breakages, {survivors} not noticed")
    return survivors != 0 or not rows


sys.exit(main())

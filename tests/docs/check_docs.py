#!/usr/bin/env python3
"""Whether README.md and docs/ say what the code says. Prints each difference and ends with status 1 if there is one.

    check_docs.py snippets SOURCE CXX            every C++ block compiles
    check_docs.py words    SOURCE                names in tables are those of the headers; links lead somewhere
    check_docs.py layouts  SOURCE CXX            offsets and times in tables are those of the structures
    check_docs.py program  SOURCE CXX BUILD SCRATCH [FLAGS]   the README's program, built as it says, prints what it says

A C++ block is a file if it begins with #include; else it stands at namespace scope, or in a function if its fence says
`cpp statements`, and sees what context.hpp declares.
"""
import concurrent.futures
import pathlib
import re
import shlex
import subprocess
import sys

mode, source, *rest = sys.argv[1:]
source = pathlib.Path(source)
include = source / "include"
pages = [source / "README.md", *sorted((source / "docs").glob("**/*.md"))]
problems = []


def read(path):
    return path.read_text(encoding="utf-8")


def blocks(page, language):
    """(line of the first line inside, words after the language, text) of each fenced block."""
    inside, start, words, lines = False, 0, "", []
    for number, line in enumerate(read(page).splitlines(), 1):
        if line.startswith("```"):
            if inside:
                if words.split()[:1] == [language]:
                    yield start, words.split()[1:], "\n".join(lines) + "\n"
                inside = False
            else:
                inside, start, words, lines = True, number + 1, line[3:], []
        elif inside:
            lines.append(line)


def compile_text(cxx, name, text):
    command = [*shlex.split(cxx), "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-unused", f"-I{include}",
               f"-I{pathlib.Path(__file__).parent}", "-xc++", "-"]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        said = "\n".join(ran.stderr.splitlines()[:30])
        problems.append(f"{name} does not compile:\n{said}")


def snippets(cxx):
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for page in pages:
            for line, words, text in blocks(page, "cpp"):
                if any(word.startswith("file=") for word in words):
                    continue  # a whole header: tests/cookbook compiles and runs it
                name = page.relative_to(source)
                placed = f'#line {line} "{name}"\n{text}'
                if words == ["statements"]:
                    placed = f'#include "context.hpp"\nSNIPPET {{\n{placed}return {{}}; }}\n'
                elif not text.startswith("#include"):
                    placed = f'#include "context.hpp"\n{placed}'
                pool.submit(compile_text, cxx, f"{name}:{line}", placed)


def enumerators(header, enum):
    body = re.search(rf"enum class {enum}\b[^{{]*{{(.*?)}};", read(include / "vccl" / header), re.S).group(1)
    return re.findall(r"\b([a-z_]+)\b\s*(?:=\s*\d+)?\s*(?:,|$)", re.sub(r"//.*", "", body), re.M)


def concepts():
    for header in sorted(include.glob("vccl/**/*.hpp")):
        if "testing" in header.parts:
            continue
        text = re.sub(r"namespace detail {.*?}  // namespace detail", "", read(header), flags=re.S)
        if not re.search(r"namespace [\w:]*detail\b", text):
            yield from re.findall(r"^concept (\w+)", text, re.M)


def mentions(page, names, what):
    text = read(source / page)
    for name in names:
        if f"`{name}`" not in text:
            problems.append(f"{page} does not mention the {what} `{name}`")


def headings(page):
    """As GitHub calls them."""
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", read(page), re.M)}


def words():
    for page, header, enum in (("docs/errors.md", "base/status.hpp", "errc"), ("docs/protocol.md", "model/wire.hpp", "control_kind"),
                               ("docs/protocol.md", "channel/core.hpp", "channel_state"), ("docs/protocol.md", "channel/lanes.hpp", "lane_health"),
                               ("docs/protocol.md", "model/event.hpp", "fault_cause")):
        names = enumerators(header, enum)
        mentions(page, names, enum)
        if enum == "errc":
            for row in re.findall(r"^\| `(\w+)` \|", read(source / page), re.M):
                if row not in names:
                    problems.append(f"{page} has a row for `{row}`, which is no errc")
    mentions("docs/concepts.md", concepts(), "concept")
    mentions("docs/metrics.md", re.findall(r'(?:family|total)\("(vccl_\w+)"', read(include / "vccl/telemetry/openmetrics.hpp")), "metric family")
    commands = re.findall(r'{"([a-z-]+)", fault_verb::', read(include / "vccl/verbs/soft/command.hpp"))
    mentions("docs/software-rnic.md", commands, "command")
    mentions("docs/performance.md", [made.parent.name for made in sorted(source.glob("bench/*/CMakeLists.txt"))], "bench")
    tests = {test.name: read(test) for test in source.glob("tests/*/*.[ch]pp")}
    for row in re.findall(r"^\| G\d+ \|.*\|(.*)\|$", read(source / "README.md"), re.M):
        for quoted in re.findall(r'"(?:\.\.\. )?([^"]+)"', row):
            if not any(quoted in text for text in tests.values()):
                problems.append(f"README.md: no test says \"{quoted}\"")
        for file in re.findall(r"`(\w+\.[ch]pp)`", row):
            if file not in tests:
                problems.append(f"README.md: there is no test file {file}")
    for page in pages:
        for start, _, text in blocks(page, "mermaid"):
            for number, line in enumerate(text.splitlines()[1:], start + 1):
                if not re.fullmatch(r"    \S+ --> \w+(: [^:;]+)?", line):
                    problems.append(f"{page.relative_to(source)}:{number}: not a transition that Mermaid draws: {line}")
        prose = re.sub(r"^```.*?^```", "", read(page), flags=re.M | re.S)
        for target, heading in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", prose):
            to = page.parent / target if target else page
            if "://" in target:
                continue
            if not to.exists():
                problems.append(f"{page.relative_to(source)} links to {target}, which does not exist")
            elif heading and heading not in headings(to):
                problems.append(f"{page.relative_to(source)} links to {target}#{heading}: there is no such heading")


def layouts(cxx):
    text, rows, of = "", [], None
    for line in [*read(source / "docs/protocol.md").splitlines(), "# end"]:
        if line.startswith("#"):
            for (at, size, field), following in zip(rows, [*rows[1:], None]):
                text += f"static_assert(offsetof(vccl::{of}, {field}) == {at} && sizeof(vccl::{of}::{field}) == {size});\n"
                if following is None:
                    text += f"static_assert(sizeof(vccl::{of}) == {at + size});\n"
                elif following[0] not in (at, at + size):
                    problems.append(f"docs/protocol.md: {of}: nothing between {field} and {following[2]}")
            found = re.match(r"#+ .*`(\w+)`", line)
            of, rows = found and found.group(1), []
        elif of and (row := re.match(r"\| (\d+) \| (\d+) \| `(\w+)`", line)):
            rows.append((int(row.group(1)), int(row.group(2)), row.group(3)))
    for low, high, field in re.findall(r"^\| (\d+)-(\d+) \| `(\w+)`", read(source / "docs/protocol.md"), re.M):
        all_ones, less = (1 << (int(high) - int(low) + 1)) - 1, 1 if field == "parts" else 0
        text += f"static_assert(vccl::immediate{{{all_ones << int(low)}u}}.{field}() == {all_ones + less});\n"
        text += f"static_assert(vccl::immediate{{~{all_ones << int(low)}u}}.{field}() == {less});\n"
    units = {"µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
    for name, count, unit in re.findall(r"^\| `(\w+)` \| (\d+) (µs|ms|s) \|", read(source / "docs/protocol.md"), re.M):
        of = "endpoint_options" if name in ("give_up_after", "peer_grace", "ack_delay") else "detection_times"
        text += f"static_assert(vccl::{of}{{}}.{name} == vccl::nanoseconds{{{int(count) * units[unit]}}});\n"
    if text.count("offsetof") < 40 or text.count("immediate") < 10 or text.count("nanoseconds") < 8:
        problems.append("docs/protocol.md: the layout tables are gone")
    compile_text(cxx, "a layout of docs/protocol.md", f"#include <vccl/host/endpoint.hpp>\n{text}")


def program(cxx, build, scratch, flags=""):
    scratch = pathlib.Path(scratch)
    page = source / "README.md"
    (scratch / "source").mkdir(parents=True, exist_ok=True)
    (scratch / "source/CMakeLists.txt").write_text(next(blocks(page, "cmake"))[2])
    (scratch / "source/main.cpp").write_text(next(blocks(page, "cpp"))[2])
    prefix, made = scratch / "prefix", scratch / "build"
    for command in (["cmake", "--install", build, "--prefix", prefix],
                    ["cmake", "-S", scratch / "source", "-B", made, f"-DCMAKE_CXX_COMPILER={cxx}", f"-DCMAKE_CXX_FLAGS={flags}", f"-DCMAKE_PREFIX_PATH={prefix}"],
                    ["cmake", "--build", made]):
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if ran.returncode != 0:
            problems.append(f"{command} failed:\n{ran.stdout}")
            return
    ran = subprocess.run([made / "program"], stdout=subprocess.PIPE, text=True, timeout=100, check=False)
    promised = [text for _, words, text in blocks(page, "text") if words == ["program"]]
    # A busy machine may let a timer fire too many: the number of failovers is at least what is promised.
    say = lambda text: re.sub(r"\d+ failover", "N failover", text)
    if ran.returncode != 0 or [say(ran.stdout)] != [say(text) for text in promised]:
        problems.append(f"the README's program ended with {ran.returncode} and said {ran.stdout!r}; promised: {promised}")


{"snippets": snippets, "words": words, "layouts": layouts, "program": program}[mode](*rest)
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)

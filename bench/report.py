#!/usr/bin/env python3
"""What a bench printed, as JSON and pictures.

    report.py NAME FOLDER < its output     FOLDER/NAME.json and, where PICTURES below has some, FOLDER/NAME-*.svg
    report.py --list                       the benches that have pictures

The JSON has `figures`, the pairs of the last line; `tables`, each with the names of its columns and its rows, a row beginning
with its label; and `lines`, everything as it was printed.
"""
import html
import json
import math
import pathlib
import re
import sys

NUMBER = r"[+-]?\d+(?:,\d{3})*(?:\.\d+)?"


CELL = rf"(?:{NUMBER}|-)"  # a lone dash: no figure


def value(text):
    if text == "-":
        return None
    number = float(text.replace(",", ""))
    return int(number) if number.is_integer() and "." not in text else number


def cells(line):
    """(label, [(number, column at which it ends)]) of a row: a label, then numbers with nothing but blanks and bars between them."""
    run = re.search(rf"(?<!\S){CELL}(?:[ |]+{CELL})+(?!\S)", line)
    if not run or not re.search(r"\d", run.group()):
        return line, []
    return line[:run.start()].strip(" |"), [(value(m.group()), run.start() + m.end()) for m in re.finditer(rf"(?<![^ |]){CELL}", run.group())]


def heads(line, ends):
    """The name of each column of numbers, from the line above them, which is aligned to the right as they are."""
    ends = [end + len(re.match(r"[^ |]*", line[end:]).group()) for end in ends]
    slices = [line[begin:end] for begin, end in zip([0, *ends], ends)]
    return [re.split(r"\s{2,}|\|", s.strip(" |"))[-1].strip() for s in slices]


def tables(lines):
    made, above, shape = [], "", None
    for line in lines:
        label, numbers = cells(line)
        if line.startswith("BENCH ") or not numbers:
            above, shape = line, None
            continue
        if len(numbers) != shape:
            shape = len(numbers)
            made.append({"columns": ["", *heads(above, [end for _, end in numbers])], "rows": []})
        made[-1]["rows"].append([label, *(n for n, _ in numbers)])
    return made


def report(name, text):
    lines = text.splitlines()
    last = [line for line in lines if line.startswith(f"BENCH {name} ")]
    pairs = dict(re.findall(r"(\w+)=(\S+)", last[-1])) if last else {}
    return {"bench": name, "figures": {k: value(v) if re.fullmatch(NUMBER, v) else v for k, v in pairs.items()},
            "tables": tables(lines), "lines": lines}


# --- pictures ---

COLOURS = ("#0b6e99", "#d9730d", "#4d6461", "#ad1a72", "#6940a5", "#0f7b6c")


class axis:
    """From values to a stretch of the picture; logarithmic where the values span more than a factor of 30."""

    def __init__(self, values, low, high, from_zero):
        self.log = min(values) > 0 and max(values) / min(values) > 30
        self.first = min(values) if self.log or not from_zero else 0
        self.last = max(values) if max(values) > self.first else self.first + 1
        self.low, self.high = low, high

    def at(self, v):
        of = math.log if self.log else float
        return self.low + (self.high - self.low) * (of(v) - of(self.first)) / (of(self.last) - of(self.first))

    def marks(self):
        if self.log:
            powers = range(math.ceil(math.log10(self.first) - 1e-9), math.floor(math.log10(self.last) + 1e-9) + 1)
            return [10.0 ** p for p in powers] if len(powers) > 1 else [self.first, self.last]
        step = 10 ** math.floor(math.log10((self.last - self.first) / 2))
        step *= next(s for s in (1, 2, 5) if (self.last - self.first) / (step * s) <= 6) if (self.last - self.first) / step > 6 else 1
        return [step * i for i in range(math.ceil(self.first / step), math.floor(self.last / step + 1e-9) + 1)]


def short(v):
    for size, unit in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if v >= max(size, 8192) and v % size == 0:
            return f"{v // size:.0f} {unit}"
    return f"{v:g}" if v < 10000 else f"{v:,.0f}"


def text(x, y, what, anchor="middle", colour="#333", size=12):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{html.escape(what)}</text>'


def picture(title, across, up, series):
    """Lines through the points of each series, {name: [(x, y), ...]}. An x that is text makes bars instead."""
    points = [p for of in series.values() for p in of]
    names = list(dict.fromkeys(x for x, _ in points))
    slanted = isinstance(names[0], str) and max(map(len, names)) * len(names) > 80
    width, left, right, top, bottom = 720, 64, 700, 56, 312
    height = bottom + (48 if not slanted else 24 + 4 * max(map(len, names)))
    ys = axis([y for _, y in points], bottom, top, from_zero=True)
    out = [text(left, 20, title, "start", "#111", 15), text(left, 38, up, "start")]
    for mark in ys.marks():
        out.append(f'<path d="M{left} {ys.at(mark):.1f}H{right}" stroke="#ddd"/>' + text(left - 6, ys.at(mark) + 4, short(mark), "end"))
    if isinstance(names[0], str):
        group = (right - left) / len(names)
        bar = group * 0.8 / len(series)
        for s, of in enumerate(series.values()):
            for x, y in of:
                begin = left + group * names.index(x) + group * 0.1 + bar * s
                out.append(f'<rect x="{begin:.1f}" y="{ys.at(y):.1f}" width="{bar:.1f}" height="{bottom - ys.at(y):.1f}" fill="{COLOURS[s]}"/>')
        for i, x in enumerate(names):
            at = left + group * (i + 0.5)
            out.append(f'<g transform="rotate(-30 {at:.1f} {bottom + 12})">{text(at, bottom + 12, x, "end")}</g>' if slanted else text(at, bottom + 16, x))
    else:
        xs = axis(names, left, right, from_zero=False)
        for s, of in enumerate(series.values()):
            line = " ".join(f"{xs.at(x):.1f},{ys.at(y):.1f}" for x, y in of)
            out.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[s]}" stroke-width="2"/>')
            out += [f'<circle cx="{xs.at(x):.1f}" cy="{ys.at(y):.1f}" r="3" fill="{COLOURS[s]}"/>' for x, y in of]
        out += [text(xs.at(x), bottom + 16, short(x)) for x in names]
    if across:
        out.append(text((left + right) / 2, bottom + 36, across))
    at = right
    for s, name in reversed(list(enumerate(series))):
        out.append(text(at, 38, name, "end", COLOURS[s], 13))
        at -= 8 * len(name) + 16
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
            f'<rect width="{width}" height="{height}" fill="#fff"/>{"".join(out)}</svg>\n')


def column(made, label, x, y):
    """Points from the rows whose label matches, of the first table that has some: y names a column, x is of a row, or "": its label."""
    for t in made["tables"]:
        if y in t["columns"]:
            points = [(x(row) if x else row[0], row[t["columns"].index(y)]) for row in t["rows"] if re.fullmatch(label, row[0])]
            if points:
                return [(at, figure) for at, figure in points if figure is not None]
    return []


def size_of(row):
    return int(re.search(r"(\d+) B$", row[0]).group(1))


# Of a bench: (file, title, what goes across, what goes up, {series: (label, x, y)}).
PICTURES = {
    "scale": [
        ("channels", "Many channels on one thread", "channels", "ns of processor time a chunk",
         {"ns a chunk": ("channels", lambda row: row[1], "ns/chunk")}),
        ("failover", "The port of all channels dies at once, simulated time", "channels", "us from the break to the first byte afterwards",
         {"first channel": ("", lambda row: row[1], "first byte us"), "last channel": ("", lambda row: row[1], "last us")})],
    "two_ports": [
        ("rates", "A chunk over two ports, simulated time", "QPs of a stripe", "GB/s",
         {"1 port": ("", lambda row: f"{row[1]} QP", "1 port"), "2 ports": ("", lambda row: f"{row[1]} QP", "2 ports"),
          "one lost": ("", lambda row: f"{row[1]} QP", "one lost"), "returned": ("", lambda row: f"{row[1]} QP", "returned")})],
    "instructions": [
        ("qps", "Instructions a chunk, both ends", "", "instructions",
         {"by hand": (r"hand\d", lambda row: f"{row[0][4:]} QP", "both"), "vccl": (r"ours\d", lambda row: f"{row[0][4:]} QP", "both")})],
    "size": [
        ("text", "Code of one sender and one receiver", "", "KiB of text at -O2", {"text": (r"[\w<>]+", "", "text KiB")})],
    "peers_guest": [
        ("bandwidth", "Over the same soft-RoCE ports", "bytes a message", "MiB/s, 8 outstanding",
         {s: (r"MiB/s, \d+ B", size_of, s) for s in ("perftest", "ucx-put", "ucx-tag", "mpi", "vccl")})],
    "coll": [
        ("sizes", "All-reduce beside Open MPI, 2 ranks", "bytes", "us",
         {"vccl": ("", lambda row: row[1], "vccl us"), "Open MPI": ("", lambda row: row[1], "MPI us")}),
        ("ranks", "All-reduce by ranks, and with ports that die, simulated time", "ranks", "us",
         {"no failure": ("", lambda row: row[1], "free us"), "with failures": ("", lambda row: row[1], "us")})],
    "guest_bw": [
        ("rates", "Over soft-RoCE in the guest", "KiB a chunk", "MiB/s, 8 outstanding",
         {"vccl": ("", lambda row: f"{row[1]}", "vccl MiB/s"), "by hand": ("", lambda row: f"{row[1]}", "plain MiB/s")})],
    "gap_soft": [("causes", "From the first sign of a fault to the next byte", "", "us, median", {"gap": (r"[\w -]+", "", "gap us")})],
    "gap_guest": [("causes", "From the first sign of a fault to the next byte, soft-RoCE", "", "us, median", {"gap": (r"[\w -]+", "", "gap us")})],
    "staging": [
        ("rates", "GPU memory to GPU memory through host memory", "MiB a message", "GB/s",
         {"copies": ("", lambda row: f"{row[1]} x {row[2]}", "copies GB/s"), "host": ("", lambda row: f"{row[1]} x {row[2]}", "host GB/s"),
          "staged": ("", lambda row: f"{row[1]} x {row[2]}", "staged GB/s")})],
}


def main(arguments):
    if arguments == ["--list"]:
        print("\n".join(sorted(PICTURES)))
        return
    if len(arguments) != 2:
        sys.exit(__doc__)
    name, folder = arguments[0], pathlib.Path(arguments[1])
    made = report(name, sys.stdin.read())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    for file, title, across, up, series in PICTURES.get(name, ()):
        points = {s: column(made, *of) for s, of in series.items()}
        points = {s: of for s, of in points.items() if of}
        if points:
            (folder / f"{name}-{file}.svg").write_text(picture(title, across, up, points), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

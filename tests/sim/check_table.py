#!/usr/bin/env python3
"""Compares three accounts of the moves between states: what the code was seen to do, what the model did, what docs/protocol.md draws.

    check_table.py PROTOCOL.md CODE [MODEL]

CODE and MODEL are files with lines `move END channel|lane FROM TO`, among others. Every move of the code must be drawn, every drawn
one seen, and the model's and the code's must be the same.
"""
import re, sys


def moves_of(path):
    return {tuple(line.split()[1:]) for line in open(path) if line.startswith("move ")}


def drawn_in(path):
    text = open(path).read()
    states = text[text.index("## States") : text.index("## What makes a verdict")]
    moves = set()
    for heading, body in re.findall(r"### (.*?)\n(.*?)(?=\n### |\Z)", states, re.S):
        ends = ["receiver"] if "at the receiver" in heading else ["sender"] if "at the sender" in heading else ["sender", "receiver"]
        of = "lane" if "life of a lane" in heading else "channel"
        for source, target, label in re.findall(r"^ +(\w+) --> (\w+): ?(.*)$", body, re.M):
            for end in ends:
                marks = set(re.findall(r"\(([RS])\)", label))
                if source != target and (not marks or end[0].upper() in marks):
                    moves.add((end, of, source, target))
    # Said once, for both ends.
    if "`failed` can be reached from every other state" in states:
        moves |= {(end, of, source, "failed") for end, of, source, _ in moves if of == "channel" and source != "closed"}
    return moves


def main():
    drawn, code = drawn_in(sys.argv[1]), moves_of(sys.argv[2])
    accounts = [("drawn in docs/protocol.md", drawn, "seen in the code", code)]
    if len(sys.argv) > 3:
        accounts.append(("made by the model", moves_of(sys.argv[3]), "seen in the code", code))
    bad = 0
    for a, of_a, b, of_b in accounts:
        for name, one, other, two in ((a, of_a, b, of_b), (b, of_b, a, of_a)):
            for move in sorted(one - two):
                print(f"{' '.join(move[:2])}: {move[2]} -> {move[3]} is {name}, but not {other}")
                bad += 1
    print(f"{len(code)} moves, {bad} differences")
    return bad != 0 or not code


sys.exit(main())

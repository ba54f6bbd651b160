#!/usr/bin/env python3
"""Compares three accounts of the moves between states: what the code was seen to do, what the model did, what docs/protocol.md draws.

    check_table.py PROTOCOL.md CODE [MODEL]

CODE and MODEL are files with lines `move END channel|lane FROM EVENT TO`, among others. Every move of the code must be drawn, and every
drawn one seen. Every move of the model must be one of the code's; every move of the code one of the model's, or have another there
that stands for it, for a reason given below.
"""
import re, sys

# What the model leaves out: moves of the code, the event that stands for theirs in the model, why.
stand_ins = [
    (r"receiver lane restoring (fault|port_down) failed", "notify", "a lane that is being agreed upon has no QPs in the model: only the peer can give it up"),
    (r"\w+ channel \w+ (tick|fence_failed) failed", "wish", "the model has no deadlines, and every QP can be silenced: instead an end may give up at any moment"),
    (r"sender channel \w+ (fault|port_down|sync|restore) failed", "wish", "the model's sender can always replay: one that cannot gives up"),
    (r"sender channel \w+ tick closed", "goodbye_ack", "the model's control channel is never cut: a peer that leaves after the last acknowledgement is an answer to goodbye"),
    (r"\w+ \w+ \w+ port_down \w+", "fault", "the model has no ports: one that goes down is a fault like any other"),
    (r"\w+ \w+ \w+ tick \w+", "fault", "the model has no timers: what they find out is a fault like any other"),
]


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


def differences(of_a, a, of_b, b):
    """Of two sets of moves, as sentences."""
    for name, one, other, two in ((of_a, a, of_b, b), (of_b, b, of_a, a)):
        for move in sorted(one - two):
            yield f"{' '.join(move[:3])} -> {' '.join(move[3:])} is {name}, but not {other}"


def modelled(code, model):
    """The code's moves as the model would make them, and how many stand-ins that took."""
    used, translated, times = set(), set(), 0
    for move in code:
        words = " ".join(move)
        rule = next((r for r in stand_ins if re.fullmatch(r[0], words)), None) if move not in model else None
        if rule:
            used.add(rule)
            times += 1
            move = (*move[:3], rule[1], move[4])
        translated.add(move)
    for rule in stand_ins:
        if rule not in used:
            yield f"nothing needs the reason any more: {rule[2]}"
    yield from differences("seen in the code", translated, "made by the model", model)
    print(f"{len(code)} moves of the code with their events, {len(model)} of the model; for {times} another stands there")


def main():
    drawn, code = drawn_in(sys.argv[1]), moves_of(sys.argv[2])
    bad = list(differences("drawn in docs/protocol.md", drawn, "seen in the code", {(e, o, a, b) for e, o, a, _, b in code}))
    if len(sys.argv) > 3:
        bad += modelled(code, moves_of(sys.argv[3]))
    print(*bad, f"{len(drawn)} moves drawn, {len(bad)} differences", sep="\n")
    return bool(bad) or not code


sys.exit(main())

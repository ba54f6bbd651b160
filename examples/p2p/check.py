"""Runs p2p, named by the argument (and vccl-fabric, by the next), as a person would: transfers with faults, wrong input, full disk, killed peers."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

program = os.path.abspath(sys.argv[1])
folder = pathlib.Path(tempfile.mkdtemp(prefix="p2p-check-"))
fabric = f"p2p-check-{os.getpid()}"
common = ["--results", str(folder), "--fabric", fabric]


def run(*words, status=0):
    """The last line's counts, or its reason, after a run that must end with this status."""
    done = subprocess.run([program, *common, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
    assert done.returncode == status, f"{words}: status {done.returncode}, wanted {status}\n{done.stdout}"
    last = done.stdout.rstrip("\n").rsplit("\n", 1)[-1]
    if status != 2 and "--help" not in words:
        assert last.startswith("RESULT ok " if status == 0 else "RESULT failed "), f"{words}: {done.stdout}"
    return {k: v for k, v in re.findall(r'(\w+)=("[^"]*"|\S+)', last)} if status == 0 else done.stdout


def whole(result):
    assert result["lost"] == result["duplicated"] == result["corrupted"] == "0", result


def children(pid):
    """A's and B's process, of a run that plays both."""
    found = {}
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((p / "stat").read_text().rsplit(") ", 1)[1].split()[1])
            words = (p / "cmdline").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if parent == pid and b"--started" in words:
            found[words[words.index(b"--started") + 2].decode()] = int(p.name)
    return found


def a_port_dies_and_returns():
    result = run("--size", "64MiB")
    whole(result)
    assert result["bytes"] == str(64 << 20) and result["chunks"] == "64" and int(result["failovers"]) >= 1, result
    words = [t.text for t in xml.parse(folder / "p2p.svg").getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert "64 MiB from A to B" in words and "down A.nic0.p0" in words, words
    events = json.loads((folder / "p2p-trace.json").read_text())["traceEvents"]
    assert sum(e["ph"] == "X" for e in events) == 128, "64 chunks at each end"


def files_arrive_unchanged():
    for size, chunk in ((0, "1MiB"), (1, "1MiB"), (3_000_001, "12345"), (1 << 20, "1MiB")):
        sent, got = folder / "sent", folder / "got"
        sent.write_bytes(os.urandom(size))
        whole(run("--file", str(sent), "--output", str(got), "--chunk", chunk))
        assert got.read_bytes() == sent.read_bytes(), size


def what_was_there_stays_until_all_is_well():
    kept = os.urandom(3_000_000)
    mine, link, pipe = folder / "mine", folder / "link", folder / "pipe"
    mine.write_bytes(kept)
    link.symlink_to(mine)
    for words in (["--first-lane", "7"], ["--fabric", "no such name"], ["--fail", "at=50% run exit 3"]):
        run("--output", str(mine), "--size", "1MiB", *words, status=1)
        assert mine.read_bytes() == kept, words
    for output in (mine, link):  # the file that is read
        whole(run("--file", str(mine), "--output", str(output), "--fail", "none"))
        assert mine.read_bytes() == kept and link.is_symlink(), output
    picture = (folder / "p2p.svg").read_bytes()
    assert run("--file", str(folder / "p2p.svg"), "--fail", "none")["bytes"] == str(len(picture))
    assert not list(folder.glob("*.part"))
    os.mkfifo(pipe)
    for flag in ("--file", "--output"):
        assert str(pipe) in run(flag, str(pipe), "--size", "1MiB", status=1), flag


def no_ok_that_nobody_can_read():
    with open("/dev/full", "w") as full:
        done = subprocess.run([program, *common, "--size", "1MiB", "--fail", "none"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
    assert done.returncode == 1 and "standard output" in done.stderr, done


def backup_and_everything_lost():
    result = run("--size", "48MiB", "--fail", "at=20% down A.nic0.p0; at=40% down B.nic0.p1; at=60% flap A 50ms 100ms 3x; at=80% up B.nic0.p1; at=80% up A.nic0.p0")
    whole(result)
    assert int(result["failovers"]) >= 2, result


def a_script_runs_commands():
    mark = folder / "mark"
    whole(run("--size", "16MiB", "--fail", f"at=50% run echo $((6 * 7)) > {mark}"))
    assert mark.read_text() == "42\n"


def everything_over_the_backup():
    result = run("--size", "16MiB", "--fail", "none", "--first-lane", "1")
    whole(result)
    assert result["failovers"] == "0", result


def mistakes_are_explained():
    for words, status, said in ((["--backend", "fax"], 2, "fax"), (["--fail", "at=40 down x"], 2, "at=NUMBER%"), (["--role", "A"], 2, "--connect"),
                                (["--rate", "fast"], 2, "400MB/s"), (["--file", "/no/such/file"], 1, "/no/such/file"),
                                (["--output", "/no/such/folder/x", "--size", "1MiB"], 1, "/no/such/folder/x"),
                                (["--results", "/proc/no", "--size", "1MiB"], 1, "--results"), (["--devices", "mlx5_"], 2, "--backend ibv"), (["--backend", "ibv", "--rate", "1MB/s"], 2, "--rate"),
                                (["--fail", "at=10% run exit 3", "--size", "8MiB"], 1, "exit 3"), (["--first-lane", "7", "--size", "1MiB"], 1, "no such port"), (["--fabric", "a b"], 1, "64 letters"),
                                (["--port", "A.nic0.p1"], 2, "--port: names a port of one role; it needs --role A or --role B"),
                                (["--role", "A", "--connect", "localhost"], 2, "HOST:PORT"), (["--role", "B", "--listen", "localhost:"], 2, "HOST:PORT"),
                                (["--role", "A", "--connect", "localhost:99999"], 2, "99999 is no port"), (["--role", "B", "--listen", ":65536"], 2, "65536 is no port"),
                                (["--role", "A", "--connect", "localhost:0"], 2, "0 is no port to connect to"),
                                (["--size", "18446744073709551615"], 1, "--chunk"), (["--output", "/dev/full", "--size", "8MiB"], 1, "No space left")):
        text = run(*words, status=status)
        assert said in text, (words, text)
    for script, said in (("at=10% dwn A.nic0.p0", "dwn"), ("at=90% down A.nic9.p0", "A.nic0.p0 A.nic0.p1"), ("at=90% switch-down rail9", "rail0 rail1"), ("at=90% loss A", "'loss' needs more words")):
        text = run("--fail", script, "--size", "64GiB", status=1)  # found out before anything is sent
        assert said in text and " sends " not in text, (script, text)
    assert "Exit status" in subprocess.run([program, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout


def a_killed_role_is_noticed():
    for who in "AB":
        p = subprocess.Popen([program, *common, "--size", "8GiB", "--rate", "50MB/s"], stdout=subprocess.PIPE, text=True)
        try:
            for line in p.stdout:
                if " connected over " in line and f" {who} " in line:
                    break
            os.kill(children(p.pid)[who], signal.SIGKILL)
            rest = p.communicate(timeout=60)[0]
        finally:
            p.kill()
        assert p.returncode == 1 and f"{who} was killed" in rest.rstrip("\n").rsplit("\n", 1)[-1], rest
        assert not list(folder.glob("*.part"))


def broken_by_hand():
    tool = [word for word in sys.argv[2:3] if word]
    p = subprocess.Popen([program, *common, "--fail", "none", "--size", "96MiB", "--rate", "50MB/s"], stdout=subprocess.PIPE, text=True)
    try:
        said = ""
        for line in p.stdout:
            said += line
            if "vccl-fabric -f" in line:
                words = line.split("vccl-fabric ", 1)[1].split()
                assert words == ["-f", fabric, "down", "A.nic0.p0"], line
                for verb in ("down", "up") if tool else ():
                    subprocess.run([*tool, "-f", fabric, verb, "A.nic0.p0"], check=True, stdout=subprocess.DEVNULL)
        assert p.wait(60) == 0, said
    finally:
        p.kill()
    assert not tool or int(re.search(r"failovers=(\d+)", said).group(1)) >= 1, said


def the_tool_names_what_there_is():
    tool = [word for word in sys.argv[2:3] if word]
    if not tool:
        return
    p = subprocess.Popen([program, *common, "--fail", "none", "--size", "8GiB", "--rate", "50MB/s"], stdout=subprocess.PIPE, text=True)
    try:
        while "vccl-fabric -f" not in p.stdout.readline():
            pass
        for words, status, said in ((["switch-down", "rail9"], 1, "rails: rail0 rail1"), (["down", "A.nic9.p0"], 1, "ports: A.nic0.p0 A.nic0.p1"), (["dwn"], 2, "--help")):
            done = subprocess.run([*tool, "-f", fabric, *words], stderr=subprocess.PIPE, text=True)
            assert done.returncode == status and said in done.stderr, done.stderr
        with open("/dev/full", "w") as full:
            assert subprocess.run([*tool, "-f", fabric, "status"], stdout=full, stderr=subprocess.DEVNULL).returncode == 1
    finally:
        for pid in children(p.pid).values():
            os.kill(pid, signal.SIGKILL)
        p.kill()
        p.wait()


def the_sender_says_what_it_waits_for():
    with socket.socket() as s:  # a port that nobody has
        s.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % s.getsockname()[1]
    with subprocess.Popen([program, *common, "--role", "A", "--connect", address, "--size", "4MiB"], stdout=subprocess.PIPE, text=True) as a:
        said = a.stdout.readline()
        assert "for B; start it with: p2p --role B --listen :" + address.rsplit(":", 1)[1] in said, said
        b = subprocess.run([program, *common, "--role", "B", "--listen", address, "--fail", "none"], stdout=subprocess.PIPE, text=True, timeout=100)
        a.communicate(timeout=60)
        assert a.returncode == 0 and b.returncode == 0, said + b.stdout


def two_terminals():
    with subprocess.Popen([program, *common, "--role", "B", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as b:
        first = b.stdout.readline()
        address = re.search(r"127\.0\.0\.1:\d+", first).group(0)
        a = subprocess.run([program, *common, "--role", "A", "--connect", address, "--size", "16MiB"], stdout=subprocess.PIPE, text=True, timeout=100)
        b_said = b.communicate(timeout=60)[0]
        assert a.returncode == 0 and b.returncode == 0, a.stdout + b_said
        assert a.stdout.rstrip().rsplit("\n", 1)[-1] == b_said.rstrip().rsplit("\n", 1)[-1]


def a_role_has_its_own_ports():
    with subprocess.Popen([program, *common, "--role", "B", "--listen", "127.0.0.1:0", "--fail", "none"], stdout=subprocess.PIPE, text=True) as b:
        address = re.search(r"127\.0\.0\.1:\d+", b.stdout.readline()).group(0)
        said = run("--role", "A", "--connect", address, "--port", "B.nic0.p0", status=1)
        assert "no port 'B.nic0.p0' here; there are: A.nic0.p0 A.nic0.p1" in said, said
        b_said = b.communicate(timeout=60)[0]
        assert b.returncode == 1 and "the other end says: A: no port" in b_said, b_said


def patience_is_for_all_of_the_set_up():
    def role(who, flag, address, *more):
        words = [program, *common, "--role", who, flag, address, "--patience", "1", *more]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def loses_it(p, what):
        said = p.communicate(timeout=100)[0]
        assert p.returncode == 1 and "(--patience)" in said and what in said, said

    def address_of(p):
        return re.search(r"127\.0\.0\.1:\d+", p.stdout.readline()).group(0)

    def listener():
        s = socket.create_server(("127.0.0.1", 0), backlog=1)
        return s, "127.0.0.1:%d" % s.getsockname()[1]

    def message(s):
        head = s.recv(8, socket.MSG_WAITALL)
        return head[4] if head else 0, head + (s.recv(int.from_bytes(head[:4], "little"), socket.MSG_WAITALL) if head else b"")

    # Somebody connects, or is connected to, and says nothing.
    b = role("B", "--listen", "127.0.0.1:0")
    host, port = address_of(b).split(":")
    with socket.create_connection((host, int(port))):
        loses_it(b, "the other role did not go on within 1.0 s")
    s, address = listener()
    with s:
        a = role("A", "--connect", address)
        with s.accept()[0]:
            loses_it(a, "the other role did not go on within 1.0 s")
        # Nobody takes the connection itself: the queue is full.
        host, port = s.getsockname()
        full = [socket.socket(), socket.socket(), socket.socket()]
        for c in full:
            c.setblocking(False)
            c.connect_ex((host, port))
        a = role("A", "--connect", address)
        said = a.communicate(timeout=100)[0]
        assert a.returncode == 1 and "cannot connect to " + address in said, said
        for c in full:
            c.close()
    # A hears nothing of B's ports, so B, who knows A's, connects in vain.
    b = role("B", "--listen", "127.0.0.1:0")
    host, port = address_of(b).split(":")
    s, address = listener()
    with s, socket.create_connection((host, int(port))) as to_b:
        a = role("A", "--connect", address)
        with s.accept()[0] as to_a:
            to_b.sendall(message(to_a)[1])
            to_a.sendall(message(to_b)[1])
            to_b.sendall(message(to_a)[1])
            loses_it(a, "within 1.0 s")
            loses_it(b, "within 1.0 s")  # "B cannot connect", if it has come so far


for test in (a_port_dies_and_returns, files_arrive_unchanged, what_was_there_stays_until_all_is_well, no_ok_that_nobody_can_read, backup_and_everything_lost, a_script_runs_commands, everything_over_the_backup, mistakes_are_explained,
             a_killed_role_is_noticed, broken_by_hand, the_tool_names_what_there_is, the_sender_says_what_it_waits_for, two_terminals, a_role_has_its_own_ports, patience_is_for_all_of_the_set_up):
    began = time.monotonic()
    test()
    print(f"{test.__name__.replace('_', ' ')}: {time.monotonic() - began:.1f} s", flush=True)

"""Runs the examples of collectives in the folder named by the argument as a person would: under launchers, and with all kinds of mistakes."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

programs = pathlib.Path(sys.argv[1])
folder = pathlib.Path(tempfile.mkdtemp(prefix="coll-check-"))
fabric = f"coll-check-{os.getpid()}"
quick = ["-n", "1", "--fabric", fabric]
small = [*quick, "-b", "8", "-e", "8", "--results", str(folder)]
launcher = re.compile("VCCL_|OMPI_|PMI|SLURM_|MASTER_|(LOCAL_)?(RANK|WORLD_SIZE)")
environment = {k: v for k, v in os.environ.items() if not launcher.match(k)}


def start(name, *words, **variables):
    return subprocess.Popen([programs / name, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**environment, **variables})


def end(p, status, *says):
    said = p.communicate(timeout=60)[0]
    assert p.returncode == status, f"{p.args}: status {p.returncode}, wanted {status}\n{said}"
    for words in says:
        assert words in said, f"{p.args} does not say {words!r}:\n{said}"
    return said


def run(status, says, name, *words, **variables):
    return end(start(name, *words, **variables), status, *says)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def torchrun(rank, ranks, **more):
    return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
            "VCCL_SECRET": "the secret of this job", **more}


def mistakes_are_told_before_anything_runs():
    file = folder / "file"
    file.write_text("")
    for bad in (file, "/proc/nowhere", folder / "no" / "such"):
        said = run(2, ["--results: cannot write", str(bad)], "all_reduce", *quick, "--results", str(bad))
        assert "#" not in said, said
    run(2, ["--ranks", "64"], "all_reduce", *small, "--ranks", "65")
    run(1, ["room for 64 ranks, not 65"], "all_reduce", *small, **torchrun(1, 65))
    run(2, ["-b"], "moe", "-b", "8")
    run(2, ["--op"], "all_gather", "--op", "max")
    run(2, ["--rings"], "all_to_all", "--rings", "2")
    run(1, ["letters, digits"], "all_reduce", *small, "--fabric", "a name")
    for name, bad in (("device_moe", (["x"], ["0"], ["17"], ["2x"], ["2", "-1"], ["2", "2", "2"], ["--host-rings"])),
                      ("device_p2p", (["9"], ["1x"], ["1", "33"], ["1", "8", "64KiB"], ["1", "8", "64", "1"])),
                      ("device_outage", (["1s"], ["nan"], ["0.1"], ["1", "1"])),
                      ("device_dispatch", (["33"], ["1", "-1"], ["1", "2k"]))):
        run(0, [f"usage: {name} "], name, "--help")
        for words in bad:
            run(2, [f"usage: {name} ", "cannot take"], name, *words)


def nonsense_of_a_launcher_is_refused():
    run(1, ['MASTER_PORT', '"29500x"'], "all_reduce", *small, **torchrun(0, 2, MASTER_PORT="29500x"))
    run(1, ["VCCL_SECRET"], "moe", *quick, **torchrun(0, 2, VCCL_SECRET="short"))
    run(2, ["start it without"], "device_moe", "2", "0", **torchrun(0, 2))
    run(2, ["start it without"], "device_moe", "2", "0", OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="4")


def ranks_that_do_not_meet_say_why():
    port = free_port()
    other = start("all_reduce", *small, **torchrun(1, 2, VCCL_PORT=port, VCCL_SECRET="that of another job"))
    root = start("all_reduce", *small, "--patience", "1", **torchrun(0, 2, VCCL_PORT=port))
    end(other, 1, f'rank 1 cannot join the job at "127.0.0.1:{port}"', "VCCL_SECRET")
    end(root, 1, f'rank 0 cannot join the job at "127.0.0.1:{port}"', "rank 1 did not come in time")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        where = "127.0.0.1:%d" % s.getsockname()[1]
        run(1, [where, "Address already in use", "VCCL_ROOT or VCCL_PORT"], "moe", *quick, **torchrun(0, 2, VCCL_ROOT=where))


def ranks_that_were_started_differently_say_so():
    for name, words in (("all_reduce", ["-d", "int32"]), ("all_reduce", ["--rings", "2"]), ("all_gather", ["--every"])):
        port = free_port()
        ranks = [start(name, *small, *(words if r else []), **torchrun(r, 2, VCCL_PORT=port)) for r in (0, 1)]
        for r in (1, 0):
            end(ranks[r], 1, "all ranks must be started with the same options", f"rank {1 - r} has", " ".join(words))


def launchers_start_all_of_them():
    port = free_port()
    for name in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "moe"):
        words = quick if name == "moe" else small
        ranks = [start(name, *words, **torchrun(r, 2, MASTER_PORT=str(int(port) - 1))) for r in (0, 1)]
        end(ranks[1], 0)
        end(ranks[0], 0, f"RESULT ok op={name} ranks=2 wrong=0")
    if shutil.which("mpirun"):
        mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", "-x", "VCCL_SECRET", "-x", "VCCL_PORT"]
        done = subprocess.run([*mpirun, programs / "all_reduce", *small], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                              env={**environment, "VCCL_SECRET": "the secret of this job", "VCCL_PORT": port})
        assert done.returncode == 0 and "RESULT ok op=all_reduce ranks=2 wrong=0" in done.stdout, done.stdout


def a_killed_job_leaves_nothing_to_the_next_one():
    file = pathlib.Path("/dev/shm/vccl-fabric." + fabric)
    job = start("all_reduce", *small, "-n", "1000000")
    try:
        while "# all_reduce" not in (line := job.stdout.readline()):
            assert line, "no job"
        run(1, ["a job that still runs has the software fabric", fabric, "--fabric NAME"], "all_to_all", *small)
        children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        end(job, 1)
    finally:
        job.kill()
    assert file.exists()  # else the next line shows nothing
    run(0, ["RESULT ok"], "all_to_all", *small)
    assert not file.exists()


def too_little_shared_memory_is_told():
    if os.getuid() != 0 or subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        print("too_little_shared_memory_is_told: skipped, it needs a /dev/shm of its own")
        return
    # Not even for the fabric; not for any connection; not for all.
    for size, name in (("4k", "all_reduce"), ("1m", "all_reduce"), ("4m", "all_to_all")):
        p = subprocess.run(["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size={size} none /dev/shm && exec "$@"', "sh", programs / name, *small],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, env=environment)
        assert p.returncode == 1 and re.search(r"rank 0: .* MiB of /dev/shm wanted, .* MiB free; .*--shm-size", p.stdout), f"{size}:\n{p.stdout}"


for test in (mistakes_are_told_before_anything_runs, nonsense_of_a_launcher_is_refused, ranks_that_do_not_meet_say_why,
             ranks_that_were_started_differently_say_so, launchers_start_all_of_them, a_killed_job_leaves_nothing_to_the_next_one, too_little_shared_memory_is_told):
    test()
    print(test.__name__)
shutil.rmtree(folder)

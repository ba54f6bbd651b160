"""One rank of `run`: job.py PART ARGUMENTS, an ordinary PyTorch process that knows nothing of the network below NCCL."""
import ctypes
import datetime
import hashlib
import json
import os
import random
import signal
import sys
import time

import torch
import torch.distributed as dist

part, arguments = sys.argv[1], json.loads(sys.argv[2])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
gpu = torch.device("cuda", 0)


def say(*words):
    if rank == 0:
        print(*words, flush=True)


def pattern(n, seed, of):
    """Small whole numbers, so that sums are exact in any order; each rank can make every rank's."""
    return ((torch.arange(n, device=gpu) * 31 + seed * 7 + of * 13) % 61).to(torch.float32)


def expect(found, wanted, what):
    if not torch.equal(found, wanted):
        where = (found != wanted).nonzero()[0].item()
        raise SystemExit(f"WRONG {what}: rank {rank}, element {where} is {found[where].item()}, not {wanted[where].item()}")


def all_reduce(n, seed):
    x = pattern(n, seed, rank)
    dist.all_reduce(x)
    expect(x, sum(pattern(n, seed, r) for r in range(size)), "all_reduce")


def all_gather(n, seed):
    out = torch.empty(n * size, device=gpu)
    dist.all_gather_into_tensor(out, pattern(n, seed, rank))
    expect(out, torch.cat([pattern(n, seed, r) for r in range(size)]), "all_gather")


def reduce_scatter(n, seed):
    out = torch.empty(n, device=gpu)
    dist.reduce_scatter_tensor(out, torch.cat([pattern(n, seed + piece, rank) for piece in range(size)]))
    expect(out, sum(pattern(n, seed + rank, r) for r in range(size)), "reduce_scatter")


def all_to_all(n, seed):
    out = torch.empty(n * size, device=gpu)
    dist.all_to_all_single(out, torch.cat([pattern(n, seed + to, rank) for to in range(size)]))
    expect(out, torch.cat([pattern(n, seed + rank, r) for r in range(size)]), "all_to_all")


def go_on(until):
    """Rank 0's clock decides for all."""
    more = torch.tensor(int(time.monotonic() < until), device=gpu)
    dist.broadcast(more, 0)
    return bool(more.item())


def check(schedules, seed, largest, seconds):
    draw = random.Random(seed)
    done, begin = 0, time.monotonic()
    for schedule in range(schedules + 1):
        if schedule:  # the first round is without faults
            say("FAULTS on", seed * 1000 + schedule)
        until = time.monotonic() + seconds
        more = True
        while more:
            for collective in (all_reduce, all_gather, reduce_scatter, all_to_all):
                collective(draw.choice([1, 1000, draw.randrange(1, largest), largest]), draw.randrange(1 << 20))
                done += 1
            more = go_on(until)
        dist.barrier()
        torch.cuda.synchronize()
        if schedule:
            say("FAULTS off")
    say(f"CHECKED {done} collectives, all exact, {time.monotonic() - begin:.1f} s")


def train(steps, seed):
    torch.use_deterministic_algorithms(True)
    for name in ("quiet", "faults"):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(
            torch.nn.Embedding(256, 256),
            *[torch.nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True) for _ in range(4)],
            torch.nn.Linear(256, 256)).to(gpu)
        model = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        text = torch.tensor(list(open(__file__, "rb").read()), device=gpu)
        draw = torch.Generator().manual_seed(seed * 100 + rank)
        losses = []
        if name == "faults":
            say("FAULTS on", seed)
        for _ in range(steps):
            at = torch.randint(len(text) - 65, (16,), generator=draw).tolist()
            batch = torch.stack([text[i:i + 65] for i in at])
            loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        torch.cuda.synchronize()
        if name == "faults":
            say("FAULTS off")
        digest = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()
        every = [None] * size
        dist.all_gather_object(every, digest)
        if len(set(every)) != 1:
            raise SystemExit("WRONG the ranks' weights differ")
        say(f"loss {losses[0].item():.3f} to {losses[-1].item():.3f} in {steps} steps")
        say("WEIGHTS", name, digest)


def figures(largest):
    """A round of all sizes each time that every rank is told so, until "end"."""
    sizes = [n for n in (8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20) if n <= largest]
    tensors = {n: torch.zeros(n // 4, device=gpu) for n in sizes}
    while sys.stdin.readline().strip() == "round":
        for n, x in tensors.items():
            times = 200 if n <= 1 << 16 else 40 if n <= 1 << 22 else 5
            for warming in (True, False):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(max(1, times // 10) if warming else times):
                    dist.all_reduce(x)
                torch.cuda.synchronize()
            say("TIME", n, f"{(time.perf_counter() - begin) / times * 1e6:.2f}")
        say("ROUND")


def endless():
    x = torch.ones(1 << 20, device=gpu)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    say("RUNNING")
    while True:
        dist.all_reduce(x)
        torch.cuda.synchronize()


ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no rank outlives `run`, however that ends
torch.cuda.set_device(gpu)
# A file to meet at, not a port: between looking for a free one and listening on it another process may take it.
dist.init_process_group("nccl", init_method="file://" + os.environ["RENDEZVOUS"], rank=rank, world_size=size,
                        timeout=datetime.timedelta(seconds=120), device_id=gpu)
{"check": check, "train": train, "figures": figures, "endless": endless}[part](**arguments)
dist.destroy_process_group()

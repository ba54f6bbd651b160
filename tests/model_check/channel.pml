/* One channel of vccl: sender, receiver, and what lies between them, for spin.
 *
 * The same rules as include/vccl/channel, with a part a chunk and without timers: what a timer would repeat is repeated when
 * nothing else can happen, or when the network says so (TICKS times). Every move of a channel's or a lane's state is written down,
 * and pan prints them at its end; tests/sim/check_table.py compares them with those of the code and of docs/protocol.md.
 *
 *   LANES, CHUNKS, BUFFERS   sizes; a chunk goes into buffer chunk % BUFFERS
 *   FAULTS    QPs or paths that fail, at any moment          LOSSES   control messages lost
 *   TWICE     control messages that come again, much later   TICKS    repetitions before their time
 *   ENDINGS   1: either end may give up at any moment        DOWN     1: lanes may be down at the start
 *
 * Safety: G1 no late write into a consumed buffer, no chunk twice or out of order; G2 a sync leaves only when no QP that it
 * calls dead can write; G3 the sender's epoch never leads; G7 nothing is acknowledged that was not received; G11 old
 * news changes nothing (it would break one of these). Progress: no end state but closed or failed, no cycle without progress.
 */
#ifndef LANES
#define LANES 2
#endif
#ifndef CHUNKS
#define CHUNKS 2
#endif
#ifndef BUFFERS
#define BUFFERS 1
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef TWICE
#define TWICE 0
#endif
#ifndef TICKS
#define TICKS 0
#endif
#ifndef ENDINGS
#define ENDINGS 0
#endif
#ifndef DOWN
#define DOWN 0
#endif

/* As channel_state and lane_health are numbered in the code. */
#define CONNECTING 0
#define RUNNING    1
#define FENCING    2
#define ANNOUNCING 3
#define SUSPENDED  4
#define FAILED     5
#define CLOSED     6
#define UP         0
#define DEAD       1   /* "failed" */
#define FENCED     2
#define RESTORING  3
#define VERIFYING  4
#define NONE       15

mtype = { hello, hello_ack, notify, notify_ack, sync, sync_ack, restore, restore_ack, probe, probe_ack, goodbye, goodbye_ack, giveup };

/* What an end can be told, as `told` of tests/sim/coverage.hpp is numbered. */
#define HELLO 1
#define HELLO_ACK 2
#define NOTIFY 3
#define NOTIFY_ACK 4
#define SYNC 5
#define SYNC_ACK 6
#define RESTORE 7
#define RESTORE_ACK 8
#define PROBE 11
#define PROBE_ACK 12
#define GOODBYE 13
#define GOODBYE_ACK 14
#define GIVEUP 15
#define FAULT 17
#define FENCE_DONE 20
#define TICK 25
#define WISH 26

c_decl {
    static unsigned char seen_moves[2][2][27][7][7];
    static void print_moves(void) {
        static const char *ends[] = {"sender", "receiver"}, *of[] = {"channel", "lane"};
        static const char *told[] = {"", "hello", "hello_ack", "notify", "notify_ack", "sync", "sync_ack", "restore", "restore_ack",
                                     "restore_nak", "port_back", "probe", "probe_ack", "goodbye", "goodbye_ack", "abort",
                                     "abort_ack", "fault", "port_down", "port_up", "fence_done", "fence_failed", "oob_down",
                                     "oob_up", "arrival", "tick", "wish"};
        static const char *names[2][7] = {{"connecting", "running", "fencing", "announcing", "suspended", "failed", "closed"},
                                          {"up", "failed", "fenced", "restoring", "verifying", "", ""}};
        int e, o, k, a, b;
        for (e = 0; e < 2; e++) for (o = 0; o < 2; o++) for (k = 0; k < 27; k++) for (a = 0; a < 7; a++) for (b = 0; b < 7; b++)
            if (seen_moves[e][o][k][a][b]) printf("move %s %s %s %s %s\n", ends[e], of[o], names[o][a], told[k], names[o][b]);
    }
    static void moved(int e, int o, int k, int a, int b) {
        static int once;
        if (!once) { once = 1; atexit(print_moves); }
        if (a != b) seen_moves[e][o][k][a][b] = 1;
    }
}

byte s_state, r_state;
byte because, was, was_lane[LANES];           /* while an end looks at something: what it is, and how things stood before; else 0 */
byte s_epoch = 1, r_epoch = 1;
byte s_health[LANES], r_health[LANES];
byte s_gen[LANES] = 1, r_gen[LANES] = 1;
byte s_qp[LANES] = 1, r_qp[LANES] = 1;      /* the generation that the QPs take packets of; 0: none */
bit s_err[LANES], r_err[LANES];              /* an error that the end has not looked at yet */

/* the receiver's ledger */
#define WAITING  1
#define GRANTED  2
#define RECEIVED 3
byte r_phase[CHUNKS], r_lane[CHUNKS], r_cgen[CHUNKS], r_dead[LANES];
byte r_head, r_active;
byte owner[BUFFERS];                         /* chunk + 1 that may be written there; 0: consumed */

/* the sender's FIFO and its ring of grants */
byte s_acked, s_plane[CHUNKS], s_pgen[CHUNKS];
bit s_posted[CHUNKS];
byte g_lane[CHUNKS] = NONE, g_gen[CHUNKS], g_epoch[CHUNKS];
bit s_notice[LANES], s_pending, s_parted;
byte p_epoch, p_lane, p_arrived, p_dead[LANES];

byte faults = FAULTS, losses = LOSSES, twice = TWICE, ticks = TICKS, endings = ENDINGS;
bit tick_s, tick_r;

chan data[LANES] = [CHUNKS] of { byte, byte };                   /* chunk, generation */
chan cq[LANES] = [CHUNKS] of { byte, byte };                     /* what has arrived and was not polled */
chan grant[LANES] = [CHUNKS + 1] of { byte, byte, byte, byte };  /* chunk or NONE, generation, epoch, acked */
chan to_s = [4] of { mtype, byte, byte, byte, byte, byte, byte, byte, byte };  /* kind, epoch, lane, gen, head, arrived, dead generations */
chan to_r = [4] of { mtype, byte, byte, byte };                  /* kind, epoch, lane, gen */
#if TWICE
chan old_s = [1] of { mtype, byte, byte, byte, byte, byte, byte, byte, byte };
chan old_r = [1] of { mtype, byte, byte, byte };
#endif

#if LANES > 2
#define DEAD2 r_dead[2]
#else
#define DEAD2 0
#endif

/* An end looks at something; it has looked, and what that changed is written down. */
#if LANES == 1
#define KEEP(h) was_lane[0] = h[0]
#define DROP    was_lane[0] = 0
#elif LANES == 2
#define KEEP(h) was_lane[0] = h[0]; was_lane[1] = h[1]
#define DROP    was_lane[0] = 0; was_lane[1] = 0
#else
#define KEEP(h) was_lane[0] = h[0]; was_lane[1] = h[1]; was_lane[2] = h[2]
#define DROP    was_lane[0] = 0; was_lane[1] = 0; was_lane[2] = 0
#endif
#define S_LOOKS(k) d_step { because = k; was = s_state; KEEP(s_health) }
#define R_LOOKS(k) d_step { because = k; was = r_state; KEEP(r_health) }
#define S_LOOKED d_step { c_code { { int i_; moved(0, 0, now.because, now.was, now.s_state); \
    for (i_ = 0; i_ < LANES; i_++) moved(0, 1, now.because, now.was_lane[i_], now.s_health[i_]); } }; because = 0; was = 0; DROP }
#define R_LOOKED d_step { c_code { { int i_; moved(1, 0, now.because, now.was, now.r_state); \
    for (i_ = 0; i_ < LANES; i_++) moved(1, 1, now.because, now.was_lane[i_], now.r_health[i_]); } }; because = 0; was = 0; DROP }

#define OVER(st) (st == FAILED || st == CLOSED)
#if LANES == 1
#define ANY(h, x) (h[0] == x)
#elif LANES == 2
#define ANY(h, x) (h[0] == x || h[1] == x)
#else
#define ANY(h, x) (h[0] == x || h[1] == x || h[2] == x)
#endif

/* Which chunks have arrived, a bit each. */
#if CHUNKS == 1
#define ARRIVED (r_phase[0] == RECEIVED)
#elif CHUNKS == 2
#define ARRIVED ((r_phase[0] == RECEIVED) | (r_phase[1] == RECEIVED) << 1)
#else
#define ARRIVED ((r_phase[0] == RECEIVED) | (r_phase[1] == RECEIVED) << 1 | (r_phase[2] == RECEIVED) << 2)
#endif

/* A control message goes by two ways, each of which may lose it: it is lost if both do. A full channel loses, too. The channels are
 * kept in order by content, since nobody may rely on the order of sending; what a kind does not use is 0. What comes again, at any
 * time later, is put aside. */
#if TWICE
#define ASIDE(old, m) if :: twice > 0 && nfull(old) -> twice--; old!m :: skip fi
#else
#define ASIDE(old, m) skip
#endif
#define BARE(k, l, g) k, 0, l, g, 0, 0, 0, 0, 0
#define WHOLE         sync, r_epoch, r_active, 0, r_head, ARRIVED, r_dead[0], r_dead[1 % LANES], DEAD2
#define SHORT(k, e, l, g) k, e, l, g
inline tell_s(k, l, g) {
    if
    :: nfull(to_s) -> to_s!!BARE(k, l, g); ASIDE(old_s, BARE(k, l, g))
    :: losses > 0 -> losses--
    :: full(to_s) -> skip
    fi
}
inline tell_sync() {
    if
    :: nfull(to_s) -> to_s!!WHOLE; ASIDE(old_s, WHOLE)
    :: losses > 0 -> losses--
    :: full(to_s) -> skip
    fi
}
inline tell_r(k, e, l, g) {
    if
    :: nfull(to_r) -> to_r!!SHORT(k, e, l, g); ASIDE(old_r, SHORT(k, e, l, g))
    :: losses > 0 -> losses--
    :: full(to_r) -> skip
    fi
}

#define MESSAGE e, l, g, h, a, d0, d1, d2
#define FORGET  e = 0; l = 0; g = 0; h = 0; a = 0; d0 = 0; d1 = 0; d2 = 0
#define NEXT_IS(c) (s_acked <= c && !s_posted[c] && (c == 0 || s_acked == c || s_posted[c - 1 + (c == 0)]))
#define NOTICING(l) (s_notice[l] && (l == 0 || !s_notice[0]))

/* ---- sender ---- */

inline s_condemn(l) {
    if
    :: s_health[l] == UP || s_health[l] == VERIFYING -> s_health[l] = DEAD; s_qp[l] = 0
    :: else
    fi
}
inline s_follow() {
    /* What was posted on a dead generation and has not arrived is posted again. */
    i = s_acked;
    do
    :: i < CHUNKS ->
        if
        :: s_posted[i] && s_pgen[i] <= p_dead[s_plane[i]] && !(p_arrived >> i & 1) -> s_posted[i] = 0
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0;
    s_pending = 0;
    s_epoch = p_epoch;
    assert(s_epoch <= r_epoch);                                             /* G3 */
    if
    :: ANY(s_health, UP) -> s_state = RUNNING
    :: else -> s_state = SUSPENDED
    fi;
    tell_r(sync_ack, s_epoch, p_lane, 0);
    if
    :: s_health[p_lane] != UP -> s_notice[p_lane] = 1; tell_r(notify, 0, p_lane, s_gen[p_lane])
    :: else
    fi;
    p_epoch = 0; p_lane = 0; p_arrived = 0; p_dead[0] = 0; p_dead[1 % LANES] = 0; p_dead[LANES - 1] = 0
}
inline s_begin() {
    s_state = RUNNING;
    i = 0;
    do
    :: i < LANES ->
        if
        :: s_health[i] != UP -> s_notice[i] = 1
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0;
    if
    :: !ANY(s_health, UP) -> s_state = SUSPENDED
    :: else
    fi
}
inline s_end(x) {
    s_state = x;
    s_qp[0] = 0; s_qp[1 % LANES] = 0; s_qp[LANES - 1] = 0
}
inline s_acknowledge(upto) {
    if
    :: upto > s_acked ->
        assert(upto <= r_head);                                             /* G7 */
        do                                                                  /* what is known of them is of no use any more */
        :: s_acked < upto ->
            s_plane[s_acked] = 0; s_pgen[s_acked] = 0; g_lane[s_acked] = NONE; g_gen[s_acked] = 0; g_epoch[s_acked] = 0;
            s_acked++
        :: else -> break
        od
    :: else
    fi
}

proctype sender() {
    byte l, g, e, h, a, i, d0, d1, d2;
    atomic { tell_r(hello, 0, 0, 0) }
    do
    :: OVER(s_state) && OVER(r_state) -> break
    /* messages */
    :: atomic { to_s??hello_ack, MESSAGE -> S_LOOKS(HELLO_ACK);
        if :: s_state == CONNECTING -> s_begin() :: else fi; S_LOOKED; FORGET }
    :: atomic { to_s??notify_ack, MESSAGE -> S_LOOKS(NOTIFY_ACK);
        if :: g == s_gen[l] -> s_notice[l] = 0 :: else fi; S_LOOKED; FORGET }
    :: atomic { to_s??sync, MESSAGE -> S_LOOKS(SYNC);
        if
        :: OVER(s_state) -> skip
        :: else ->
            if :: s_state == CONNECTING -> s_begin() :: else fi;
            if
            :: e < s_epoch || (s_pending && e <= p_epoch) -> skip           /* G11 */
            :: e == s_epoch ->
                assert(s_state != SUSPENDED || !ANY(s_health, UP));
                tell_r(sync_ack, e, l, 0)
            :: else ->
                s_acknowledge(h);
                s_pending = 1; p_epoch = e; p_lane = l; p_arrived = a;
                p_dead[0] = d0;
#if LANES > 1
                p_dead[1] = d1;
#endif
#if LANES > 2
                p_dead[2] = d2;
#endif
                i = 0;
                do
                :: i < LANES ->
                    if :: s_gen[i] <= p_dead[i] -> s_condemn(i); s_notice[i] = 0 :: else fi;
                    i++
                :: else -> break
                od;
                i = 0;
                s_state = FENCING;
                if :: !ANY(s_health, DEAD) -> s_follow() :: else fi
            fi
        fi; S_LOOKED; FORGET }
    :: atomic { to_s??restore, MESSAGE -> S_LOOKS(RESTORE);
        if
        :: OVER(s_state) || g < s_gen[l] -> skip                            /* G11 */
        :: !OVER(s_state) && g == s_gen[l] ->
            if :: s_health[l] == VERIFYING -> tell_r(restore_ack, 0, l, g) :: else fi
        :: !OVER(s_state) && g > s_gen[l] ->
            s_condemn(l);
            if
            :: s_health[l] == FENCED ->
                s_gen[l] = g; s_qp[l] = g; s_err[l] = 0; s_notice[l] = 0; s_health[l] = VERIFYING;
                tell_r(restore_ack, 0, l, g)
            :: else
            fi
        fi; S_LOOKED; FORGET }
    :: atomic { to_s??probe, MESSAGE -> S_LOOKS(PROBE);
        if                                                                  /* it comes on the lane itself */
        :: !OVER(s_state) && s_qp[l] == g && r_qp[l] == g ->
            if
            :: s_health[l] == VERIFYING ->
                s_health[l] = UP;
                if :: s_state == SUSPENDED -> s_state = RUNNING :: else fi
            :: else
            fi;
            tell_r(probe_ack, 0, l, g)
        :: else
        fi; S_LOOKED; FORGET }
    :: atomic { to_s??goodbye_ack, MESSAGE -> S_LOOKS(GOODBYE_ACK);
        if :: !OVER(s_state) -> s_end(CLOSED) :: else fi; S_LOOKED; FORGET }
    :: atomic { to_s??giveup, MESSAGE -> S_LOOKS(GIVEUP);
        if :: !OVER(s_state) -> s_end(FAILED) :: else fi; S_LOOKED; FORGET }

    /* the next chunk that wants to be posted */
#define POST(c) \
    :: atomic { !OVER(s_state) && NEXT_IS(c) && g_lane[c] != NONE && s_health[g_lane[c]] == UP && \
                s_gen[g_lane[c]] == g_gen[c] && g_epoch[c] <= s_epoch && nfull(data[g_lane[c]]) -> \
        data[g_lane[c]]!c, g_gen[c]; \
        s_posted[c] = 1; s_plane[c] = g_lane[c]; s_pgen[c] = g_gen[c] }
    POST(0)
#if CHUNKS > 1
    POST(1)
#endif
#if CHUNKS > 2
    POST(2)
#endif

    /* own errors, fences, repetitions; a notice to one who is over would only keep the goodbye from its turn */
#define OF_LANE(l) \
    :: atomic { s_err[l] && !OVER(s_state) -> \
        S_LOOKS(FAULT); s_err[l] = 0; \
        if \
        :: s_health[l] == UP || s_health[l] == VERIFYING -> \
            s_condemn(l); \
            s_notice[l] = 1; \
            if :: s_state != CONNECTING && s_state != SUSPENDED && !ANY(s_health, UP) -> s_state = SUSPENDED :: else fi; \
            tell_r(notify, 0, l, s_gen[l]) \
        :: else \
        fi; S_LOOKED } \
    :: atomic { s_health[l] == DEAD && !OVER(s_state) -> \
        S_LOOKS(FENCE_DONE); s_health[l] = FENCED; \
        if :: s_pending && !ANY(s_health, DEAD) -> s_follow() :: else fi; S_LOOKED } \
    :: atomic { (timeout || tick_s) && !OVER(s_state) && s_state != CONNECTING && NOTICING(l) && !OVER(r_state) -> \
        tick_s = 0; tell_r(notify, 0, l, s_gen[l]) }
    OF_LANE(0)
#if LANES > 1
    OF_LANE(1)
#endif
#if LANES > 2
    OF_LANE(2)
#endif
    :: atomic { (timeout || tick_s) && s_state == CONNECTING -> tick_s = 0; tell_r(hello, 0, 0, 0) }
    :: atomic { (timeout || tick_s || !s_parted) && !OVER(s_state) && s_state != CONNECTING && s_acked == CHUNKS ->
        tick_s = 0; s_parted = 1; tell_r(goodbye, 0, 0, 0) }
    :: atomic { endings > 0 && !OVER(s_state) -> S_LOOKS(WISH); endings--; s_end(FAILED); S_LOOKED; tell_r(giveup, 0, 0, 0) }
    :: atomic { timeout && s_state == FAILED && !OVER(r_state) -> tell_r(giveup, 0, 0, 0) }
    od
}

/* ---- receiver ---- */

#define ON(c, l) (r_phase[c] == GRANTED && r_lane[c] == l)
#if CHUNKS == 1
#define GRANTED_ON(l) ON(0, l)
#elif CHUNKS == 2
#define GRANTED_ON(l) (ON(0, l) || ON(1, l))
#else
#define GRANTED_ON(l) (ON(0, l) || ON(1, l) || ON(2, l))
#endif

inline r_announce() {
    /* G2: nothing that is called dead can write any more. */
    j = 0;
    do
    :: j < LANES -> assert(!(r_qp[j] != 0 && r_qp[j] <= r_dead[j])); j++
    :: else -> break
    od;
    j = 0;
    tell_sync()
}
inline r_decide() {
    if
    :: ANY(r_health, DEAD) -> skip
    :: else ->
        j = 0;
        do
        :: j < CHUNKS ->
            if :: r_phase[j] == GRANTED && r_cgen[j] <= r_dead[r_lane[j]] -> r_phase[j] = WAITING; r_lane[j] = 0; r_cgen[j] = 0 :: else fi;
            j++
        :: else -> break
        od;
        j = 0;
        if
        :: r_health[0] == UP -> r_active = 0
#if LANES > 1
        :: r_health[0] != UP && r_health[1] == UP -> r_active = 1
#endif
#if LANES > 2
        :: r_health[0] != UP && r_health[1] != UP && r_health[2] == UP -> r_active = 2
#endif
        :: else
        fi;
        if
        :: ANY(r_health, UP) -> r_state = ANNOUNCING; r_announce()
        :: else -> r_state = SUSPENDED
        fi
    fi
}
inline r_fault(l) {
    if
    :: r_health[l] == UP || r_health[l] == RESTORING || r_health[l] == VERIFYING ->
        r_health[l] = DEAD;
        r_dead[l] = r_gen[l];
        if
        :: (r_state == RUNNING || r_state == FENCING || r_state == ANNOUNCING) && (l == r_active || GRANTED_ON(l)) ->
            r_epoch++;
            r_state = FENCING;
            r_decide()
        :: else
        fi
    :: else
    fi
}
inline r_end(x) {
    r_state = x;
    r_qp[0] = 0; r_qp[1 % LANES] = 0; r_qp[LANES - 1] = 0
}
/* An immediate is looked at. */
inline r_take(l) {
    if
    :: !OVER(r_state) && r_phase[c] == GRANTED && r_lane[c] == l && r_cgen[c] == g && c >= r_head ->
        r_phase[c] = RECEIVED; r_lane[c] = 0; r_cgen[c] = 0;
        do
        :: r_head < CHUNKS && r_phase[r_head] == RECEIVED ->
            owner[r_head % BUFFERS] = 0;
            r_head++;
            if
            :: r_head - 1 + BUFFERS < CHUNKS ->
                r_phase[r_head - 1 + BUFFERS] = WAITING;
                owner[(r_head - 1) % BUFFERS] = r_head - 1 + BUFFERS + 1
            :: else
            fi
        :: else -> break
        od
    :: else                                                                 /* G11 */
    fi
}

proctype receiver() {
    byte l, g, e, c, j;
    do
    :: OVER(s_state) && OVER(r_state) -> break
    :: atomic { to_r??hello, e, l, g -> R_LOOKS(HELLO);
        if
        :: r_state == CONNECTING ->
            r_state = RUNNING;
            if :: r_health[r_active] != UP -> r_epoch++; r_state = FENCING; r_decide() :: else fi
        :: else
        fi;
        if :: !OVER(r_state) -> tell_s(hello_ack, 0, 0) :: else fi; R_LOOKED; e = 0; l = 0; g = 0 }
    :: atomic { to_r??notify, e, l, g -> R_LOOKS(NOTIFY);
        if
        :: !OVER(r_state) ->
            tell_s(notify_ack, l, g);
            if :: g == r_gen[l] -> r_fault(l) :: else fi                    /* G11 */
        :: else
        fi; R_LOOKED; e = 0; l = 0; g = 0 }
    :: atomic { to_r??sync_ack, e, l, g -> R_LOOKS(SYNC_ACK);
        if :: r_state == ANNOUNCING && e == r_epoch -> assert(s_epoch == r_epoch || OVER(s_state)); r_state = RUNNING :: else fi;
        R_LOOKED; e = 0; l = 0; g = 0 }
    :: atomic { to_r??restore_ack, e, l, g -> R_LOOKS(RESTORE_ACK);
        if
        :: !OVER(r_state) && r_health[l] == RESTORING && g == r_gen[l] ->
            r_qp[l] = g; r_err[l] = 0; r_health[l] = VERIFYING;
            tell_s(probe, l, g)
        :: else
        fi; R_LOOKED; e = 0; l = 0; g = 0 }
    :: atomic { to_r??probe_ack, e, l, g -> R_LOOKS(PROBE_ACK);
        if
        :: !OVER(r_state) && r_health[l] == VERIFYING && g == r_gen[l] && r_qp[l] == g && s_qp[l] == g ->
            r_health[l] = UP;
            if :: r_state == SUSPENDED -> r_decide() :: else fi
        :: else
        fi; R_LOOKED; e = 0; l = 0; g = 0 }
    :: atomic { to_r??goodbye, e, l, g -> R_LOOKS(GOODBYE);
        tell_s(goodbye_ack, 0, 0);
        if :: !OVER(r_state) -> assert(r_head == CHUNKS); r_end(CLOSED) :: else fi; R_LOOKED; e = 0; l = 0; g = 0 }
    :: atomic { to_r??giveup, e, l, g -> R_LOOKS(GIVEUP);
        if :: !OVER(r_state) -> r_end(FAILED) :: else fi; R_LOOKED; e = 0; l = 0; g = 0 }

    /* the next grant, on the active lane */
#define GRANT(c) \
    :: atomic { r_state == RUNNING && r_health[r_active] == UP && r_phase[c] == WAITING && nfull(grant[r_active]) && \
                (c == 0 || r_phase[c - 1 + (c == 0)] != WAITING) -> \
        grant[r_active]!c, r_gen[r_active], r_epoch, r_head; \
        r_phase[c] = GRANTED; r_lane[c] = r_active; r_cgen[c] = r_gen[r_active] }
    GRANT(0)
#if CHUNKS > 1
    GRANT(1)
#endif
#if CHUNKS > 2
    GRANT(2)
#endif

#define OF_LANE_R(l) \
    :: atomic { cq[l]?c, g -> r_take(l); c = 0; g = 0 } \
    :: atomic { r_err[l] && !OVER(r_state) -> \
        R_LOOKS(FAULT); r_err[l] = 0; \
        if :: r_qp[l] == r_gen[l] -> r_fault(l) :: else fi; R_LOOKED } \
    :: atomic { r_health[l] == DEAD && !OVER(r_state) -> \
        R_LOOKS(FENCE_DONE); r_qp[l] = 0;    /* it wrote until now; what came in is looked at, or comes late */ \
        do :: cq[l]?c, g -> r_take(l) :: empty(cq[l]) -> break :: break od; \
        c = 0; g = 0; \
        r_health[l] = FENCED; \
        if :: r_state == FENCING || (r_state == SUSPENDED && ANY(r_health, UP)) -> r_decide() :: else fi; R_LOOKED } \
    :: atomic { r_health[l] == FENCED && !OVER(r_state) && r_state != CONNECTING && r_gen[l] < 7 -> \
        R_LOOKS(TICK); r_gen[l]++; \
        r_health[l] = RESTORING; R_LOOKED; \
        tell_s(restore, l, r_gen[l]) } \
    :: atomic { (timeout || tick_r) && !OVER(r_state) && r_health[l] == RESTORING -> \
        tick_r = 0; tell_s(restore, l, r_gen[l]) } \
    :: atomic { timeout && !OVER(r_state) && r_health[l] == VERIFYING -> R_LOOKS(TICK); r_fault(l); R_LOOKED } \
    :: atomic { r_state == RUNNING && l < r_active && r_health[l] == UP -> r_active = l }
    OF_LANE_R(0)
#if LANES > 1
    OF_LANE_R(1)
#endif
#if LANES > 2
    OF_LANE_R(2)
#endif
    :: atomic { (timeout || tick_r) && r_state == ANNOUNCING && !ANY(r_health, DEAD) -> tick_r = 0; r_announce() }
    :: atomic { timeout && r_state == RUNNING && s_acked < r_head && r_health[r_active] == UP && nfull(grant[r_active]) ->
        grant[r_active]!NONE, r_gen[r_active], r_epoch, r_head }
    :: atomic { endings > 0 && !OVER(r_state) -> R_LOOKS(WISH); endings--; r_end(FAILED); R_LOOKED; tell_s(giveup, 0, 0) }
    :: atomic { timeout && r_state == FAILED && !OVER(s_state) -> tell_s(giveup, 0, 0) }
    od
}

/* ---- what lies between ---- */

/* A packet at the front of a lane arrives: it is written, then its immediate can be looked at. */
inline land_data(l) {
    data[l]?c, g;
    if
    :: r_qp[l] == g ->
        assert(owner[c % BUFFERS] == c + 1);                                /* G1: nobody writes into a consumed buffer */
        cq[l]!c, g
    :: else -> if :: s_qp[l] == g -> s_err[l] = 1 :: else fi
    fi;
    c = 0; g = 0
}
inline land_grant(l) {
    grant[l]?c, g, e, a;
    if
    :: s_qp[l] == g ->
        if :: !OVER(s_state) -> s_acknowledge(a) :: else fi;
        if :: c != NONE && c >= s_acked -> g_lane[c] = l; g_gen[c] = g; g_epoch[c] = e :: else fi
    :: else -> if :: r_qp[l] == g -> r_err[l] = 1 :: else fi
    fi;
    c = 0; g = 0; e = 0; a = 0
}

/* A message that was put aside comes again. */
inline again_s() {
    old_s?k, e, c, g, a, x, d0, d1, d2;
    to_s!!k, e, c, g, a, x, d0, d1, d2;
    k = 0; e = 0; c = 0; g = 0; a = 0; x = 0; d0 = 0; d1 = 0; d2 = 0
}
inline again_r() {
    old_r?k, e, c, g;
    to_r!!k, e, c, g;
    k = 0; e = 0; c = 0; g = 0
}

#define NOTHING_ON(l) (empty(data[l]) && empty(grant[l]))
#if LANES == 1
#define SILENT (empty(to_s) && empty(to_r) && NOTHING_ON(0))
#elif LANES == 2
#define SILENT (empty(to_s) && empty(to_r) && NOTHING_ON(0) && NOTHING_ON(1))
#else
#define SILENT (empty(to_s) && empty(to_r) && NOTHING_ON(0) && NOTHING_ON(1) && NOTHING_ON(2))
#endif

proctype network() {
    byte c, g, e, a, x, d0, d1, d2;
    mtype k;
    do
    :: OVER(s_state) && OVER(r_state) -> break
#define OF_LANE_N(l) \
    :: atomic { nempty(data[l]) && nfull(cq[l]) -> land_data(l) } \
    :: atomic { nempty(data[l]) && s_qp[l] == 0 -> data[l]?c, g; c = 0; g = 0 } \
    :: atomic { nempty(grant[l]) -> land_grant(l) } \
    :: atomic { nempty(grant[l]) && r_qp[l] == 0 -> grant[l]?c, g, e, a; c = 0; g = 0; e = 0; a = 0 } \
    :: atomic { faults > 0 && s_qp[l] != 0 && !s_err[l] -> faults--; s_err[l] = 1 } \
    :: atomic { faults > 0 && r_qp[l] != 0 && !r_err[l] -> faults--; r_err[l] = 1 } \
    :: atomic { faults > 0 && r_qp[l] != 0 && s_qp[l] != 0 && !r_err[l] && !s_err[l] -> faults--; r_err[l] = 1; s_err[l] = 1 }
    OF_LANE_N(0)
#if LANES > 1
    OF_LANE_N(1)
#endif
#if LANES > 2
    OF_LANE_N(2)
#endif
#if TWICE
    :: atomic { nempty(old_s) && nfull(to_s) -> again_s() }
    :: atomic { nempty(old_r) && nfull(to_r) -> again_r() }
#endif
    :: atomic { ticks > 0 && !tick_s -> ticks--; tick_s = 1 }
    :: atomic { ticks > 0 && !tick_r -> ticks--; tick_r = 1 }
    :: atomic { SILENT && (faults > 0 || twice > 0 || ticks > 0 || tick_s || tick_r || endings > 0) ->
        faults = 0; twice = 0; ticks = 0; tick_s = 0; tick_r = 0; endings = 0 }
    od
}

init {
    byte i;
    atomic {
        do
        :: i < LANES ->
            if
            :: skip
            :: DOWN -> s_health[i] = FENCED; s_qp[i] = 0
            :: DOWN -> r_health[i] = FENCED; r_qp[i] = 0
            fi;
            i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < BUFFERS && i < CHUNKS -> r_phase[i] = WAITING; owner[i] = i + 1; i++
        :: else -> break
        od;
        if
        :: r_health[0] == UP -> r_active = 0
#if LANES > 1
        :: r_health[0] != UP && r_health[1] == UP -> r_active = 1
#endif
        :: else
        fi;
        i = 0;
        run sender();
        run receiver();
        run network()
    }
}

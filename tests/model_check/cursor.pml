/* Claims of words of a host ring (include/vccl/device/ring_cursor.hpp; host_ring_ref.hpp: write, wait_for_room, make_room), for spin:
 * posters who claim one or two words, wait for room, and may give up; a proxy that takes words in order.
 *
 * Who looks how far the proxy is may see any place between the last he saw and the newest.
 *
 *   CAPACITY  words      POSTERS   each posts POSTS times
 *   BROKEN    1: who gives up leaves the cursor as it is; 2: any poster that finds more room moves the limit; 3: who forgets what was
 *             claimed in vain does not see that the cursor was opened. All must be found.
 *
 * Nobody writes a word that the proxy has not taken; when all have returned, it has taken what was written, and no word is missing.
 */
#ifndef CAPACITY
#define CAPACITY 2
#endif
#ifndef POSTERS
#define POSTERS 3
#endif
#ifndef POSTS
#define POSTS 2
#endif
#ifndef BROKEN
#define BROKEN 0
#endif

short next, limit = CAPACITY;  /* one word: the cursor */
short consumed, cached;        /* the proxy's, and as a poster lately saw it */
short word[CAPACITY];          /* the index, counted from 1, of the word that lies there; 0: taken */
short written;
byte returned;

inline look_at_proxy() {       /* taken() */
    atomic { do :: seen < consumed -> seen++ :: break od; cached = seen };
    atomic { if :: seen + CAPACITY > top -> top = seen + CAPACITY :: else fi }
}

proctype poster() {
    byte times, n, i;
    short base, room, top, seen;
    bit mine;
    do
    :: times < POSTS ->
        if :: n = 1 :: n = 2 fi;
        mine = 0;
        do
        :: atomic { base = next; top = limit; room = limit - next; next = next + n };
            if
            :: room >= n -> mine = 1; break
            :: room >= 0 && room < n ->                            /* the first that found too little: make_room */
                atomic { if :: cached > seen -> seen = cached :: else fi;
                    if :: cached + CAPACITY > top -> top = cached + CAPACITY :: else fi };
                do
                :: top - base >= n -> atomic { next = base + n; limit = top }; mine = 1; break
                :: else ->
                    look_at_proxy();
                    if
                    :: top - base < n && BROKEN != 1 -> atomic { next = base; limit = top }; break
                    :: top - base < n && BROKEN == 1 -> break
                    :: skip
                    fi
                od;
                break
            :: else ->                                             /* wait_for_room; forget_void_claims at any time */
                if
                :: atomic { next > limit -> next = limit + 1 }
                :: BROKEN == 3 && next > limit -> next = limit + 1
                :: skip
                fi;
                if :: limit - next >= 0 :: goto given_up fi
            fi
        od;
given_up:
        if
        :: mine ->
            if
            :: BROKEN == 2 -> top = limit; look_at_proxy(); atomic { if :: top > limit -> limit = top :: else fi }
            :: else
            fi;
            i = 0;
            do
            :: i < n ->
                atomic { assert(word[(base + i) % CAPACITY] == 0); word[(base + i) % CAPACITY] = base + i + 1; written++ };
                i++
            :: else -> break
            od
        :: else
        fi;
        atomic { times++; n = 0; i = 0; base = 0; room = 0; top = 0; mine = 0 }
    :: else -> break
    od;
    returned++
}

proctype proxy() {
    short head;
    do
    :: atomic { word[head % CAPACITY] == head + 1 -> word[head % CAPACITY] = 0; head++ };
        consumed = head
    :: atomic { returned == POSTERS && word[head % CAPACITY] != head + 1 ->
        assert(head == written && next == written && limit >= next) };
        break
    od
}

init {
    byte i;
    atomic { run proxy(); do :: i < POSTERS -> run poster(); i++ :: else -> break od }
}

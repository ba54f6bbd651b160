/* The byte ring between two processes (include/vccl/verbs/soft/ring.hpp), for spin: one producer, one consumer, positions in grains
 * that only grow, records of one or two grains that never lie across the end, a mark where the rest of a lap is skipped.
 *
 * Memory is as weak as release and acquire leave it: each side may see any position of the other between the last one it saw and the
 * newest, and with a position everything that was written before it. A grain that is written or read is so for a while.
 *
 *   CAPACITY  grains      RECORDS  to be sent
 *   BROKEN    1: the producer does not look at the head; 2: the tail is published before the record. Both must be found.
 */
#ifndef CAPACITY
#define CAPACITY 4
#endif
#ifndef RECORDS
#define RECORDS 6
#endif
#ifndef BROKEN
#define BROKEN 0
#endif

#define WRAP 255
byte grain[CAPACITY];        /* what lies there: the number of a record, counted from 1, or WRAP */
bit reading[CAPACITY];       /* by the consumer, at this moment */
byte size[CAPACITY];         /* of the record that begins there */
byte tail, head;             /* published */
bit was_tail[4 * RECORDS];   /* every tail that there has been */
byte got;

inline put(at, what, n) {
    assert(!reading[(at) % CAPACITY]);
    grain[(at) % CAPACITY] = what;
    size[(at) % CAPACITY] = n
}

proctype producer() {
    byte end, seen, n, need, i, sent;
    do
    :: sent < RECORDS ->
        if :: n = 1 :: n = 2 fi;
        do                                                    /* room() */
        :: atomic {
            need = n;
            if :: (end % CAPACITY) + n > CAPACITY -> need = n + CAPACITY - (end % CAPACITY) :: else fi;
            if
            :: BROKEN == 1 || end - seen + need <= CAPACITY -> break
            :: else -> seen < head;                           /* until another head is seen: any newer one */
                do :: seen++; if :: seen == head -> break :: seen < head :: seen < head -> break fi od
            fi }
        od;
        if                                                    /* push() */
        :: (end % CAPACITY) + n > CAPACITY ->
            put(end, WRAP, 0);
            end = end + CAPACITY - (end % CAPACITY)
        :: else
        fi;
        if :: BROKEN == 2 -> atomic { tail = end + n; was_tail[tail] = 1 } :: else fi;
        i = 0;
        do :: i < n -> put(end + i, sent + 1, n); i++ :: else -> break od;
        end = end + n;
        sent++;
        atomic { tail = end; was_tail[tail] = 1 }
    :: else -> break
    od
}

proctype consumer() {
    byte at, seen, n, i;
    do
    :: got < RECORDS ->
        atomic {                                              /* front(): any tail that is not older than the last */
            seen < tail || at < seen;
            do :: seen < tail -> seen++ :: at < seen && was_tail[seen] -> break od }
        if
        :: grain[at % CAPACITY] == WRAP -> at = at + CAPACITY - (at % CAPACITY)
        :: else ->
            n = size[at % CAPACITY];
            assert(n == 1 || n == 2);
            i = 0;
            do
            :: i < n -> reading[(at + i) % CAPACITY] = 1; assert(grain[(at + i) % CAPACITY] == got + 1); i++
            :: else -> break
            od;
            i = 0;
            do :: i < n -> reading[(at + i) % CAPACITY] = 0; i++ :: else -> break od;
            at = at + n;
            got++;
            head = at                                         /* pop() */
        fi
    :: else -> break
    od
}

init { atomic { run producer(); run consumer() } }

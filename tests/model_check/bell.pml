/* The doorbell of a device queue (include/vccl/device/queue.hpp: reserve, hand_in, ring_or_leave, ring_for), for spin: posters who
 * reserve, publish in order, and ring, or leave that to one who has reserved behind, or to one who is at it.
 *
 *   POSTERS   each posts POSTS times, one WQE a time      BATCH  no more than so many are left to others
 *   BROKEN    1: who has rung does not look who asked meanwhile; 2: looks, and lets go a moment later. Both must be found.
 *
 * When all have returned, the NIC has been told of everything; a doorbell never goes back.
 */
#ifndef POSTERS
#define POSTERS 3
#endif
#ifndef POSTS
#define POSTS 2
#endif
#ifndef BATCH
#define BATCH 4
#endif
#ifndef BROKEN
#define BROKEN 0
#endif

byte reserve, ready;         /* in WQEs, counted from the beginning */
byte rung, asks;             /* one word: for how many it has rung, and how many have asked since somebody is at it */
byte told;                   /* what the NIC was told last */
byte returned;

proctype poster() {
    byte times, base, mine, reserved, upto, own, asked;
    bit must, rings;
    do
    :: times < POSTS ->
        atomic { base = reserve; reserve++; mine = base + 1 }
        atomic { ready == base -> ready = mine }               /* hand_in */
        reserved = reserve;
        must = ((mine ^ base) >= BATCH);
        if
        :: must || reserved == mine ->
            upto = mine;
            do                                                  /* ring_for */
            :: atomic { own = rung; asked = asks; asks++ }
                reserved = reserve;
                if :: asked != 0 -> break :: else fi;
                rings = (own < upto && (must || reserved == upto));
                if
                :: rings -> assert(told <= upto); told = upto; own = upto
                :: else
                fi;
                if
                :: BROKEN == 2 -> asked = asks; atomic { asks = 0; rung = own }
                :: else -> atomic { asked = asks; asks = 0; rung = own }
                fi;
                if :: asked == 1 || BROKEN == 1 -> break :: else fi;
                upto = ready;
                if :: own >= upto || reserve != upto -> break :: else fi
            od
        :: else
        fi;
        atomic { times++; base = 0; mine = 0; reserved = 0; upto = 0; own = 0; asked = 0; must = 0; rings = 0 }
    :: else -> break
    od;
    atomic {
        returned++;
        if :: returned == POSTERS -> assert(ready == reserve && told == reserve && asks == 0) :: else fi
    }
}

init {
    byte i;
    atomic { do :: i < POSTERS -> run poster(); i++ :: else -> break od }
}

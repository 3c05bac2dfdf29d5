"""Power: what a power cut leaves of a whole process, with real Lance beneath.

    subject.py     the process: it lives a scenario (scenarios.py) and tells what it acknowledged
    recording.py   strace writes down every call of it that changes a file
    calls.py       the lines of strace as calls
    events.py      those of them that change the store's disk, and what was told between them
    machine.py     a simulated disk that goes through the events; it has to end as the real one
    images.py      the disks that a power cut at any of them may leave: chosen, told apart, laid out
    checker.py     a process that opens them, one after the other, and holds them to what was told
    trials.py      all of it for one scenario
    page.py        what came of it, for the documentation

The store is a black box: nothing in it knows, and what Lance does by itself is in the account, too.
What a disk may forget is what `tests.support.simulated_disk` says: every unsynced write and
name by itself. `python -m proof.power --help` runs it.
"""

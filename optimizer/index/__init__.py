"""The index over recorded events: `trajectories/index.db`, derived from the raw files and rebuildable at any time.

1. Raw files are the truth. Deleting the index, damaging it or changing its form costs a rebuild and nothing else.
2. It is brought up to date by stored positions: a session whose file has the size, time and inode that were seen last
   is not opened. What a refresh reads, it writes in bounded transactions; a killed one goes on where it stood.
3. Any number of processes may refresh and search at once: writers take turns, readers never wait for them.
4. The same call seen by two sources is one hit. Raw keeps both; `merge` says which event speaks for which.
"""

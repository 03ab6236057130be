"""Connecting clients: what is written into whose configuration, how it is shown, undone and kept apart from the rest.

1. A configuration file belongs to its owner: it is edited where our entry stands and nowhere else, byte for byte.
2. Everything is worked out first (`plan`), shown as a difference, and written only when all of it can be (`carry_out`);
   a failure half way takes back what was written.
3. A backup and a record beside the files make removal exact: where nobody edited since, the bytes of before come back,
   else only our entries go.
"""

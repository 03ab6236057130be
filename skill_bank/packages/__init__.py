"""Packages: skills, runs and rounds as files that can be handed on.

A package is one reproducible archive (`archive`) whose `package.json` says what it is and lists every file with its
size and SHA-256. `registry.json` is the index (`store`); an archive that is not in it does not count. Three kinds hold
skills and have a life cycle: `stable` (a bank as it is), `experimental` (a stable one for a domain), `vertical` (proven
there). A promotion needs a recorded trial or a reviewer's note (`lifecycle`). Two kinds are records: a `task` package
holds one run, a `lineage` archive some rounds; what goes into them is gathered above (`optimizer.packaging`).
Everything passes a redactor before it is packed.
"""

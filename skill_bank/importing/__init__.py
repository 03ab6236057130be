"""Existing banks and skills, read as they are: what they compile to, what is odd about them, and how they become ours.

The original's format looks like ours and forgives what ours refuses. What it does, so that the same text comes out:

1. Front matter is YAML 1.1 between two lines `---`. What cannot be parsed counts as empty. A base's is written anew:
   keys sorted, in block style, lines folded at 80 characters.
2. A section begins and ends with a marker at the start of a line; what stands behind a marker on its line is lost. One
   empty line at each end of a section is dropped. Text between sections is kept without the line feeds around it.
   A second section of a name takes the place of the first one's text, and both places show it.
3. A patch's body is stripped of white space at both ends. `replace` takes the place of the section's text, whatever
   patches did to it before; `append` and `prepend` are set off by one empty line; `insert_after` makes a section named
   by the patch's id. Text between sections belongs to a position counted in sections, so an inserted one moves it.
4. A patch that is listed is applied unless it is archived: `proposed` counts as active, and so does no status at all.
   `disabled` is not looked at. The order is the list's, with what a patch depends on pulled before it, depth first.
   What it depends on in its own skill may be missing or off.
5. Everything is joined by one empty line; an empty section leaves its empty lines.

`reading` reads, `assembly` puts together, `checks` finds what is odd without stopping anything, `as_is` compiles a bank
or a part of it, `migrate` writes a bank of our format with the same text, `single` does so for one SKILL.md.
"""

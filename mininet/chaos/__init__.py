"""``hyroads chaos``: parts of an emulated network are broken, one after the other and in pairs, and must come back.

``plan`` says what is broken when (pure), ``faults`` does it, ``streams`` carries packets of which each is accounted
for, ``invariants`` says what must hold, ``report`` what came of it, and ``run`` puts them together.
"""

"""The lab: boxes that are whole systems with systemd, wired by plain Ethernet, set up as the how-to pages say.

``root`` makes the Debian root that all boxes share, ``packages`` finds or builds the project's packages, ``cgroups``
and ``box`` boot a system, ``wires`` connects boxes, ``three_boxes`` types what a user types, ``measuring`` makes the
rows of the ``verdict``, ``box_state`` lists what there is on a box, ``prompt`` is the user's prompt, and ``run`` puts
them together. ``guest`` runs a lab in a guest kernel, where boxes have radios, and ``backhaul`` joins these.
"""

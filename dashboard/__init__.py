"""``hyroads dashboard``: a live picture of the network in a browser, a process of its own beside the controller.

``state`` and ``feed`` turn the controller's documents into the network's state, ``views`` turns that into what pages
show: both are pure. ``reader`` reads the controller once for all browsers, ``access`` admits browsers, ``pages`` shows
(one file a page), ``server`` runs it. The controller is reached over its REST API only.
"""

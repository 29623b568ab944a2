"""A service over HTTP on a fitted posterior: ``osculate serve`` and the page of ``osculate explore``.

===================  ===============================================================================================
``settings.py``      who may connect, and how much a request may take
``refusals.py``      an answer other than 200: a status and a sentence
``connections.py``   connections that take too long, or are too many, are closed
``guard.py``         what a request passes before anything is computed: names, tokens, sizes, time
``bodies.py``        JSON and CSV as numbers, strictly
``work.py``          predictions in threads, which stop when nobody waits for them
``application.py``   the routes
``documentation.py`` the page about the routes
``server.py``        processes, sockets and signals
===================  ===============================================================================================

FastAPI and uvicorn, the extra ``serve``, are imported by the last four alone.
"""

"""Look at a finished run in a browser.

A classifier, a regression, an autoencoder, or an image of osculate reconstruct. The page loads nothing from elsewhere,
and only this machine can open it, unless --host is given and a token is in the variable OSCULATE_TOKEN or --token-file.
Nothing is written.
"""

from functools import partial

from osculate.cli.predict import PosteriorOptions
from osculate.cli.serve import AddressOptions, HeldOutOptions, require_server
from osculate.serving.settings import Limits

PARTS = (PosteriorOptions, HeldOutOptions, AddressOptions)
SUBJECT = "posterior"
#: It has no results to print as JSON.
REPORTS = False


def run(options: PosteriorOptions, data: HeldOutOptions, address: AddressOptions) -> None:
    """Read the run, compute what the page shows at first, and serve it."""
    require_server()
    from osculate.cli.explored import view_of
    from osculate.serving.explorer import explorer
    from osculate.serving.server import serve

    access, view = address.access, view_of(options, data.data)
    content = view.content(address.progress)

    def ready(url: str) -> None:
        print(f"{content['kind']} {content['title']}: open {url} in a browser")
        if access.token is not None:
            print("The page asks for the token.")
        print("Ctrl+C ends it.", flush=True)

    serve(partial(explorer, view, content), access, Limits(), 1, ready)

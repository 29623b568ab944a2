"""The command line: ``osculate demo | train | fit | predict | evaluate | reconstruct``. One file a command."""

from osculate.cli.app import main as main

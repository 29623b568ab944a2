"""The user's own data: ``read`` opens a file, a folder or an object, infers its schema and makes the three parts.

===================  ===============================================================================================
``opening.py``       which reader is for which ending, folder or object; what is refused
``tables.py``        CSV, TSV and Parquet; ``hugging_face.py`` data sets saved by ``Dataset.save_to_disk``
``arrays.py``        ``.npy``, ``.npz``, NumPy arrays and tensors
``pictures.py``      folders of images
``columns.py``       kinds of columns and their numbers; ``table_inputs.py`` a table, ``array_inputs.py`` an array
``targets.py``       classes or real numbers
``schema.py``        all of this together: printed, saved as JSON, applied to new data
``parts.py``         training, validation and test rows
``reading.py``       ``read``
``writing.py``       tables of predictions
===================  ===============================================================================================
"""

from osculate.data.own.reading import OwnData as OwnData, read as read
from osculate.data.own.schema import Schema as Schema

"""L2M [perone2021]: one file a table or figure, beside what they share."""

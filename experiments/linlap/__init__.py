"""The linearised Laplace tutorial: one file a table or figure, beside what they share."""

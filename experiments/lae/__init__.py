"""Laplacian autoencoders [miani2022]: one file a table or figure, beside what they share."""

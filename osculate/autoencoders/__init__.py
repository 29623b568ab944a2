"""p(x|z) and q(z|x): networks with a bottleneck, and what a posterior over their weights says about code and image."""

from osculate.autoencoders.autoencoder import VAE as VAE, Autoencoder as Autoencoder
from osculate.autoencoders.build import AUTOENCODERS as AUTOENCODERS, build as build
from osculate.autoencoders.drawn import Encoding as Encoding, Reconstruction as Reconstruction
from osculate.autoencoders.elbo import ELBO as ELBO
from osculate.autoencoders.laplacian import LaplacianAutoencoder as LaplacianAutoencoder
from osculate.autoencoders.plane import LatentMap as LatentMap
from osculate.autoencoders.representation import Representation as Representation

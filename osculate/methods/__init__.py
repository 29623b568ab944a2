"""How a posterior is reached. One file a method."""

from osculate.methods.laplace import laplace as laplace
from osculate.methods.map import MAP as MAP
from osculate.methods.subnetwork import Subnetwork as Subnetwork

"""Hamiltonian Monte Carlo: the method, its sampler, and the potential."""

from osculate.methods.hmc.method import HMC as HMC

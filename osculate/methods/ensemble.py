"""Deep ensembles: several networks trained from different initial weights."""

from collections.abc import Iterable, Mapping
from math import log
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.distributed import Group
from osculate.inputs import Inputs
from osculate.likelihoods import Likelihood
from osculate.methods._base import MakeNetwork, Method, Option, PriorLike, require_parts
from osculate.methods.map import MAP
from osculate.parameters import undisturbed
from osculate.posteriors import Ensemble
from osculate.posteriors.samples import listed, require_members

#: Default number of members.
MEMBERS = 5


class DeepEnsemble(Method):
    r"""M networks, each trained to its own mode: q(θ) = (1/M) Σ_m δ(θ − θ_m). [lakshminarayanan2017]

    The loss is the sum of the members' negative log joints per datum (see :class:`osculate.methods.MAP`), so that the
    members are trained independently. All see the same batches and differ only in their initial weights. Each of
    several processes trains some of the members on all data, and gets the others at the end.

    Args:
        models: The networks, of one architecture and with separate weights; training changes them in place.
        likelihood: p(y|f).
        prior: p(θ) of each member: a precision, or an object of ``osculate.priors``.

    Raises:
        TypeError: ``models`` is not a list of modules, or ``prior`` is neither a number nor a prior.
        ValueError: there are fewer than two members, their architectures differ, or two have equal weights or share a
            parameter.

    Cost: M times that of one network in time and memory.

    >>> import osculate as osc
    >>> method = DeepEnsemble([nn.Linear(2, 3) for _ in range(5)], osc.likelihoods.Categorical())
    >>> data = torch.randn(20, 2), torch.randint(3, (20,))
    >>> osc.predict(osc.train(method, data, epochs=2, progress=False), data[0]).probs.shape
    torch.Size([20, 3])
    """

    name = "deep_ensemble"
    has_plain_steps = True
    options = {"members": Option(int, "number of networks, with initial weights by seed, seed + 1, …", MEMBERS)}
    network_name = "first member"
    in_parts = True

    @classmethod
    def build(
        cls,
        network: MakeNetwork,
        likelihood: Likelihood,
        prior: PriorLike = 1.0,
        members: int = MEMBERS,
        **options: Any,
    ) -> "DeepEnsemble":
        """Make the ensemble of the first networks."""
        return cls([network(number) for number in range(members)], likelihood, prior, **options)

    def __init__(self, models: Iterable[nn.Module], likelihood: Likelihood, prior: PriorLike = 1.0) -> None:
        super().__init__()
        self._members = tuple(MAP(model, likelihood, prior) for model in listed(models, type(self).__name__))
        self._own = self._members
        self._networks = [member.model for member in self._members]
        require_members(self._networks)
        owner: dict[int, int] = {}
        for number, model in enumerate(self._networks):
            for parameter_name, parameter in model.named_parameters():
                if owner.setdefault(id(parameter), number) != number:
                    raise ValueError(
                        f"members {owner[id(parameter)]} and {number} of the ensemble share the parameter "
                        f"{parameter_name!r}: give each member its own weights."
                    )
        self.model = nn.ModuleList(self._networks)
        self.likelihood = likelihood

    def choices(self) -> Mapping[str, Any]:
        """The settings of each member."""
        return self._members[0].choices()

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """The sum over members of -(1/B) Σ log p(y|f_m) - (1/N) log p(θ_m), in nats."""
        return torch.stack([member.loss(x, y, num_data) for member in self._own]).sum()

    def log_prob(self, x: Inputs, y: Tensor) -> Float[Tensor, " B"]:
        """log (1/M) Σ_m p(y|f_m(x)) of each datum; the M members of this process."""
        each = torch.stack([member.log_prob(x, y) for member in self._own])
        return each.logsumexp(0) - log(len(each))

    def take_part(self, processes: Group) -> None:
        """Train every n-th member only, where there are n processes."""
        require_parts(len(self._members), "members", processes)
        self._own = self._members[processes.rank :: processes.size]

    def exchange(self, processes: Group) -> None:
        """Set the members that other processes have trained."""
        self._own = self._members
        for number, network in enumerate(self._networks):
            state = {name: value.cpu() for name, value in network.state_dict().items()}
            network.load_state_dict(processes.sent(state, number % processes.size))

    def result(self) -> Ensemble:
        """The ensemble of the present members, in evaluation mode."""
        with undisturbed(self.model):
            self.model.eval()
            return Ensemble(self._networks, self.likelihood)

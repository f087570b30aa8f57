"""What a site decides about its node: in its app's arguments, and in the node's config."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from flwr.app import Context

from unskew.errors import UnskewError
from unskew.flower.node_files import default_state
from unskew.flower.policy import Policy
from unskew.flower.wire import Refusal
from unskew.privacy import PrivacyLimit

_STATE, _POLICY, _BUDGET = "state-dir", "policy", "privacy-budget"
"""The keys of the node's config."""


@dataclass(frozen=True)
class SiteRules:
    """A site's policy, privacy limit and state folder; a config narrows those of the app."""

    policy: Policy | None
    budget: PrivacyLimit | None
    state: str | Path | Literal["auto"] | None

    @classmethod
    def of(
        cls,
        policy: Policy | Mapping[str, Any] | str | Path | None,
        budget: PrivacyLimit | str | float | None,
        state: str | Path | Literal["auto"] | None,
    ) -> Self:
        """Read the arguments of an app."""
        own_policy = None if policy is None else Policy.of(policy)
        own_budget = None if budget is None else PrivacyLimit.parse(budget, "budget")
        return cls(own_policy, own_budget, state)

    def policy_of(self, context: Context) -> Policy:
        """Return the policy in the node's config, narrowed by the app's own."""
        path = context.node_config.get(_POLICY)
        if path is None:
            return self.policy or Policy()
        try:
            site = Policy.of(str(path))
            return site if self.policy is None else site.narrowed(self.policy)
        except UnskewError as error:
            raise Refusal(str(error)) from None

    def budgets(self, context: Context) -> tuple[PrivacyLimit, ...]:
        """Return the limits of the app and of the node's config, which all hold."""
        value = context.node_config.get(_BUDGET)
        own = () if self.budget is None else (self.budget,)
        if value is None:
            return own
        try:
            return (*own, PrivacyLimit.parse(str(value), _BUDGET))
        except UnskewError as error:
            raise Refusal(f"the config of its site is wrong: {error}") from None

    def state_folder(self, context: Context) -> Path | None:
        """Return where the node writes; None if it writes no files."""
        if self.state != "auto":
            return None if self.state is None else Path(self.state)
        configured = context.node_config.get(_STATE)
        return Path(str(configured)) if configured else default_state()

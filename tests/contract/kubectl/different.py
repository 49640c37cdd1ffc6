"""Recorded kubectl commands whose outcome differs here, by number, and why."""

ACCOUNT = "service accounts are not admitted yet: no account, no token volume, other line numbers"
SERVED = "it lists fewer groups: those that are not served here"
WORDS = "types are described in our own words"

DIFFERENT: dict[int, str] = {
    3: "the recorded server had no version stamp, which kubectl cannot parse",
    23: ACCOUNT,
    32: ACCOUNT,
    43: ACCOUNT,
    44: ACCOUNT,
    55: ACCOUNT,
    56: ACCOUNT,
    58: ACCOUNT,
    61: "it shows events that an earlier recording left in another namespace",
    99: "the steps of the rollout depend on how quickly pods become ready",
    102: "the deprecated kind Endpoints gets no objects",
    141: "the server holds no lease of its own",
    143: "its node is created within the process, by another manager",
    144: SERVED,
    145: SERVED,
    146: SERVED,
    147: WORDS,
    148: WORDS,
    151: WORDS,
    154: "the recorded server had a cluster role of its vendor, for /.well-known",
    158: "there are no components to ask",
    177: "an empty namespace is gone at once",
}

IN_BETWEEN = "recorded in the moment in which a pod was starting"
BY_RECORDING: dict[str, dict[int, str]] = {
    "kubectl-1.32": {},
    "kubectl-1.36": {41: IN_BETWEEN, 42: IN_BETWEEN},
}
"""What differs besides in one recording only."""

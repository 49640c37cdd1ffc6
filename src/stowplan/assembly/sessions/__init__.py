"""From an actions/tiers file to sessions: the rules they ask and the plugins they run."""

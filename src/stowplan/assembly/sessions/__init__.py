"""Sessions from an actions/tiers file: their rules, actions and session plugins."""

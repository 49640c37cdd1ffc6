"""The actions that ship: what a session does, step by step."""

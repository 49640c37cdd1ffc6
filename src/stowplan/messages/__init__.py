"""What happened and what to do: the closed lists that go into and come out of the machine."""

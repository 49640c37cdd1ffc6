"""Queueing hints: which changes can turn a plugin's refusal, one module per family of plugins.

A plugin's `events_to_register` returns what a function here gives. A hint is asked about a pod
that the plugin has refused; it sees the object before and after the change, None where there was
or is none. Where a hint needs a plugin's rule or other objects, they are arguments of that
function, so that a rule stays where it is written.
"""

"""The pure core of the operator: what is seen goes in, what is to be done and shown comes out.

Nothing here reads a clock, opens a connection or waits. Time is a value of the world.
"""

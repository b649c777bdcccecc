"""What a method is. Nothing here knows how or where rounds are run.

Read in this order:

    struct      frozen dataclasses whose numbers are traced
    hyper       numbers that vary over rounds or clients
    rule        the eight moments at which a method may speak
    combinators rules made of rules
    wire        what happens to messages on their way
    algorithm   a rule, a wire and a weighting
    local       the one local loop
    client      a client's half of the one round
    server      the server's half
    round       the one round, of both
    template    what a run starts from, and shapes of what travels
    keys        where random numbers come from
    debug       where in a round an exception happened
"""

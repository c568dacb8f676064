"""The model: where it comes from, how it is loaded, how its positions are extended, whether a ring may run it.

`sources` and everything it imports know nothing of torch; `load` and `gates` bring it in. Refuses pickles and
`trust_remote_code` everywhere.
"""

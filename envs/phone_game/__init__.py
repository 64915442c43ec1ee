"""What all phone games share: a new one is a file of rules, one of drawing, and a `register()`.

`rules.Rules` is what a game is, `game.PhoneGame` what makes it one on a phone. `app.GameApp`,
`env.GameEnv`, `translator.GameTranslator` and `players.GamePlayer` do the rest: a game derives from
each of them a class that names its `PhoneGame`, and overrides what is its own.
"""

"""The framework of all phone games: a new game is its rules, its drawing, and a `register()` line.

`rules.GameRules` is the game itself; `game.PhoneGame` describes it to the framework. `app.GameApp`,
`env.GameEnv`, `translator.GameTranslator` and `players.GamePlayer` do the rest: a game subclasses
each of them, names its `PhoneGame`, and overrides what differs.
"""

"""The framework of all phone games: a new game is its rules, its drawing, and a `register()` line.

`rules.GameRules` is the game itself; `game.PhoneGame` describes it to the framework, and
`game_classes` makes its app, environment and translator. A game that needs custom code for one of
them subclasses `app.GameApp`, `env.GameEnv` or `translator.GameTranslator`; its players subclass
`players.GamePlayer`.
"""

from agentrl.text.name_suggestions import did_you_mean, known_names


def test_close_names_are_suggested_or_some_of_the_known_ones_listed() -> None:
    games = [f"Game-v{k}" for k in range(4)] + ["ns/Snake-v0", *(f"other{k}" for k in range(20))]
    assert did_you_mean("snake", games) == " (did you mean 'ns/Snake-v0'?)"
    assert did_you_mean("game", games) == " (did you mean 'Game-v0', 'Game-v1' or 'Game-v2'?)"
    assert did_you_mean("Oth", games) == " (did you mean 'other0', 'other1' or 'other2'?)"
    assert did_you_mean("runs/other0", games) == ""
    assert did_you_mean("Ot", games) == did_you_mean("nope", games) == ""
    assert known_names("snake", games, command="agentrl x") == (
        " (did you mean 'ns/Snake-v0'?); agentrl x shows all"
    )
    assert known_names("snake", games[3:5]) == (
        " (did you mean 'ns/Snake-v0'?). Known: Game-v3, ns/Snake-v0"
    )
    assert known_names("nope", games[-20:]).endswith(" other18, other19")
    assert known_names("nope", games[-21:]).endswith(" other18 and 1 more")
    listed = known_names("nope", games, command="agentrl x", label="Games")
    assert listed.startswith(". Games: Game-v0, Game-v1")
    assert listed.endswith("other4 and 15 more (agentrl x)")
    assert known_names("nope", []) == ". Known: none"

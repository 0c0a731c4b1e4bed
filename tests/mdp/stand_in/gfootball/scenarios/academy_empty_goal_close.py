from . import *  # noqa: F403


def build_scenario(builder):
    builder.config().game_duration = 400
    builder.config().end_episode_on_score = True
    builder.SetBallPosition(0.77, 0.0)
    builder.SetTeam(Team.e_Left)  # noqa: F405
    builder.AddPlayer(-1.0, 0.0, e_PlayerRole_GK)  # noqa: F405
    builder.AddPlayer(0.75, 0.0, e_PlayerRole_CB)  # noqa: F405
    builder.SetTeam(Team.e_Right)  # noqa: F405
    builder.AddPlayer(1.0, 0.0, e_PlayerRole_GK)  # noqa: F405

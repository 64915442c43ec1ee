"""Reward functions that harm the process that calls them, if the last reply is `bad`."""

import logging
import multiprocessing
import os
import pickle
import sys


def _is_bad(episode):
    return episode.turns[-1].reply == "bad"


def forks_and_returns(episode):
    if _is_bad(episode) and not os.fork():
        return 99.0
    return 1.0


def forks_and_exits(episode):
    if _is_bad(episode) and not os.fork():
        sys.exit(0)
    return 1.0


def closes_descriptors(episode):
    if _is_bad(episode):
        os.closerange(3, 256)
    return 1.0


def closes_output(episode):
    if _is_bad(episode):
        os.closerange(0, 3)
    else:
        print("printed later", flush=True)
    return 1.0


def logs_in_forks(episode):
    with multiprocessing.get_context("fork").Pool(3) as pool:
        return float(sum(pool.map(_log, range(12))) / 12)


def _log(number):
    logging.getLogger("a_reward").warning("x" * 40_000)
    return 1.0


def sends_episode_to_process(episode):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(_read, [episode])[0]


def reads_in_fork(episode):
    pipe, its_pipe = multiprocessing.Pipe()
    if not os.fork():
        try:
            episode.turns[-1].images[0]
        except Exception as error:
            its_pipe.send(str(error))
        os._exit(0)
    assert "before a process is forked" in pipe.recv()
    return 1.0


def pickles_episode(episode):
    return _read(pickle.loads(pickle.dumps(episode)))


def _read(episode):
    turn = episode.turns[-1]
    return float(turn.prompt_ids == (1,) and turn.images[0].max() == 7)


def takes_any_name(**given):
    return [float(len(text) > 0) for text in given["response"]]

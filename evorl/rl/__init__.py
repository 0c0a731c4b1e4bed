"""Reinforcement learning of one policy: acting, batches and learners.

Here: one file per algorithm, what they share, the actors that fill batches, evaluation of a policy.
Not here: the loop around a learner (`evorl.training`), networks (`evorl.nets`), returns and losses (`evorl.ops`).
Start reading: `evorl.rl.ppo`, then `evorl.rl.policy_gradient` and `evorl.rl.network_learner`. A new algorithm is a file
here and one in ``conf/rl``, which ``scripts/write_conf.py`` writes below its ``_target_``. A policy gradient builds on
`PolicyGradient`, any other learner on `NetworkLearner`, with the kind of batch that it takes (`evorl.rl.batch`).
"""

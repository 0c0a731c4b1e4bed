"""Keys of other suites, and the evorl key for each: what users of CleanRL, Stable-Baselines3, RLlib or Tune type first.

The same words are understood below a group (``rl.n_steps``) and as options (``--n-steps``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping


def _table(**words: str) -> Mapping[str, str]:
    """Words by key, turned into keys by word."""
    return {word: key.replace("__", ".") for key, several in words.items() for word in several.split()}


KEYS = _table(
    rl="algo algorithm agent",
    rl__lr="lr learning_rate",
    rl__gamma="gamma",
    rl__lam="gae_lambda lambda lambda_ lmbda",
    rl__entropy_coef="ent_coef entropy_coeff",
    rl__critic_coef="vf_coef vf_loss_coeff value_loss_coef",
    rl__clip="clip_coef clip_range clip_param clip_eps clip_epsilon clip_ratio",
    rl__value_clip="clip_range_vf vf_clip_param",
    rl__max_grad_norm="max_grad_norm grad_clip",
    rl__normalize_advantage="norm_adv normalize_adv",
    rl__normalize_inputs="norm_obs normalize_obs normalize_observations",
    rl__normalize_rewards="norm_reward normalize_reward",
    rl__slots="n_envs num_envs n_env num_envs_per_worker num_envs_per_env_runner",
    rl__horizon="n_steps num_steps rollout_fragment_length unroll_length train_freq train_frequency",
    rl__minibatch="batch_size minibatch_size mini_batch_size sgd_minibatch_size",
    rl__passes="n_epochs num_epochs update_epochs ppo_epochs num_sgd_iter epochs",
    rl__learners="num_learners num_learner_workers",
    rl__net__hidden="net_arch hidden_sizes hidden_size hidden_dim fcnet_hiddens",
    rl__net__activation="activation_fn fcnet_activation",
    rl__net__lstm="lstm_hidden_size lstm_cell_size",
    rl__net__shared="vf_share_layers",
    budget__steps="total_timesteps total_steps timesteps n_timesteps num_timesteps max_timesteps timesteps_total",
    budget__seconds="time_total_s max_time_s time_budget_s",
    budget__fitness="reward_threshold episode_reward_mean episode_return_mean",
    eval__every="eval_freq eval_interval evaluation_interval",
    eval__episodes="n_eval_episodes num_eval_episodes eval_episodes evaluation_duration",
    checkpoint__every="save_freq save_interval checkpoint_freq checkpoint_frequency",
    checkpoint__keep="num_to_keep keep_checkpoints_num",
    record__name="exp_name run_name experiment_name",
    record__project="wandb_project_name wandb_project",
    record__group="wandb_group",
)
"""By word: the key of evorl that takes the same value."""
OTHERS = _table(
    rl__batch="batch_size train_batch_size",
    rl__capacity="buffer_size replay_size replay_buffer_size memory_size",
    rl__warm_up="learning_starts start_timesteps warmup_steps num_steps_sampled_before_learning_starts",
    rl__target_every="target_update_interval target_network_frequency target_network_update_freq target_update_freq",
    rl__delay="policy_delay policy_frequency policy_freq",
    rl__target_noise="target_policy_noise policy_noise",
    rl__target_clip="target_noise_clip noise_clip",
    rl__exploration="exploration_noise expl_noise action_noise",
    rl__alpha="ent_coef",
    rl__replay__prioritized__alpha="prioritized_replay_alpha",
    rl__learn_alpha="autotune",
    rl__double="double_q",
    rl__noisy="noisy_net noisy_nets",
    rl__n_step="nstep",
    rl__atoms="num_atoms n_atoms n_quantiles",
    rl__epsilon__start="exploration_initial_eps start_e initial_epsilon",
    rl__epsilon__end="exploration_final_eps end_e final_epsilon",
    rl__epsilon__steps="epsilon_timesteps",
    ec__population="population_size pop_size popsize n_agents",
    ec__train_steps="perturbation_interval",
    mdp__stack="n_stack frame_stack",
    mdp__frame_skip="frameskip",
    mdp__time_limit="max_episode_steps",
)
"""The same of keys that only some algorithms, evolutions or worlds have."""
_VIDEO = "video=true of python -m evorl.evaluate run=RUN_DIR, after the run"
_WORKERS = "cluster=processes cluster.workers={value}"
_STEPS = "budget.steps=STEPS, which counts environment steps"
PHRASES = {
    "policy": "rl.net (rl.net.hidden=[64,64] rl.net.lstm=64); what it sees decides between layers and convolutions",
    "policy_kwargs": "rl.net.hidden=[64,64] rl.net.activation=tanh",
    "model": "rl.net.hidden=[64,64] rl.net.activation=tanh",
    "num_minibatches": "rl.minibatch=DECISIONS, the size of each and not their number",
    "n_minibatches": "rl.minibatch=DECISIONS, the size of each and not their number",
    "gradient_steps": "rl.samples_per_step=N, transitions to learn from per collected one",
    "exploration_fraction": "rl.epsilon.steps=STEPS, environment steps and no fraction",
    "anneal_lr": "rl.lr={{start: 3e-4, end: 0, steps: 1e6}}",
    "lr_schedule": "rl.lr={{start: 3e-4, end: 0, steps: 1e6}}",
    "polyak": "rl.tau=SHARE, 1 minus polyak",
    "v_min": "rl.support=[LOW,HIGH]",
    "v_max": "rl.support=[LOW,HIGH]",
    "num_workers": _WORKERS,
    "num_rollout_workers": _WORKERS,
    "num_env_runners": _WORKERS,
    "num_cpus": _WORKERS,
    "num_gpus": "device=cuda, with rl.learners=N on several",
    "num_samples": "--multirun hydra/sweeper=evorl hydra.sweeper.jobs={value}",
    "n_trials": "--multirun hydra/sweeper=evorl hydra.sweeper.jobs={value}",
    "search_alg": "--multirun hydra/sweeper=evorl hydra.sweeper.evolver=NAME",
    "param_space": "--multirun hydra/sweeper=evorl 'rl.lr=tag(log,interval(1e-5,1e-2))'",
    "hyperparam_mutations": "ec=pbt +ec.genes.rl.lr=[1e-5,1e-2]",
    "scheduler": "ec=pbt +ec.genes.rl.lr=[1e-5,1e-2]",
    "training_iteration": _STEPS,
    "num_iterations": _STEPS,
    "num_updates": _STEPS,
    "generations": _STEPS,
    "stop": "budget.steps=STEPS, budget.seconds=S or budget.fitness=X",
    "log_dir": "hydra.run.dir={value}",
    "local_dir": "hydra.run.dir={value}",
    "storage_path": "hydra.run.dir={value}",
    "tensorboard_log": "record.tensorboard=true, which is the default",
    "wandb_entity": "the variable WANDB_ENTITY of the environment",
    "capture_video": _VIDEO,
    "record_video": _VIDEO,
    "render": _VIDEO,
    "env_kwargs": "+mdp.kwargs.NAME=VALUE",
    "env_config": "+mdp.kwargs.NAME=VALUE",
    "framework": "nothing to choose: PyTorch",
    "torch_deterministic": "nothing to choose: the same seed gives the same bits",
    "load": "resume={value} to go on, or init={value} for a new run from its policy",
    "restore": "resume={value} to go on, or init={value} for a new run from its policy",
    "run": "resume={value} to go on, or init={value} for a new run from its policy",
}
"""By word: what to type where no key takes the same value."""
SWITCHES = {
    **dict.fromkeys(("prioritized_replay", "per"), ("rl.sampling=prioritized", "rl.sampling=uniform")),
    **dict.fromkeys(("track", "wandb", "use_wandb"), ("record.wandb=online", "record.wandb=disabled")),
    **dict.fromkeys(("cuda", "use_cuda", "use_gpu", "gpu"), ("device=cuda", "device=cpu")),
}
"""By word: what to type for true and for false."""
ENVIRONMENT = ("env", "env_id", "env_name", "gym_id", "environment")
"""Words for the environment, whose value decides between a world of evorl and an id of gymnasium."""
_FALSE = ("false", "no", "off", "0", "null")


def renamed(word: str, has: Callable[[str], bool] = lambda key: True) -> str | None:
    """Return the key of evorl that takes the values of another suite's; None if the word is in no table.

    ``has`` says whether the chosen algorithm has a key: a word may mean another key for another one.
    """
    keys = [table[word] for table in (KEYS, OTHERS) if word in table]
    return next((key for key in keys if has(key)), keys[0] if keys else None)


def translate(
    word: str, value: str, worlds: Collection[str], has: Callable[[str], bool] = lambda key: True
) -> str | None:
    """Return evorl's KEY=VALUE words for another suite's ``word=value``; None if the word is in no table.

    ``worlds`` are the choices of ``mdp``. A dashed spelling (``env-id``) counts as the underscored one.
    """
    word = word.replace("-", "_")
    if word in ENVIRONMENT:
        return f"mdp={value}" if value in worlds else f"mdp=gymnasium mdp.id={value}"
    if key := renamed(word, has):
        return f"{key}={value.lower() if key == 'rl' else value}"
    if word in SWITCHES:
        return SWITCHES[word][value.lower() in _FALSE]
    return PHRASES[word].format(value=value) if word in PHRASES else None

"""One population: the loop between an evolver and the cluster that evaluates its individuals.

Here: ask and tell, evaluation of individuals, how they travel to workers, genes, warm starts.
Not here: the evolutionary algorithms (`evorl.ec`) and the learners (`evorl.rl`).
Start reading: `evorl.population.core`, then `evorl.population.loop`.
"""

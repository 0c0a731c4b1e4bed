# An example: two marchers on a line, who rest or walk; a walk tires, and who is tired must rest. Whoever is first at the end wins.
# It offers masks. Play it for evorl:
#
#     python -m evorl.run mdp=remote "mdp.command='godot3-server --path {clients}/godot -s march.gd'"

extends SceneTree

const Evorl = preload("evorl.gd")
const OFFER = {
	"game": "march",
	"sides": ["left", "right"],
	"inputs": [{"name": "view", "shape": [4], "features": ["own place", "other place", "strength", "other strength"]}],
	"action": {"kind": "discrete", "n": [3], "names": [["rest", "walk", "run"]]},
	"masked": true,
	"results": ["fitness"],
	"battles": 64,
	"repeats": true,
}

var client


func _init():
	client = Evorl.new(OFFER, self, "begin")


func begin(battle):
	return March.new(battle)


func _idle(_delta):
	if not client.poll():
		quit()


class March:
	const WAY = 12
	const LONGEST = 60
	var battle
	var places = [0, 0]
	var strength = [3, 3]
	var chosen = {}
	var time = 0
	var draw = RandomNumberGenerator.new()

	func _init(its_battle):
		battle = its_battle
		draw.seed = battle.seed_number  # all chance comes from it
		places = [draw.randi_range(0, 3), draw.randi_range(0, 3)]
		for side in battle.players:
			battle.ask(side, seen(side))

	func act(side, action):
		chosen[side] = action[0]
		if chosen.size() == battle.players.size():
			step()

	func step():
		time += 1
		for side in chosen:
			places[side] += [0, 1, 2][chosen[side]]
			strength[side] = min(strength[side] + [2, -1, -2][chosen[side]], 6)
		chosen.clear()
		var there = [places[0] >= WAY, places[1] >= WAY]
		for side in battle.players:
			var row = seen(side)
			row["cost"] = 1
			if there[0] or there[1] or time == LONGEST:
				row["reward"] = float(there[side]) - float(there[1 - side])
				row["results"] = {"fitness": 0.5 + 0.5 * row["reward"]}
				row["truncated"] = not there[0] and not there[1]
				battle.end(side, row)
			else:
				battle.ask(side, row)

	func seen(side):
		var other = 1 - side
		return {
			"inputs": [[float(places[side]) / WAY, float(places[other]) / WAY, strength[side] / 6.0, strength[other] / 6.0]],
			"legal": [1, int(strength[side] >= 1), int(strength[side] >= 2)],
		}

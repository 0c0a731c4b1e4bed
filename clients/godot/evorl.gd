# Connect a game in Godot 3 to evorl. One file without dependencies: copy it into the project.
#
# A game offers what its sides see and do, and plays battles that evorl begins:
#
#     var client = preload("evorl.gd").new(offer, self, "begin")    # begin(battle) returns an object with act(side, action)
#     func _process(_delta): if not client.poll(): get_tree().quit()
#
# battle.seed_number is the source of all its chance, battle.players are the sides that evorl decides for. Call
# battle.ask(side, row) for each side when a battle begins, also in a game of turns, and later for a side that must decide; and
# battle.end(side, row) once for each side when its episode is over. A row is a dictionary: inputs (an array of numbers for each
# input), legal (0 or 1 for each choice, with masks), reward (a number, or an array of them), cost (steps since the side's last
# decision); for end also results (a dictionary) and truncated. The object may have leave(). The protocol is that of docs/remote.md.

extends Reference

const PROTOCOL = 1

var _offer
var _owner
var _begin
var _peer = StreamPeerTCP.new()
var _battles = {}
var _columns
var _rows = 0
var _heard = 0  # messages that have come
var _said = 0  # those that evorl knows of
var _greeted = false
var _token
var why = ""  # evorl's reason, if it has closed the connection, or what is wrong with the address


func _init(offer, owner, begin, address = OS.get_environment("EVORL_ADDRESS"), token = OS.get_environment("EVORL_TOKEN")):
	_offer = offer
	_owner = owner
	_begin = begin
	_token = token
	_clear()
	var form = RegEx.new()
	form.compile("^(?:\\[([^\\]/]+)\\]|([^:/\\[\\]]+)):([0-9]+)$")
	var found = form.search(address)
	if found == null or int(found.get_string(3)) > 65535:
		why = "EVORL_ADDRESS must be HOST:PORT for this client, such as 127.0.0.1:5005, and is '%s'" % address
		printerr(why)
		return
	_peer.connect_to_host(found.get_string(1) + found.get_string(2), int(found.get_string(3)))


# Send what battles have asked, and pass on what has arrived; return false once evorl has closed the connection.
func poll():
	if _peer.get_status() == StreamPeerTCP.STATUS_CONNECTING:
		return true
	if _peer.get_status() != StreamPeerTCP.STATUS_CONNECTED:
		return false
	if not _greeted:
		_greeted = true
		_peer.set_no_delay(true)
		var hello = _offer.duplicate()
		hello["type"] = "hello"
		hello["protocol"] = PROTOCOL
		hello["token"] = _token
		_send(hello)
	_flush()
	while _peer.get_available_bytes() >= 4:
		var size = _peer.get_u32()
		var got = _peer.get_data(size)  # waits for the rest of the message
		if got[0] != OK:
			return false
		_take(_unpack(got[1]))
		_flush()
	return _peer.get_status() == StreamPeerTCP.STATUS_CONNECTED


# Leave evorl. The game's battles are lost at once, and not after mdp.deadline_s.
func close():
	_peer.disconnect_from_host()


func _take(message):
	if message["type"] in ["act", "begin", "leave"]:
		_heard += 1
	match message["type"]:
		"act":
			_act(message)
		"begin":
			var battle = Battle.new(self, message["battle"], message["seed"], message["players"])
			_battles[battle.number] = battle
			var game = _owner.call(_begin, battle)
			if _battles.has(battle.number):  # else it is over already
				battle.game = game
		"leave":
			var battle = _battles.get(message["battle"])
			if battle != null:
				var game = battle.game
				battle._over()
				if game != null and game.has_method("leave"):
					game.leave()
		"refused":
			why = message["why"]


func _act(message):
	var numbers = _reader(message["battle"])
	var values = _reader(message["action"])
	var discrete = _offer["action"]["kind"] == "discrete"
	var width = (_offer["action"]["n"] if discrete else _offer["action"]["low"]).size()
	for side in message["side"]:
		var battle = _battles.get(numbers.get_u32())
		var action = []
		for _k in range(width):
			action.append(values.get_32() if discrete else values.get_float())
		if battle != null and side in battle._open:
			var game = battle.game  # it may end the battle
			game.act(side, action)


# ------------------------------------------------------------------ to evorl


func _clear():
	_rows = 0
	_columns = {}
	for name in ["battle", "side", "cost", "end", "reward", "legal", "results"]:
		_columns[name] = StreamPeerBuffer.new()
	_columns["inputs"] = []
	for _input in _offer["inputs"]:
		_columns["inputs"].append(StreamPeerBuffer.new())


# What of a row is not as offered; else empty.
func _fault(end, row):
	var reward = row.get("reward")
	var rewards = _offer.get("rewards", ["reward"]).size()
	if reward != null and (reward.size() if reward is Array else 1) != rewards:
		return "a row has %d rewards, and got %s" % [rewards, reward]
	if row["inputs"].size() != _offer["inputs"].size():
		return "a row has %d inputs, and got %d" % [_offer["inputs"].size(), row["inputs"].size()]
	for k in range(_offer["inputs"].size()):
		var size = 1
		for n in _offer["inputs"][k]["shape"]:
			size *= n
		if row["inputs"][k].size() != size:
			return "input '%s' has %d numbers, and a row had %d" % [_offer["inputs"][k]["name"], size, row["inputs"][k].size()]
	var choices = 0
	if _offer.get("masked", false):
		for n in _offer["action"]["n"]:
			choices += n
	if row.get("legal", []).size() != choices:
		if choices == 0:
			return "legal choices are given, and the offer does not say masked"
		return "a row has %d legal or illegal choices, and got %d" % [choices, row.get("legal", []).size()]
	for name in _offer.get("results", []) if end != 0 else []:
		if not row.get("results", {}).has(name):
			return "an episode ends without its result '%s', which the offer names" % name
	return ""


# Add a row to the next message. GDScript has no exceptions, so a battle with a row that is not as offered is given up.
func _row(battle, side, end, row):
	var wrong = _fault(end, row)
	if wrong != "":
		push_error("evorl: " + wrong)
		battle.fail(wrong)
		return
	_columns["battle"].put_u32(battle.number)
	_columns["side"].put_u8(side)
	_columns["cost"].put_u32(row.get("cost", 0 if end == 0 else 1))
	_columns["end"].put_u8(end)
	var reward = row.get("reward")
	if reward == null:  # zeros
		reward = []
		for _name in _offer.get("rewards", ["reward"]):
			reward.append(0.0)
	for x in reward if reward is Array else [reward]:
		_columns["reward"].put_float(x)
	for k in range(_offer["inputs"].size()):
		var whole = _offer["inputs"][k].get("dtype", "float32") == "uint8"
		for x in row["inputs"][k]:
			if whole:
				_columns["inputs"][k].put_u8(x)
			else:
				_columns["inputs"][k].put_float(x)
	for x in row.get("legal", []):
		_columns["legal"].put_u8(int(x))
	if end != 0:
		for name in _offer.get("results", []):
			_columns["results"].put_double(row["results"][name])
	_rows += 1


func _flush():
	if _rows == 0 and _heard == _said:
		return
	_said = _heard
	var message = {"type": "ask", "heard": _heard, "inputs": []}
	for name in _columns:
		if name == "inputs":
			for column in _columns["inputs"]:
				message["inputs"].append(column.data_array)
		else:
			message[name] = _columns[name].data_array
	_clear()
	_send(message)


func _send(message):
	var into = StreamPeerBuffer.new()
	into.big_endian = true
	_pack(message, into)
	var length = StreamPeerBuffer.new()
	length.put_u32(into.data_array.size())
	_peer.put_data(length.data_array)
	_peer.put_data(into.data_array)


# One episode.
class Battle:
	var number
	var seed_number
	var players
	var game
	var _client
	var _open  # the players whose episodes go on

	func _init(client, its_number, its_seed, its_players):
		_client = weakref(client)
		number = its_number
		seed_number = its_seed
		players = its_players
		_open = players.duplicate()

	func ask(side, row):
		_client.get_ref()._row(self, side, 0, row)

	func end(side, row):
		_client.get_ref()._row(self, side, 2 if row.get("truncated", false) else 1, row)
		_open.erase(side)
		if _open.empty():
			_over()

	# Give the battle up.
	func fail(why):
		_over()
		_client.get_ref()._send({"type": "failed", "battle": number, "why": why})

	# Forget the game: it refers to the battle, and Godot frees no objects that refer to each other.
	func _over():
		_client.get_ref()._battles.erase(number)
		game = null


# ------------------------------------------------------------------ msgpack, as far as the protocol needs it


static func _pack(value, into):
	match typeof(value):
		TYPE_NIL:
			into.put_u8(0xc0)
		TYPE_BOOL:
			into.put_u8(0xc3 if value else 0xc2)
		TYPE_INT:
			into.put_u8(0xd3)
			into.put_64(value)
		TYPE_REAL:
			into.put_u8(0xcb)
			into.put_double(value)
		TYPE_STRING:
			into.put_u8(0xdb)
			_put(value.to_utf8(), into)
		TYPE_RAW_ARRAY:
			into.put_u8(0xc6)
			_put(value, into)
		TYPE_ARRAY, TYPE_INT_ARRAY, TYPE_REAL_ARRAY, TYPE_STRING_ARRAY:
			into.put_u8(0xdd)
			into.put_u32(value.size())
			for item in value:
				_pack(item, into)
		TYPE_DICTIONARY:
			into.put_u8(0xdf)
			into.put_u32(value.size())
			for key in value:
				_pack(key, into)
				_pack(value[key], into)
		_:
			push_error("evorl: a value of type %d cannot be sent" % typeof(value))
			into.put_u8(0xc0)


static func _put(data, into):
	into.put_u32(data.size())
	if data.size() > 0:
		into.put_data(data)


static func _reader(data):
	var reader = StreamPeerBuffer.new()
	reader.data_array = data
	return reader


static func _unpack(data):
	var reader = _reader(data)
	reader.big_endian = true
	return _value(reader)


static func _number(reader, size):
	match size:
		1:
			return reader.get_u8()
		2:
			return reader.get_u16()
		4:
			return reader.get_u32()
	return reader.get_u64()


static func _value(reader):
	var code = reader.get_u8()
	if code < 0x80 or code >= 0xe0:
		return code if code < 0x80 else code - 256
	if code < 0x90:
		return _map(reader, code & 15)
	if code < 0xa0:
		return _list(reader, code & 15)
	if code < 0xc0:
		return _data(reader, code & 31).get_string_from_utf8()
	match code:
		0xc2, 0xc3:
			return code == 0xc3
		0xc4, 0xc5, 0xc6:
			return _data(reader, _number(reader, 1 << (code - 0xc4)))
		0xca:
			return reader.get_float()
		0xcb:
			return reader.get_double()
		0xcc, 0xcd, 0xce, 0xcf:
			return _number(reader, 1 << (code - 0xcc))
		0xd0:
			return reader.get_8()
		0xd1:
			return reader.get_16()
		0xd2:
			return reader.get_32()
		0xd3:
			return reader.get_64()
		0xd9, 0xda, 0xdb:
			return _data(reader, _number(reader, 1 << (code - 0xd9))).get_string_from_utf8()
		0xdc, 0xdd:
			return _list(reader, _number(reader, 2 << (code - 0xdc)))
		0xde, 0xdf:
			return _map(reader, _number(reader, 2 << (code - 0xde)))
	return null


static func _data(reader, size):
	return reader.get_data(size)[1] if size > 0 else PoolByteArray()


static func _list(reader, size):
	var items = []
	for _k in range(size):
		items.append(_value(reader))
	return items


static func _map(reader, size):
	var items = {}
	for _k in range(size):
		var key = _value(reader)
		items[key] = _value(reader)
	return items

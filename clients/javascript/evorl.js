/* Connect a game in JavaScript to evorl, in node (18 or newer) or in a browser. One file without dependencies.

   A game offers what its sides see and do, and plays battles that evorl begins:

     new Evorl.Client(OFFER, (battle) => new MyBattle(battle));

   `battle.seed` is the source of all its chance, `battle.players` are the sides that evorl decides for. MyBattle has
   `act(side, action)`, which gets evorl's answers, and may have `leave()`. It calls `battle.ask(side, {inputs, ...})` for each
   side when it begins, also in a game of turns, and later for a side that must decide; and `battle.end(side, {inputs, ...})`
   once for each side when its episode is over.

   In node the address and the token are those of the environment, over TCP or a Unix socket. In a browser give
   `{address: "ws://127.0.0.1:5005", token}`. The protocol is that of docs/remote.md. */

"use strict";

(function (root) {
  const PROTOCOL = 1;
  const GOES_ON = 0, TERMINATED = 1, TRUNCATED = 2;
  const SIZES = { u1: 1, u4: 4, f4: 4, f8: 8 };

  class Client {
    /* `offer`: the fields of a hello; `begin`: makes a battle; `options`: address, token, closed(why). */
    constructor(offer, begin, options = {}) {
      const environment = typeof process === "undefined" ? {} : process.env;
      const token = options.token ?? environment.EVORL_TOKEN ?? "";
      this.offer = offer;
      this.begin = begin;
      this.battles = new Map();
      this.rewards = (offer.rewards ?? ["reward"]).length;
      this.results = offer.results ?? [];
      this.sizes = offer.inputs.map((each) => each.shape.reduce((size, n) => size * n, 1));
      this.kinds = offer.inputs.map((each) => ((each.dtype ?? "float32") === "float32" ? "f4" : "u1"));
      this.discrete = offer.action.kind === "discrete";
      this.width = (this.discrete ? offer.action.n : offer.action.low).length;
      this.choices = offer.masked ? offer.action.n.reduce((sum, n) => sum + n, 0) : 0;
      this.scheduled = false;
      this.heard = 0; // messages that have come
      this.why = "";
      this.closed = options.closed ?? ((why) => { if (why) throw new Error(why); });
      this.clear();
      const address = options.address ?? environment.EVORL_ADDRESS ?? "";
      this.line = /^wss?:/.test(address) ? new WebSocketLine(address, this) : new SocketLine(address, this);
      this.line.opened = () => this.send({ type: "hello", protocol: PROTOCOL, token, ...offer });
    }

    close() {
      this.line.close();
    }

    /* The connection is gone, so no battle is needed any more. */
    ended() {
      for (const battle of this.battles.values()) if (battle.game && battle.game.leave) battle.game.leave();
      this.battles.clear();
      this.closed(this.why);
    }

    // ---------------------------------------------------------- from evorl

    take(bytes) {
      const message = unpack(bytes);
      if (["act", "begin", "leave"].includes(message.type)) {
        this.heard += 1;
        this.schedule(); // also if nobody asks: evorl learns that nothing else comes of it
      }
      if (message.type === "act") {
        this.act(message);
      } else if (message.type === "begin") {
        const battle = new Battle(this, message.battle, message.seed, message.players);
        this.battles.set(battle.number, battle);
        battle.game = this.begin(battle);
      } else if (message.type === "leave") {
        const battle = this.battles.get(message.battle);
        this.battles.delete(message.battle);
        if (battle && battle.game && battle.game.leave) battle.game.leave();
      } else if (message.type === "refused") {
        this.why = message.why;
      }
    }

    act({ battle, side, action }) {
      const numbers = new DataView(battle.buffer, battle.byteOffset, battle.byteLength);
      const values = new DataView(action.buffer, action.byteOffset, action.byteLength);
      const read = (at) => (this.discrete ? values.getInt32(4 * at, true) : values.getFloat32(4 * at, true));
      for (let row = 0; row < side.length; row += 1) {
        const played = this.battles.get(numbers.getUint32(4 * row, true));
        if (played && played.open.has(side[row])) {
          const all = Array.from({ length: this.width }, (_, k) => read(row * this.width + k));
          played.game.act(side[row], this.discrete && this.width === 1 ? all[0] : all);
        }
      }
    }

    // ---------------------------------------------------------- to evorl

    clear() {
      this.columns = { battle: new Column("u4"), side: new Column("u1"), cost: new Column("u4"), end: new Column("u1"),
        reward: new Column("f4"), legal: new Column("u1"), results: new Column("f8") };
      this.inputs = this.kinds.map((kind) => new Column(kind));
    }

    /* Add a row to the next message, or nothing of it if it is not as offered. */
    row(number, side, end, { inputs, legal = [], reward = new Array(this.rewards).fill(0), cost, results = {} }) {
      const { columns } = this, rewards = typeof reward === "number" ? [reward] : reward;
      const lacking = end ? this.results.find((name) => !(name in results)) : undefined;
      if (lacking) throw new Error(`an episode ends without its result '${lacking}', which the offer names`);
      if (legal.length !== this.choices) {
        throw new Error(this.choices ? `a row has ${this.choices} legal or illegal choices, and got ${legal.length}`
          : "legal choices are given, and the offer does not say masked");
      }
      if (rewards.length !== this.rewards) throw new Error(`a row has ${this.rewards} rewards, and got ${rewards.length}`);
      this.sizes.forEach((size, k) => {
        const got = inputs[k] && inputs[k].length;
        if (got !== size) throw new Error(`input '${this.offer.inputs[k].name}' has ${size} numbers, and a row had ${got}`);
      });
      columns.battle.push([number]);
      columns.side.push([side]);
      columns.cost.push([cost]);
      columns.end.push([end]);
      columns.reward.push(rewards);
      columns.legal.push(legal);
      if (end) columns.results.push(this.results.map((name) => results[name]));
      this.inputs.forEach((column, k) => column.push(inputs[k]));
      this.schedule();
    }

    /* What is asked in the same moment goes out in one message. */
    schedule() {
      if (!this.scheduled) {
        this.scheduled = true;
        queueMicrotask(() => this.flush());
      }
    }

    flush() {
      this.scheduled = false;
      const message = { type: "ask", heard: this.heard, inputs: this.inputs.map((column) => column.bytes()) };
      for (const [name, column] of Object.entries(this.columns)) message[name] = column.bytes();
      this.clear();
      this.send(message);
    }

    send(message) {
      this.line.send(pack(message));
    }
  }

  /* One episode. */
  class Battle {
    constructor(client, number, seed, players) {
      Object.assign(this, { client, number, seed, players, game: null, open: new Set(players) });
    }

    /* Ask evorl to decide for a side. `inputs`: a flat array for each input; `legal`: 0 or 1 for each choice, with masks;
       `reward` and `cost`: what came of its last action, and the steps that it took. */
    ask(side, row) {
      this.client.row(this.number, side, GOES_ON, { cost: 0, ...row });
    }

    /* End a side's episode, in its last state; `results` has a number for each offered name. */
    end(side, row) {
      this.client.row(this.number, side, row.truncated ? TRUNCATED : TERMINATED, { cost: 1, ...row });
      this.open.delete(side);
      if (!this.open.size) this.client.battles.delete(this.number);
    }

    /* Give the battle up. */
    fail(why) {
      this.client.battles.delete(this.number);
      this.client.send({ type: "failed", battle: this.number, why });
    }
  }

  /* Numbers of one kind, little-endian, in a buffer that grows. */
  class Column {
    constructor(kind) {
      this.size = SIZES[kind];
      this.view = new DataView(new ArrayBuffer(256));
      this.length = 0;
      this.set = { u1: "setUint8", u4: "setUint32", f4: "setFloat32", f8: "setFloat64" }[kind];
    }

    push(values) {
      const need = this.length + values.length * this.size;
      if (need > this.view.byteLength) {
        const larger = new Uint8Array(2 * need);
        larger.set(this.bytes());
        this.view = new DataView(larger.buffer);
      }
      for (let k = 0; k < values.length; k += 1) this.view[this.set](this.length + k * this.size, values[k], true);
      this.length = need;
    }

    bytes() {
      return new Uint8Array(this.view.buffer, 0, this.length);
    }
  }

  // ------------------------------------------------------------ lines

  /* What node connects to, as it takes it. */
  function target(address) {
    const form = /^(?:unix:(.+)|(?:\[([^\]/]+)\]|([^:/[\]]+)):([0-9]+))$/;
    const [, path, inBrackets, name, port] = form.exec(address) ?? [];
    const host = inBrackets ?? name;
    if (typeof require === "undefined" || !(path || (host && Number(port) < 65536)))
      throw new Error(`EVORL_ADDRESS must be HOST:PORT or unix:PATH in node, or ws://HOST:PORT, and is '${address}'`);
    return path ? { path } : { host, port: Number(port) };
  }

  /* A socket of node: each message has its length before it. */
  class SocketLine {
    constructor(address, client) {
      const where = target(address);
      this.socket = require("node:net").connect(where, () => this.opened());
      this.socket.setNoDelay(true);
      this.rest = Buffer.alloc(0);
      this.socket.on("data", (data) => {
        this.rest = this.rest.length ? Buffer.concat([this.rest, data]) : data;
        while (this.rest.length >= 4) {
          const size = this.rest.readUInt32LE(0);
          if (this.rest.length - 4 < size) break;
          const message = this.rest.subarray(4, 4 + size);
          this.rest = this.rest.subarray(4 + size); // before it is played: no error plays it again
          client.take(message);
        }
      });
      this.socket.on("error", (error) => {
        if (!["EPIPE", "ECONNRESET"].includes(error.code)) client.why = client.why || error.message; // else evorl has ended
      });
      this.socket.on("close", () => client.ended());
    }

    send(bytes) {
      const length = Buffer.alloc(4);
      length.writeUInt32LE(bytes.length);
      this.socket.cork();
      this.socket.write(length);
      this.socket.write(bytes);
      this.socket.uncork();
    }

    close() {
      this.socket.destroy();
    }
  }

  /* A WebSocket: each binary message is one message. */
  class WebSocketLine {
    constructor(address, client) {
      if (typeof WebSocket === "undefined") throw new Error(`${address} needs a browser, or node 22 or newer`);
      this.socket = new WebSocket(address);
      this.socket.binaryType = "arraybuffer";
      this.socket.onopen = () => this.opened();
      this.socket.onmessage = ({ data }) => client.take(new Uint8Array(data));
      this.socket.onclose = () => client.ended();
    }

    send(bytes) {
      this.socket.send(bytes);
    }

    close() {
      this.socket.close();
    }
  }

  // ------------------------------------------------------------ msgpack, as far as the protocol needs it

  /* Encode null, booleans, numbers, text, Uint8Array, arrays and objects. */
  function pack(value) {
    const parts = [];
    write(value, parts);
    const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
      bytes.set(part, at);
      at += part.length;
    }
    return bytes;
  }

  function head(code, size, write, value) {
    const view = new DataView(new ArrayBuffer(1 + size));
    view.setUint8(0, code);
    view[write](1, value);
    return new Uint8Array(view.buffer);
  }

  function write(value, parts) {
    if (value === null || value === undefined) parts.push(Uint8Array.of(0xc0));
    else if (typeof value === "boolean") parts.push(Uint8Array.of(value ? 0xc3 : 0xc2));
    else if (typeof value === "number" && Number.isSafeInteger(value)) writeInteger(value, parts);
    else if (typeof value === "number") parts.push(head(0xcb, 8, "setFloat64", value));
    else if (typeof value === "string") {
      const bytes = new TextEncoder().encode(value);
      parts.push(head(0xdb, 4, "setUint32", bytes.length), bytes);
    } else if (value instanceof Uint8Array) parts.push(head(0xc6, 4, "setUint32", value.length), value);
    else if (ArrayBuffer.isView(value)) write(Array.from(value), parts);
    else if (Array.isArray(value)) {
      parts.push(head(0xdd, 4, "setUint32", value.length));
      for (const item of value) write(item, parts);
    } else {
      const pairs = Object.entries(value);
      parts.push(head(0xdf, 4, "setUint32", pairs.length));
      for (const [key, item] of pairs) {
        write(key, parts);
        write(item, parts);
      }
    }
  }

  function writeInteger(value, parts) {
    if (value >= 0 && value < 128) parts.push(Uint8Array.of(value));
    else parts.push(head(0xd3, 8, "setBigInt64", BigInt(value)));
  }

  /* Decode one value; integers beyond 2^53 lose their last bits. */
  function unpack(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let at = 0;
    const sizes = { 0xc4: 1, 0xc5: 2, 0xc6: 4, 0xd9: 1, 0xda: 2, 0xdb: 4, 0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4 };
    const numbers = { 0xca: "getFloat32", 0xcb: "getFloat64", 0xcc: "getUint8", 0xcd: "getUint16", 0xce: "getUint32",
      0xcf: "getBigUint64", 0xd0: "getInt8", 0xd1: "getInt16", 0xd2: "getInt32", 0xd3: "getBigInt64" };
    const take = (read, size) => {
      const value = view[read](at);
      at += size;
      return value;
    };
    const part = (size) => {
      const found = bytes.subarray(at, at + size);
      at += size;
      return found;
    };
    const text = (size) => new TextDecoder().decode(part(size));
    const list = (size) => Array.from({ length: size }, () => value());
    const map = (size) => {
      const found = {};
      for (let k = 0; k < size; k += 1) found[value()] = value();
      return found;
    };
    const value = () => {
      const code = take("getUint8", 1);
      if (code < 0x80) return code;
      if (code >= 0xe0) return code - 256;
      if (code < 0x90) return map(code & 15);
      if (code < 0xa0) return list(code & 15);
      if (code < 0xc0) return text(code & 31);
      if (code === 0xc0) return null;
      if (code === 0xc2 || code === 0xc3) return code === 0xc3;
      if (code in numbers) return Number(take(numbers[code], Number(/\d+/.exec(numbers[code])[0]) / 8));
      if (!(code in sizes)) throw new Error(`an extension (${code})`);
      const size = take(`getUint${8 * sizes[code]}`, sizes[code]);
      if (code <= 0xc6) return part(size);
      if (code <= 0xdb) return text(size);
      return code <= 0xdd ? list(size) : map(size);
    };
    return value();
  }

  const all = { Client, Battle, pack, unpack };
  if (typeof module !== "undefined" && module.exports) module.exports = all;
  else root.Evorl = all;
})(typeof globalThis === "undefined" ? this : globalThis);

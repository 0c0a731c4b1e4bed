/* Sumo: two discs push each other out of a ring. An example of a game in real time for evorl; README.md says how to play.

   A tick is 1/30 second. A disc chooses one of 8 directions or none, and may dash, which empties its charge for a second. It
   decides again after 4 ticks. By default time passes only while no disc decides, so battles run as fast as the machine, and
   the same seed and actions repeat a battle. In real time the clock does not wait: a disc goes on as before until its answer
   is there. */

"use strict";

(function (root) {
  const { Client } = typeof require === "undefined" ? root.Evorl : require("../evorl.js");
  const TICK = 1 / 30, DECIDES = 4, REST = 30, LONGEST = 900;
  const RING = 5, RADIUS = 0.6, PUSH = 9, FRICTION = 1.5, DASH = 5, BOUNCE = 0.9;
  const DIRECTIONS = ["none", "E", "NE", "N", "NW", "W", "SW", "S", "SE"];

  const offer = (realTime) => ({
    game: "sumo",
    sides: ["blue", "red"],
    inputs: [{ name: "view", shape: [11],
      features: ["x", "y", "vx", "vy", "ahead x", "ahead y", "ahead vx", "ahead vy", "charge", "other charge", "time left"] }],
    action: { kind: "discrete", n: [9, 2], names: [DIRECTIONS, ["push", "dash"]] },
    masked: true,
    results: ["fitness", "win"],
    battles: 256,
    repeats: !realTime,
    seconds: TICK,
  });

  /* Random numbers in [0, 1) from a seed (mulberry32). */
  function generator(seed) {
    let state = seed | 0;
    return () => {
      state = (state + 0x6d2b79f5) | 0;
      let x = Math.imul(state ^ (state >>> 15), 1 | state);
      x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
      return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
    };
  }

  class Sumo {
    constructor(battle, realTime) {
      this.battle = battle;
      this.time = 0;
      const random = generator(battle.seed), turn = 2 * Math.PI * random();
      this.discs = [0, 1].map((side) => {
        const angle = turn + Math.PI * side + 0.6 * (random() - 0.5), far = RING * (0.4 + 0.3 * random());
        return { x: far * Math.cos(angle), y: far * Math.sin(angle), vx: 0, vy: 0, ax: 0, ay: 0, ready: 0, since: 0, next: 0 };
      });
      this.deciding = new Set(); // sides whose answer is not there yet
      this.askAll();
      if (realTime) this.clock = setInterval(() => this.tick(), 1000 * TICK);
    }

    act(side, [direction, dash]) {
      const disc = this.discs[side], angle = ((direction - 1) * Math.PI) / 4 + Math.PI * side; // each sees itself as blue
      const [x, y] = direction ? [Math.cos(angle), Math.sin(angle)] : [0, 0];
      [disc.ax, disc.ay] = [PUSH * x, PUSH * y];
      if (dash) {
        disc.vx += DASH * x;
        disc.vy += DASH * y;
        disc.ready = this.time + REST;
      }
      disc.next = this.time + DECIDES;
      this.deciding.delete(side);
      while (!this.clock && !this.over && !this.deciding.size) this.tick();
    }

    leave() {
      clearInterval(this.clock);
      this.over = true;
    }

    tick() {
      this.time += 1;
      for (const disc of this.discs) {
        disc.vx += TICK * (disc.ax - FRICTION * disc.vx);
        disc.vy += TICK * (disc.ay - FRICTION * disc.vy);
        disc.x += TICK * disc.vx;
        disc.y += TICK * disc.vy;
      }
      this.collide();
      const out = this.discs.map(({ x, y }) => Math.hypot(x, y) > RING);
      if (out[0] || out[1] || this.time >= LONGEST) this.finish(out);
      else this.askAll();
    }

    /* Discs of the same weight exchange their speeds along the line between them. */
    collide() {
      const [a, b] = this.discs;
      const dx = b.x - a.x, dy = b.y - a.y, far = Math.hypot(dx, dy) || 1e-9, [nx, ny] = [dx / far, dy / far];
      const toward = (b.vx - a.vx) * nx + (b.vy - a.vy) * ny, overlap = 2 * RADIUS - far;
      if (overlap <= 0) return;
      for (const [disc, sign] of [[a, -1], [b, 1]]) {
        disc.x += (sign * nx * overlap) / 2;
        disc.y += (sign * ny * overlap) / 2;
        if (toward < 0) {
          disc.vx -= (sign * nx * toward * (1 + BOUNCE)) / 2;
          disc.vy -= (sign * ny * toward * (1 + BOUNCE)) / 2;
        }
      }
    }

    askAll() {
      for (const side of this.battle.players) {
        const disc = this.discs[side];
        if (disc.next > this.time || this.deciding.has(side)) continue;
        this.deciding.add(side);
        this.battle.ask(side, { ...this.seen(side), cost: this.time - disc.since });
        disc.since = this.time;
      }
    }

    finish(out) {
      clearInterval(this.clock);
      this.over = true;
      for (const side of this.battle.players) {
        const win = 0.5 + 0.5 * (out[1 - side] - out[side]);
        this.battle.end(side, { ...this.seen(side), reward: 2 * win - 1, cost: Math.max(this.time - this.discs[side].since, 1),
          truncated: !out[0] && !out[1], results: { fitness: win, win } });
      }
    }

    /* What a side sees: red sees everything turned by half a circle. */
    seen(side) {
      const sign = 1 - 2 * side, own = this.discs[side], other = this.discs[1 - side];
      const charge = (disc) => 1 - Math.max(disc.ready - this.time, 0) / REST;
      const turned = [own.x / RING, own.y / RING, own.vx / DASH, own.vy / DASH, (other.x - own.x) / RING,
        (other.y - own.y) / RING, (other.vx - own.vx) / DASH, (other.vy - own.vy) / DASH].map((x) => sign * x);
      return { inputs: [[...turned, charge(own), charge(other), 1 - this.time / LONGEST]],
        legal: [...DIRECTIONS.map(() => 1), 1, own.ready <= this.time ? 1 : 0] };
    }
  }

  /* Play for evorl; `began` gets every new battle. */
  function play(realTime, options = {}, began = () => {}) {
    return new Client(offer(realTime), (battle) => {
      const game = new Sumo(battle, realTime);
      began(game);
      return game;
    }, options);
  }

  if (typeof module !== "undefined" && require.main === module) play(process.argv.includes("--realtime"));
  else if (typeof module === "undefined") root.Sumo = { Sumo, play, RING, RADIUS };
})(typeof globalThis === "undefined" ? this : globalThis);

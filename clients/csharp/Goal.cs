// An example: a runner on a line looks for the goal; two sides race, and each decides at its own times. It has box actions, a
// picture as its second input, and two rewards. Compile and play it for evorl:
//
//     mcs -out:goal.exe Evorl.cs Goal.cs
//     python -m evorl.run mdp=remote "mdp.command='mono goal.exe'"

using System;
using System.Collections.Generic;

class Goal : Evorl.IGame
{
    const int Longest = 40, Cells = 8;

    static readonly Dictionary<string, object> Offer = new Dictionary<string, object>
    {
        { "game", "goal" },
        { "sides", new[] { "first", "second" } },
        { "inputs", new[]
            {
                new Dictionary<string, object> { { "name", "places" }, { "shape", new[] { 3 } }, { "features", new[] { "own", "other", "goal" } } },
                new Dictionary<string, object> { { "name", "map" }, { "shape", new[] { Cells } }, { "dtype", "uint8" } },
            } },
        { "action", new Dictionary<string, object> { { "kind", "box" }, { "low", new[] { -1.0 } }, { "high", new[] { 1.0 } } } },
        { "rewards", new[] { "progress", "win" } },
        { "results", new[] { "fitness" } },
        { "battles", 64 },
        { "repeats", true },
    };

    readonly Evorl.Battle battle;
    readonly double[] places = new double[2];
    readonly double goal;
    readonly float[] progress = new float[2];
    readonly int[] until = new int[2], since = new int[2];
    readonly bool[] deciding = new bool[2];
    int time;

    Goal(Evorl.Battle battle)
    {
        this.battle = battle;
        goal = 0.5 + (uint)battle.Seed % 1000 / 2000.0; // all chance comes from the seed
        foreach (var side in battle.Players) Ask(side);
    }

    public void Act(int side, float[] action)
    {
        deciding[side] = false;
        var before = Math.Abs(goal - places[side]);
        places[side] = Math.Max(-1, Math.Min(1, places[side] + 0.1 * Math.Max(-1, Math.Min(1, action[0]))));
        progress[side] = (float)(before - Math.Abs(goal - places[side]));
        until[side] = time + 1 + (Math.Abs(action[0]) > 0.5 ? 1 : 0); // long steps take two ticks
        while (!deciding[0] && !deciding[1] && time < Longest) Tick();
    }

    public void Leave() { time = Longest; }

    void Tick()
    {
        time++;
        var there = Array.ConvertAll(places, place => Math.Abs(goal - place) < 0.05);
        if (there[0] || there[1] || time == Longest)
        {
            foreach (var side in battle.Players)
            {
                var row = Seen(side);
                row.Reward[1] = (there[side] ? 1 : 0) - (there[1 - side] ? 1 : 0);
                row.Results = new[] { 0.5 + 0.5 * row.Reward[1] };
                row.Truncated = !there[0] && !there[1];
                row.Cost = Math.Max(row.Cost, 1);
                battle.End(side, row);
            }
            time = Longest;
            return;
        }
        foreach (var side in battle.Players) if (until[side] <= time) Ask(side);
    }

    void Ask(int side)
    {
        deciding[side] = true;
        battle.Ask(side, Seen(side));
        since[side] = time;
        progress[side] = 0;
    }

    Evorl.Row Seen(int side)
    {
        var map = new float[Cells];
        map[(int)((places[side] + 1) / 2 * (Cells - 1))] = 255;
        return new Evorl.Row
        {
            Inputs = new[] { new[] { (float)places[side], (float)places[1 - side], (float)goal }, map },
            Reward = new[] { progress[side], 0f },
            Cost = (uint)(time - since[side]),
        };
    }

    static void Main() { new Evorl.Client(Offer, battle => new Goal(battle)).Run(); }
}

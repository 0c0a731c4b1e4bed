// Connect a game in C# to evorl: Unity, Godot with .NET, or any program. One file without dependencies (C# 6, .NET 4.5 or newer).
//
// A game offers what its sides see and do, and plays battles that evorl begins:
//
//     class Fight : Evorl.IGame {
//         public Fight(Evorl.Battle battle) { ... }         // battle.Seed, battle.Players: the sides that evorl decides for
//         public void Act(int side, float[] action) { ... } // evorl's answer; whole numbers for choices
//         public void Leave() { ... }                       // the battle is not needed any more
//     }
//     var client = new Evorl.Client(offer, battle => new Fight(battle));
//     client.Run();            // a program of its own; in an engine call client.Poll(0) in each frame instead
//
// A battle calls battle.Ask(side, row) for each side when it begins, also in a game of turns, and later for a side that must decide;
// and battle.End(side, row) once for each side when its episode is over. The protocol is that of docs/remote.md. Numbers are
// little-endian, as on all machines that run Unity.

using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Net.Sockets;
using System.Text;
using System.Text.RegularExpressions;

namespace Evorl
{
    public interface IGame
    {
        void Act(int side, float[] action);
        void Leave();
    }

    /// <summary>What came of a side's last action, and what it sees now.</summary>
    public class Row
    {
        public float[][] Inputs;             // the numbers of each input; for uint8 inputs whole numbers
        public bool[] Legal = new bool[0];   // one for each choice, with masks
        public float[] Reward;               // one for each reward that is offered; null: zeros
        public uint Cost;                    // environment steps since the side's last decision
        public double[] Results = new double[0]; // when it ends, in the order of the offer
        public bool Truncated;               // cut off, as by a time limit
    }

    /// <summary>evorl has closed the connection; the message says why, if evorl did.</summary>
    public class ClosedException : IOException
    {
        public ClosedException(string why) : base(why) { }
    }

    public class Client : IDisposable
    {
        public const int Protocol = 1;
        readonly Func<Battle, IGame> begin;
        readonly Socket socket;
        readonly NetworkStream stream;
        readonly Dictionary<long, Battle> battles = new Dictionary<long, Battle>();
        readonly bool[] bytes;
        readonly bool discrete, masked;
        readonly int width, rewards, choices, results;
        readonly int[] sizes;
        Columns columns;
        long heard, said; // messages that have come, and those that evorl knows of

        /// <param name="offer">The fields of a hello: text, numbers, booleans, arrays of these, and dictionaries.</param>
        public Client(Dictionary<string, object> offer, Func<Battle, IGame> begin, string address = null, string token = null)
        {
            this.begin = begin;
            var action = (Dictionary<string, object>)offer["action"];
            discrete = (string)action["kind"] == "discrete";
            width = ((Array)action[discrete ? "n" : "low"]).Length;
            masked = offer.ContainsKey("masked") && (bool)offer["masked"];
            choices = masked ? ((Array)action["n"]).Cast<object>().Sum(n => Convert.ToInt32(n)) : 0;
            results = offer.ContainsKey("results") ? ((Array)offer["results"]).Length : 0;
            var inputs = (Dictionary<string, object>[])offer["inputs"];
            bytes = Array.ConvertAll(inputs, each => each.ContainsKey("dtype") && (string)each["dtype"] == "uint8");
            sizes = Array.ConvertAll(inputs, each => ((Array)each["shape"]).Cast<object>().Aggregate(1, (size, n) => size * Convert.ToInt32(n)));
            rewards = offer.ContainsKey("rewards") ? ((Array)offer["rewards"]).Length : 1;
            columns = new Columns(inputs.Length);
            var connected = Connected(address ?? Environment.GetEnvironmentVariable("EVORL_ADDRESS") ?? "");
            connected.NoDelay = true;
            socket = connected.Client;
            stream = connected.GetStream();
            var hello = new Dictionary<string, object>(offer);
            hello["type"] = "hello";
            hello["protocol"] = Protocol;
            hello["token"] = token ?? Environment.GetEnvironmentVariable("EVORL_TOKEN") ?? "";
            Send(hello);
        }

        static TcpClient Connected(string address)
        {
            var found = Regex.Match(address, @"^(?:\[([^\]/]+)\]|([^:/\[\]]+)):([0-9]+)$");
            ushort port;
            if (!ushort.TryParse(found.Groups[3].Value, out port))
                throw new ArgumentException("EVORL_ADDRESS must be HOST:PORT for this client, such as 127.0.0.1:5005, and is '" + address + "'");
            return new TcpClient(found.Groups[1].Value + found.Groups[2].Value, port);
        }

        /// <summary>Play until evorl closes the connection.</summary>
        public void Run()
        {
            try { while (true) Poll(-1); }
            catch (ClosedException closed) { if (closed.Message != "") throw; }
        }

        /// <summary>Send what battles have asked, and pass on what has arrived within so many milliseconds (-1: no end).
        /// Throws ClosedException once the connection is closed.</summary>
        public void Poll(int milliseconds)
        {
            Flush();
            if (milliseconds >= 0 && !Readable(milliseconds)) return;
            do Take((Dictionary<string, object>)MessagePack.Unpack(Read(BitConverter.ToInt32(Read(4), 0))));
            while (stream.DataAvailable);
            Flush();
        }

        /// <summary>Leave evorl, as in OnDestroy of Unity. The game's battles are lost at once, and not after mdp.deadline_s.</summary>
        public void Dispose() { socket.Close(); }

        /// <summary>Whether something arrives in this time. The end of the connection does, too: Read says so.</summary>
        bool Readable(int milliseconds)
        {
            return socket.Poll((int)Math.Min(1000L * milliseconds, int.MaxValue), SelectMode.SelectRead);
        }

        byte[] Read(int size)
        {
            var data = new byte[size];
            for (var at = 0; at < size;)
            {
                int read;
                try { read = stream.Read(data, at, size - at); }
                catch (IOException) { read = 0; }
                if (read == 0) throw new ClosedException("");
                at += read;
            }
            return data;
        }

        void Take(Dictionary<string, object> message)
        {
            var type = (string)message["type"];
            if (type == "act" || type == "begin" || type == "leave") heard++;
            if (type == "act") Act((byte[])message["battle"], (byte[])message["side"], (byte[])message["action"]);
            else if (type == "begin")
            {
                var players = Array.ConvertAll((object[])message["players"], Convert.ToInt32);
                var battle = new Battle(this, Convert.ToInt64(message["battle"]), Convert.ToInt32(message["seed"]), players);
                battles[battle.Number] = battle;
                battle.Game = begin(battle);
            }
            else if (type == "leave")
            {
                Battle battle;
                if (!battles.TryGetValue(Convert.ToInt64(message["battle"]), out battle)) return;
                battles.Remove(battle.Number);
                if (battle.Game != null) battle.Game.Leave();
            }
            else if (type == "refused") throw new ClosedException((string)message["why"]);
        }

        void Act(byte[] numbers, byte[] sides, byte[] actions)
        {
            for (var row = 0; row < sides.Length; row++)
            {
                Battle battle;
                if (!battles.TryGetValue(BitConverter.ToUInt32(numbers, 4 * row), out battle) || !battle.Open.Contains(sides[row])) continue;
                var action = new float[width];
                for (var k = 0; k < width; k++)
                {
                    var at = 4 * (row * width + k);
                    action[k] = discrete ? BitConverter.ToInt32(actions, at) : BitConverter.ToSingle(actions, at);
                }
                battle.Game.Act(sides[row], action);
            }
        }

        internal void Forget(Battle battle) { battles.Remove(battle.Number); }

        /// <summary>Add a row to the next message, or nothing of it if it is not as offered.</summary>
        internal void Add(Battle battle, int side, byte end, Row row)
        {
            var reward = row.Reward ?? new float[rewards];
            if (reward.Length != rewards) throw new ArgumentException("a row has " + rewards + " rewards, and got " + reward.Length);
            for (var k = 0; k < sizes.Length; k++)
                if (row.Inputs[k].Length != sizes[k])
                    throw new ArgumentException("input " + k + " has " + sizes[k] + " numbers, and a row had " + row.Inputs[k].Length);
            var legal = row.Legal == null ? 0 : row.Legal.Length;
            if (legal != choices)
                throw new ArgumentException(masked ? "a row has " + choices + " legal or illegal choices, and got " + legal
                    : "legal choices are given, and the offer does not say masked");
            var told = row.Results == null ? 0 : row.Results.Length;
            if (end != 0 && told != results) throw new ArgumentException("an episode ends with " + results + " results, and got " + told);
            columns.Add(battle, side, end, row, reward, bytes, masked);
        }

        void Flush()
        {
            if (columns.Rows == 0 && heard == said) return;
            var full = columns.Message();
            columns = new Columns(bytes.Length);
            full["heard"] = said = heard;
            Send(full);
        }

        internal void Send(Dictionary<string, object> message)
        {
            var data = MessagePack.Pack(message);
            var framed = new byte[4 + data.Length];
            BitConverter.GetBytes(data.Length).CopyTo(framed, 0);
            data.CopyTo(framed, 4);
            try { stream.Write(framed, 0, framed.Length); }
            catch (IOException) { throw new ClosedException(""); }
        }
    }

    /// <summary>One episode. Its seed must be the source of all its chance.</summary>
    public class Battle
    {
        public readonly long Number;
        public readonly int Seed;
        public readonly int[] Players;
        internal IGame Game;
        readonly Client client;
        internal readonly HashSet<int> Open;

        internal Battle(Client client, long number, int seed, int[] players)
        {
            this.client = client;
            Number = number;
            Seed = seed;
            Players = players;
            Open = new HashSet<int>(players);
        }

        /// <summary>Ask evorl to decide for a side.</summary>
        public void Ask(int side, Row row) { client.Add(this, side, 0, row); }

        /// <summary>End a side's episode, in its last state.</summary>
        public void End(int side, Row row)
        {
            client.Add(this, side, (byte)(row.Truncated ? 2 : 1), row);
            Open.Remove(side);
            if (Open.Count == 0) client.Forget(this);
        }

        /// <summary>Give the battle up.</summary>
        public void Fail(string why)
        {
            client.Forget(this);
            client.Send(new Dictionary<string, object> { { "type", "failed" }, { "battle", Number }, { "why", why } });
        }
    }

    /// <summary>The rows of one message, side by side.</summary>
    class Columns
    {
        public int Rows;
        readonly Dictionary<string, MemoryStream> parts = new Dictionary<string, MemoryStream>();
        readonly MemoryStream[] inputs;

        public Columns(int inputs)
        {
            foreach (var name in new[] { "battle", "side", "cost", "end", "reward", "legal", "results" }) parts[name] = new MemoryStream();
            this.inputs = new MemoryStream[inputs];
            for (var k = 0; k < inputs; k++) this.inputs[k] = new MemoryStream();
        }

        public void Add(Battle battle, int side, byte end, Row row, float[] reward, bool[] bytes, bool masked)
        {
            Write("battle", BitConverter.GetBytes((uint)battle.Number));
            Write("side", new[] { (byte)side });
            Write("cost", BitConverter.GetBytes(row.Cost));
            Write("end", new[] { end });
            foreach (var x in reward) Write("reward", BitConverter.GetBytes(x));
            for (var k = 0; k < inputs.Length; k++)
                foreach (var x in row.Inputs[k])
                {
                    var data = bytes[k] ? new[] { (byte)x } : BitConverter.GetBytes(x);
                    inputs[k].Write(data, 0, data.Length);
                }
            if (masked) foreach (var x in row.Legal) Write("legal", new[] { (byte)(x ? 1 : 0) });
            if (end != 0 && row.Results != null) foreach (var x in row.Results) Write("results", BitConverter.GetBytes(x));
            Rows++;
        }

        void Write(string name, byte[] data) { parts[name].Write(data, 0, data.Length); }

        public Dictionary<string, object> Message()
        {
            var message = new Dictionary<string, object> { { "type", "ask" } };
            foreach (var part in parts) message[part.Key] = part.Value.ToArray();
            message["inputs"] = Array.ConvertAll(inputs, each => each.ToArray());
            return message;
        }
    }

    /// <summary>msgpack, as far as the protocol needs it.</summary>
    public static class MessagePack
    {
        public static byte[] Pack(object value)
        {
            var into = new MemoryStream();
            Write(value, into);
            return into.ToArray();
        }

        static void Write(object value, MemoryStream into)
        {
            if (value == null) into.WriteByte(0xc0);
            else if (value is bool) into.WriteByte((byte)((bool)value ? 0xc3 : 0xc2));
            else if (value is float || value is double) Head(0xcb, BitConverter.GetBytes(Convert.ToDouble(value)), into);
            else if (value is string)
            {
                var text = Encoding.UTF8.GetBytes((string)value);
                Head(0xdb, BitConverter.GetBytes((uint)text.Length), into);
                into.Write(text, 0, text.Length);
            }
            else if (value is byte[])
            {
                var data = (byte[])value;
                Head(0xc6, BitConverter.GetBytes((uint)data.Length), into);
                into.Write(data, 0, data.Length);
            }
            else if (value is Array)
            {
                var items = (Array)value;
                Head(0xdd, BitConverter.GetBytes((uint)items.Length), into);
                foreach (var item in items) Write(item, into);
            }
            else if (value is Dictionary<string, object>)
            {
                var pairs = (Dictionary<string, object>)value;
                Head(0xdf, BitConverter.GetBytes((uint)pairs.Count), into);
                foreach (var pair in pairs) { Write(pair.Key, into); Write(pair.Value, into); }
            }
            else Head(0xd3, BitConverter.GetBytes(Convert.ToInt64(value)), into);
        }

        static void Head(byte code, byte[] number, MemoryStream into)
        {
            Array.Reverse(number); // msgpack is big-endian
            into.WriteByte(code);
            into.Write(number, 0, number.Length);
        }

        public static object Unpack(byte[] data)
        {
            var at = 0;
            return Value(data, ref at);
        }

        static byte[] Take(byte[] data, ref int at, int size)
        {
            var part = new byte[size];
            Array.Copy(data, at, part, 0, size);
            at += size;
            return part;
        }

        static ulong Number(byte[] data, ref int at, int size)
        {
            ulong value = 0;
            for (var k = 0; k < size; k++) value = value << 8 | data[at++];
            return value;
        }

        static object Value(byte[] data, ref int at)
        {
            var code = data[at++];
            if (code < 0x80) return (long)code;
            if (code >= 0xe0) return (long)code - 256;
            if (code < 0x90) return Map(data, ref at, code & 15);
            if (code < 0xa0) return List(data, ref at, code & 15);
            if (code < 0xc0) return Encoding.UTF8.GetString(Take(data, ref at, code & 31));
            switch (code)
            {
                case 0xc0: return null;
                case 0xc2: case 0xc3: return code == 0xc3;
                case 0xc4: case 0xc5: case 0xc6: return Take(data, ref at, (int)Number(data, ref at, 1 << (code - 0xc4)));
                case 0xca: return (double)BitConverter.ToSingle(Reversed(Take(data, ref at, 4)), 0);
                case 0xcb: return BitConverter.ToDouble(Reversed(Take(data, ref at, 8)), 0);
                case 0xcc: case 0xcd: case 0xce: case 0xcf: return (long)Number(data, ref at, 1 << (code - 0xcc));
                case 0xd0: return (long)(sbyte)Number(data, ref at, 1);
                case 0xd1: return (long)(short)Number(data, ref at, 2);
                case 0xd2: return (long)(int)Number(data, ref at, 4);
                case 0xd3: return (long)Number(data, ref at, 8);
                case 0xd9: case 0xda: case 0xdb: return Encoding.UTF8.GetString(Take(data, ref at, (int)Number(data, ref at, 1 << (code - 0xd9))));
                case 0xdc: case 0xdd: return List(data, ref at, (int)Number(data, ref at, 2 << (code - 0xdc)));
                case 0xde: case 0xdf: return Map(data, ref at, (int)Number(data, ref at, 2 << (code - 0xde)));
                default: throw new InvalidDataException("an extension");
            }
        }

        static byte[] Reversed(byte[] data)
        {
            Array.Reverse(data);
            return data;
        }

        static object List(byte[] data, ref int at, int size)
        {
            var items = new object[size];
            for (var k = 0; k < size; k++) items[k] = Value(data, ref at);
            return items;
        }

        static object Map(byte[] data, ref int at, int size)
        {
            var items = new Dictionary<string, object>();
            for (var k = 0; k < size; k++)
            {
                var key = (string)Value(data, ref at);
                items[key] = Value(data, ref at);
            }
            return items;
        }
    }
}

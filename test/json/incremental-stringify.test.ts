import t from 'tap'
import { isWithin, stringifyIncrementally } from '../../src/json/incremental-stringify.ts'
import { rngOf } from '../simulation/seeded-random.ts'

const PIECE = 128 * 1024
const { rawJSON } = JSON as unknown as { rawJSON(text: string): object }
const written = (value: unknown) => Buffer.concat([...stringifyIncrementally(value)]).toString()

t.test('the pieces of a value are together what JSON.stringify returns', async (t) => {
  const long = 'say "x"\n\u0001'.repeat(PIECE / 4)
  const values: Record<string, unknown> = {
    'a small one': { a: [1, 'two', null, true, { b: [] }] },
    'an empty one': [],
    'a long string': long,
    'long strings in lists and objects': [{ role: 'user', content: [{ text: long }, { text: 'short' }] }, [], {}, [long]],
    'a long name': { [long]: { [long]: 1 }, b: 2 },
    'many values': { list: Array.from({ length: 50_000 }, (_, n) => ({ n })), more: null },
    'members and entries that are undefined': { a: undefined, b: [undefined, long], c: { d: undefined, e: long } },
    'only members that are undefined, beside a long one': [{ [long]: undefined }],
    'numbers that keep their digits': [long, rawJSON('1234567890123456789012')],
    'a member named __proto__': { long, inner: JSON.parse(`{"__proto__":"${'x'.repeat(PIECE)}"}`) as unknown },
  }
  for (const [name, value] of Object.entries(values)) t.ok(written(value) === JSON.stringify(value), name)
})

t.test('surrogate pairs stay whole wherever a piece ends, and lone halves are escaped', async (t) => {
  for (const text of ['😀', '\ud83d😀', '😀\ude00', '\ud83d\ud83d\ude00']) {
    for (const shift of [0, 1, 2, 3]) {
      const value = 'x'.repeat(PIECE - shift) + text.repeat(10)
      t.ok(written(value) === JSON.stringify(value), `${JSON.stringify(text)} after ${shift}`)
    }
  }
})

t.test('random values are written as JSON.stringify writes them', async (t) => {
  const rng = rngOf(7)
  const text = () => String.fromCharCode(...Array.from({ length: rng.whole(0, 8) }, () => rng.whole(0, 0xffff))).repeat(rng.whole(1, rng.chance(0.1) ? 20_000 : 3))
  const value = (depth: number): unknown => {
    const kind = rng.whole(0, depth > 4 ? 3 : 5)
    if (kind === 4) return Array.from({ length: rng.whole(0, 4) }, () => value(depth + 1))
    if (kind === 5) return Object.fromEntries(Array.from({ length: rng.whole(0, 4) }, () => [text(), value(depth + 1)]))
    return [text(), rng.random() * 1e6, null, rng.chance(0.5)][kind]
  }
  for (let n = 0; n < 300; n++) {
    const one = value(0)
    if (written(one) !== JSON.stringify(one)) return t.fail(`value ${n} differs`)
  }
  t.pass()
})

t.test('no piece takes more than a bounded number of characters and values', async (t) => {
  const pieces = [...stringifyIncrementally([Array.from({ length: 100_000 }, () => 1), 'x'.repeat(40 * PIECE)])]
  t.ok(pieces.length > 40)
  t.ok(Math.max(...pieces.map((piece) => piece.length)) <= 2 * PIECE)
})

t.test('values count for a piece as well as characters, and so does the visit that finds a nested one too large', async (t) => {
  const DEPTH = 150
  const ones = Array.from({ length: 90_000 }, () => 1)
  let nested: unknown = 'x'.repeat(2 * PIECE)
  for (let n = 0; n < DEPTH; n++) nested = [nested, 1]
  t.ok([...stringifyIncrementally(ones)].length > 10)
  const pieces = [...stringifyIncrementally(nested)]
  t.ok(pieces.length > DEPTH)
  t.ok(Buffer.concat(pieces).toString() === JSON.stringify(nested))
})

t.test('isWithin counts characters and values, and visits no more than it may', async (t) => {
  t.ok(isWithin('x'.repeat(84), 100))
  t.notOk(isWithin('x'.repeat(85), 100))
  t.notOk(isWithin({ ['x'.repeat(100)]: 1 }, 100))
  t.notOk(isWithin([1, 2, 3, 4, 5, 6, 7], 100))
  let visited = 0
  const list = new Proxy([] as unknown[], { get: (_, name) => (name === 'length' ? 1e9 : (visited++, 1)) })
  t.notOk(isWithin(list, 1_000))
  t.ok(visited < 100)
})

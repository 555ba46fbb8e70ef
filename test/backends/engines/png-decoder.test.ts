/** The PNG decoder of the preview engine, against files that are written here with every colour type, depth and filter. */
import { crc32, deflateSync } from 'node:zlib'
import t from 'tap'
import { decodePng } from '../../../src/backends/engines/preview/png-decoder.ts'
import { seeded } from '../../contracts/store/acme.ts'

const chunk = (type: string, data: Uint8Array): Buffer => {
  const out = Buffer.alloc(12 + data.length)
  out.writeUInt32BE(data.length, 0)
  out.write(type, 4, 'latin1')
  out.set(data, 8)
  out.writeUInt32BE(crc32(out.subarray(4, 8 + data.length)), 8 + data.length)
  return out
}

type Written = { width: number; height: number; depth: number; type: number; interlace?: number; chunks?: Buffer[]; rows: Uint8Array }

function file({ width, height, depth, type, interlace = 0, chunks = [], rows }: Written): Buffer {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header.set([depth, type, 0, 0, interlace], 8)
  const data = deflateSync(rows)
  const [first, second] = [data.subarray(0, data.length >> 1), data.subarray(data.length >> 1)]
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), chunk('IHDR', header), ...chunks, chunk('IDAT', first), chunk('IDAT', second), chunk('IEND', Buffer.alloc(0))])
}

function paeth(a: number, b: number, c: number): number {
  const p = a + b - c
  const [pa, pb, pc] = [Math.abs(p - a), Math.abs(p - b), Math.abs(p - c)]
  return pa <= pb && pa <= pc ? a : pb <= pc ? b : c
}

/** Rows of packed bytes under filters 0 to 4 by turns. */
function filtered(packed: Uint8Array[], step: number): Buffer {
  return Buffer.concat(packed.map((row, y) => {
    const filter = y % 5
    const out = Buffer.alloc(row.length + 1, filter)
    const above = packed[y - 1] ?? new Uint8Array(row.length)
    for (const [i, value] of row.entries()) {
      const [a, b, c] = [row[i - step] ?? 0, above[i] ?? 0, i >= step ? (above[i - step] ?? 0) : 0]
      out[i + 1] = (value - ([0, a, b, (a + b) >> 1, paeth(a, b, c)][filter] ?? 0)) & 255
    }
    return out
  }))
}

const WIDTH = 13
const HEIGHT = 7
const KINDS: [type: number, samples: number, depths: number[]][] = [[0, 1, [1, 2, 4, 8, 16]], [2, 3, [8, 16]], [3, 1, [1, 2, 4, 8]], [4, 2, [8, 16]], [6, 4, [8, 16]]]

t.test('every colour type, depth and filter is decoded to the same pixels', async (t) => {
  const random = seeded(7)
  for (const [type, samples, depths] of KINDS) {
    for (const depth of depths) {
      const values = Array.from({ length: HEIGHT }, () => Array.from({ length: WIDTH * samples }, () => Math.floor(random() * 2 ** depth)))
      const packed = values.map((row) => {
        const bits = row.map((value) => value.toString(2).padStart(depth, '0')).join('')
        return Uint8Array.from((bits.padEnd(Math.ceil(bits.length / 8) * 8, '0').match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2)))
      })
      const palette = Buffer.from(Array.from({ length: 768 }, () => Math.floor(random() * 256)))
      const transparency = Buffer.from(Array.from({ length: 100 }, () => Math.floor(random() * 256)))
      const chunks = type === 3 ? [chunk('PLTE', palette), chunk('tRNS', transparency)] : []
      const picture = decodePng(file({ width: WIDTH, height: HEIGHT, depth, type, chunks, rows: filtered(packed, Math.max(1, (samples * depth) / 8)) }), 1000)
      const eight = (value: number): number => (depth === 16 ? value >> 8 : depth === 8 ? value : Math.trunc(value * (255 / (2 ** depth - 1))))
      const expected = values.flatMap((row) => Array.from({ length: WIDTH }, (_, x) => {
        const [a = 0, b = 0, c = 0, d = 0] = row.slice(x * samples, (x + 1) * samples)
        if (type === 3) return [palette[3 * a] ?? 0, palette[3 * a + 1] ?? 0, palette[3 * a + 2] ?? 0, transparency[a] ?? 255]
        if (samples <= 2) return [eight(a), eight(a), eight(a), samples === 2 ? eight(b) : 255]
        return [eight(a), eight(b), eight(c), samples === 4 ? eight(d) : 255]
      }).flat())
      t.match(picture, { width: WIDTH, height: HEIGHT })
      t.same([...(picture?.rgba ?? [])], expected, `type ${type}, ${depth} bits`)
    }
  }
})

t.test('a broken, interlaced or too large picture decodes to null and takes no memory', async (t) => {
  const good: Written = { width: 4, height: 4, depth: 8, type: 2, rows: Buffer.alloc(4 * 13) }
  const whole = file(good)
  t.match(decodePng(whole, 16), { width: 4 })
  t.equal(decodePng(whole, 15), null, 'more pixels than allowed')
  for (const end of [0, 7, 20, 33, 45, whole.length - 30]) t.equal(decodePng(whole.subarray(0, end), 1000), null, `cut off at ${end}`)
  const wrong: [string, Partial<Written>][] = [
    ['interlaced', { interlace: 1 }], ['no such type', { type: 5 }], ['no such depth', { depth: 4 }], ['no width', { width: 0 }], ['too few rows', { height: 5 }],
    ['more data than the header says', { rows: Buffer.alloc(100_000_000) }], ['no such filter', { rows: Buffer.alloc(4 * 13, 9) }], ['a size beyond all', { width: 0xffff_ffff, height: 0xffff_ffff }],
  ]
  for (const [what, change] of wrong) t.equal(decodePng(file({ ...good, ...change }), 1e6), null, what)
  t.equal(decodePng(Buffer.from('GIF89a'), 1000), null)
})

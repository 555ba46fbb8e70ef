/** PNG (ISO/IEC 15948, RFC 2083): true colour, 8 bits a channel. */
import { crc32, deflateSync } from 'node:zlib'
import type { Canvas } from './canvas.ts'
import { paeth } from './png-decoder.ts'

const SIGNATURE = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1')

function chunk(type: string, data: Uint8Array): Buffer {
  const out = Buffer.alloc(12 + data.length)
  out.writeUInt32BE(data.length, 0)
  out.write(type, 4, 'latin1')
  out.set(data, 8)
  out.writeUInt32BE(crc32(out.subarray(4, 8 + data.length)), 8 + data.length)
  return out
}

/** Encodes a picture, with a text chunk that says where it comes from. */
export function png(canvas: Canvas): Uint8Array {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(canvas.width, 0)
  header.writeUInt32BE(canvas.height, 4)
  header.set([8, 2, 0, 0, 0], 8)
  return Buffer.concat([
    SIGNATURE,
    chunk('IHDR', header),
    chunk('tEXt', Buffer.from('Software\0Tollgate preview engine', 'latin1')),
    chunk('IDAT', deflateSync(filtered(canvas), { level: 6 })),
    chunk('IEND', new Uint8Array()),
  ])
}

/** The rows, each under the filter (Sub, Up or Paeth) that leaves the smallest sum of absolute differences (section 12.8). */
function filtered({ width, height, rgb }: Canvas): Uint8Array {
  const stride = width * 3
  const out = new Uint8Array((stride + 1) * height)
  const tries = [1, 2, 4].map((type) => ({ type, row: new Uint8Array(stride), sum: 0 }))
  let above = new Uint8Array(stride)
  let row = new Uint8Array(stride)
  for (let y = 0; y < height; y++) {
    for (let i = 0; i < stride; i++) row[i] = Math.round(rgb[y * stride + i] ?? 0)
    for (const candidate of tries) candidate.sum = filter(candidate.type, row, above, candidate.row)
    const best = tries.reduce((a, b) => (b.sum < a.sum ? b : a))
    out[y * (stride + 1)] = best.type
    out.set(best.row, y * (stride + 1) + 1)
    ;[above, row] = [row, above]
  }
  return out
}

function filter(type: number, row: Uint8Array, above: Uint8Array, out: Uint8Array): number {
  let sum = 0
  for (let i = 0; i < row.length; i++) {
    const left = row[i - 3] ?? 0
    const up = above[i] ?? 0
    const guess = type === 1 ? left : type === 2 ? up : paeth(left, up, above[i - 3] ?? 0)
    const rest = ((row[i] ?? 0) - guess) & 255
    out[i] = rest
    sum += rest < 128 ? rest : 256 - rest
  }
  return sum
}

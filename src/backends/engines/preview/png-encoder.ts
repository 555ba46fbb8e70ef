/** PNG (ISO/IEC 15948): true colour, 8 bits a channel. */
import { crc32, deflateSync } from 'node:zlib'
import type { Canvas } from '../painter/canvas.ts'

const SIGNATURE = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1')
/** The filter Up: each byte is the difference to the one above. */
const UP = 2

function chunk(type: string, data: Uint8Array): Buffer {
  const out = Buffer.alloc(12 + data.length)
  out.writeUInt32BE(data.length, 0)
  out.write(type, 4, 'latin1')
  out.set(data, 8)
  out.writeUInt32BE(crc32(out.subarray(4, 8 + data.length)), 8 + data.length)
  return out
}

/** Encodes a picture, with a text chunk that says where it comes from. */
export function png({ width, height, rgb }: Canvas): Uint8Array {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header.set([8, 2, 0, 0, 0], 8)
  const [stride, pixels] = [width * 3, Uint8Array.from(rgb, Math.round)]
  const rows = new Uint8Array((stride + 1) * height)
  for (let y = 0; y < height; y++) {
    rows[y * (stride + 1)] = UP
    for (let i = 0, at = y * stride; i < stride; i++, at++) rows[at + y + 1] = (pixels[at] ?? 0) - (pixels[at - stride] ?? 0)
  }
  const text = Buffer.from('Software\0Tollgate preview engine', 'latin1')
  return Buffer.concat([
    SIGNATURE,
    chunk('IHDR', header),
    chunk('tEXt', text),
    chunk('IDAT', deflateSync(rows)),
    chunk('IEND', new Uint8Array()),
  ])
}

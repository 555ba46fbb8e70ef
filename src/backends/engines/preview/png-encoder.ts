/** PNG (ISO/IEC 15948): true colour, 8 bits a channel. */
import { crc32, deflateSync } from 'node:zlib'
import type { Canvas } from '../painter/canvas.ts'

const SIGNATURE = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1')
/** The filter Up: each byte is the difference to the one above. */
const UP = 2

const u32 = (value: number): Buffer => Buffer.of(value >>> 24, value >>> 16, value >>> 8, value)

function chunk(type: string, data: Uint8Array): Buffer {
  const body = Buffer.concat([Buffer.from(type), data])
  return Buffer.concat([u32(data.length), body, u32(crc32(body))])
}

/** Encodes a picture, with a text chunk that says where it comes from. */
export function png({ width, height, rgb }: Canvas): Uint8Array {
  const header = Buffer.concat([u32(width), u32(height), Buffer.of(8, 2, 0, 0, 0)])
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

// oxlint-disable typescript/no-non-null-assertion -- every index is bounded by the block, plane or code table that it runs over
/**
 * One macroblock of an intra picture: predicted, transformed, written, and decoded again (ITU-T H.264, 7.3.5). Everything works in memory
 * that is made once.
 */
import { CHROMA_DC, putBlock, type Bits } from './cavlc.ts'
import { predictor } from './intra-prediction.ts'
import type { Picture, Plane } from './yuv-picture.ts'
import { chromaDcLevels, forward, lumaDcLevels, quantiseAc, reconstruct, scaleChromaDc, scaleLumaDc, ZIGZAG } from './dct-quantization.ts'

/** The luma of a macroblock, or one of its chroma planes. */
type Part = {
  /** Its side in samples. */
  size: 16 | 8
  predicted: Uint8Array
  /** Quantised coefficients of its 4x4 blocks in raster order, each in zigzag order; the first of each is not used. */
  levels: Int32Array
  /** Which of its blocks have coefficients besides DC. */
  hasAc: Uint8Array
  /** DC coefficients by block, and their levels in the order of the bit stream. */
  dc: Int32Array
  dcLevels: Int32Array
  /** How many coefficients each 4x4 block of the picture has, which chooses the code tables. */
  counts: Uint8Array
}

function part(size: 16 | 8, { width, height }: Plane): Part {
  const blocks = (size / 4) ** 2
  return {
    size,
    predicted: new Uint8Array(size * size),
    levels: new Int32Array(blocks * 16),
    hasAc: new Uint8Array(blocks),
    dc: new Int32Array(blocks),
    dcLevels: new Int32Array(blocks),
    counts: new Uint8Array((width / 4) * (height / 4)),
  }
}

/** The order in which a macroblock's blocks are written: of luma four quarters of four blocks each (6.4.3). */
const LUMA_ORDER = Uint8Array.of(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15)
const CHROMA_ORDER = Uint8Array.of(0, 1, 2, 3)

/** Codes the macroblocks of pictures in the order of the bit stream. `decoded` is what a decoder will have, which is what predictions are made from. */
export function macroblockCoder(decoded: Picture): (out: Bits, picture: Picture, x: number, y: number) => void {
  const [sixteen, eight] = [predictor(16), predictor(8)]
  const [luma, cb, cr] = [part(16, decoded.luma), part(8, decoded.cb), part(8, decoded.cr)]

  return (out, picture, x, y) => {
    const mode = sixteen.best(decoded.luma, picture.luma, x, y, luma.predicted)
    const lumaAc = code(luma, picture.luma, decoded.luma, x, y)
    const [cx, cy] = [x / 2, y / 2]
    const chromaMode = eight.best(decoded.cb, picture.cb, cx, cy, cb.predicted)
    eight.predict(decoded.cr, cx, cy, chromaMode, cr.predicted)
    const chromaAc = Number(code(cb, picture.cb, decoded.cb, cx, cy)) | Number(code(cr, picture.cr, decoded.cr, cx, cy))
    const chromaCoded = chromaAc ? 2 : isAny(cb.dcLevels) || isAny(cr.dcLevels) ? 1 : 0

    out.unsigned(1 + mode + 4 * chromaCoded + (lumaAc ? 12 : 0)) // mb_type (table 7-11)
    out.unsigned(chromaMode)
    out.signed(0) // mb_qp_delta
    putBlock(out, luma.dcLevels, 0, 16, contextAt(luma.counts, decoded.luma.width / 4, x / 4, y / 4))
    putAc(out, luma, LUMA_ORDER, decoded.luma.width / 4, x / 4, y / 4, lumaAc)
    if (chromaCoded > 0) for (const { dcLevels } of [cb, cr]) putBlock(out, dcLevels, 0, 4, CHROMA_DC)
    for (const chroma of [cb, cr]) putAc(out, chroma, CHROMA_ORDER, decoded.cb.width / 4, cx / 4, cy / 4, chromaCoded === 2)
  }
}

const block = new Int32Array(16)

/** Transforms what the prediction leaves, and decodes it again. Returns whether there are coefficients besides DC. */
function code(part: Part, source: Plane, target: Plane, x: number, y: number): boolean {
  const { size, predicted, levels, hasAc, dc, dcLevels } = part
  const across = size / 4
  let any = false
  for (let n = 0; n < dc.length; n++) {
    const bx = (n % across) * 4
    const by = Math.floor(n / across) * 4
    forward(source, x + bx, y + by, predicted, by * size + bx, size, block)
    dc[n] = block[0]!
    const has = quantiseAc(block, levels, n * 16)
    hasAc[n] = has ? 1 : 0
    any ||= has
  }
  if (size === 16) {
    lumaDcLevels(dc)
    for (let i = 0; i < 16; i++) dcLevels[i] = dc[ZIGZAG[i]!]!
    scaleLumaDc(dc)
  } else {
    chromaDcLevels(dc)
    dcLevels.set(dc)
    scaleChromaDc(dc)
  }
  for (let n = 0; n < dc.length; n++) {
    const bx = (n % across) * 4
    const by = Math.floor(n / across) * 4
    reconstruct(target, x + bx, y + by, predicted, by * size + bx, size, hasAc[n] ? levels : null, n * 16, dc[n]!)
  }
  return any
}

function isAny(levels: Int32Array): boolean {
  for (let i = 0; i < levels.length; i++) if (levels[i] !== 0) return true
  return false
}

/** nC of the block at x, y (9.2.1): the mean of the neighbours to the left and above, as far as they are there. `width` is that of the picture in blocks. */
function contextAt(counts: Uint8Array, width: number, x: number, y: number): number {
  if (x === 0) return y === 0 ? 0 : counts[(y - 1) * width]!
  const left = counts[y * width + x - 1]!
  return y === 0 ? left : (left + counts[(y - 1) * width + x]! + 1) >> 1
}

function putAc(out: Bits, { levels, counts, size }: Part, order: Uint8Array, width: number, x: number, y: number, coded: boolean): void {
  const across = size / 4
  for (let i = 0; i < order.length; i++) {
    const n = order[i]!
    const bx = x + (n % across)
    const by = y + Math.floor(n / across)
    counts[by * width + bx] = coded ? putBlock(out, levels, n * 16 + 1, n * 16 + 16, contextAt(counts, width, bx, by)) : 0
  }
}

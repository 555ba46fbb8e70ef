// oxlint-disable typescript/no-non-null-assertion -- every index is bounded by the block, plane or code table that it runs over
/**
 * A small H.264 encoder (ITU-T H.264): Constrained Baseline, every picture an IDR picture of Intra 16x16 macroblocks, CAVLC, one quality. What every browser
 * and player decodes, without a native library. Every picture can be seeked to; smooth pictures stay small.
 */
import { bits, CHROMA_DC, putBlock, type Bits } from './cavlc.ts'
import { chromaModes, lumaModes, type Plane } from './intra.ts'
import { chromaDcLevels, dequantise4x4, forward4x4, inverse4x4, lumaDcLevels, QP, quantise, scaleChromaDc, scaleLumaDc, ZIGZAG } from './transform.ts'

/** A picture in 4:2:0, BT.709, limited range. The planes are whole macroblocks: luma a multiple of 16 wide and high, chroma half of that. */
export type Picture = { luma: Plane; cb: Plane; cr: Plane }

export type H264 = {
  /** Sequence and picture parameter sets, as NAL units. */
  sps: Uint8Array
  pps: Uint8Array
  /** Encodes the next picture as one NAL unit. */
  encode(picture: Picture): Uint8Array
}

export function plane(width: number, height: number): Plane {
  return { width, height, samples: new Uint8Array(width * height) }
}

/** The empty picture that holds a video of that size. */
export function pictureFor(width: number, height: number): Picture {
  const wide = Math.ceil(width / 16) * 16
  const high = Math.ceil(height / 16) * 16
  return { luma: plane(wide, high), cb: plane(wide / 2, high / 2), cr: plane(wide / 2, high / 2) }
}

/** An encoder for pictures of one size; width and height are even. `framesPerSecond` only chooses the level. */
export function h264(width: number, height: number, framesPerSecond: number): H264 {
  const encode = pictureEncoder(width, height)
  let count = 0
  return {
    sps: nalUnit(0x67, sequenceParameters(width, height, framesPerSecond)),
    pps: nalUnit(0x68, pictureParameters()),
    // Two IDR pictures in a row must differ in idr_pic_id (7.4.3).
    encode: (picture) => nalUnit(0x65, encode(picture, count++ % 2)),
  }
}

/** A NAL unit: its header and the payload, with the byte 3 between two zeros and a byte up to 3, so that no start code appears inside (7.3.1). */
export function nalUnit(header: number, payload: Uint8Array): Uint8Array {
  const out = new Uint8Array(1 + Math.ceil(payload.length * 1.5))
  let length = 0
  let zeros = 0
  out[length++] = header
  for (const byte of payload) {
    if (zeros === 2 && byte <= 3) {
      out[length++] = 3
      zeros = 0
    }
    out[length++] = byte
    zeros = byte === 0 ? zeros + 1 : 0
  }
  return out.slice(0, length)
}

/** Levels (table A-1): level_idc, macroblocks per picture, macroblocks per second. */
const LEVELS = [[20, 396, 11_880], [30, 1620, 40_500], [31, 3600, 108_000], [40, 8192, 245_760], [51, 36_864, 983_040]] as const

function sequenceParameters(width: number, height: number, framesPerSecond: number): Uint8Array {
  const wide = Math.ceil(width / 16)
  const high = Math.ceil(height / 16)
  const level = LEVELS.find(([, picture, second]) => wide * high <= picture && wide * high * framesPerSecond <= second)?.[0] ?? 52
  const out = bits()
  out.put(66, 8) // Baseline,
  out.put(0b1100_0000, 8) // constrained
  out.put(level, 8)
  out.unsigned(0) // seq_parameter_set_id
  out.unsigned(0) // frame_num has 4 bits
  out.unsigned(2) // pictures are shown in the order of decoding
  out.unsigned(0) // max_num_ref_frames
  out.put(0, 1) // no gaps in frame_num
  out.unsigned(wide - 1)
  out.unsigned(high - 1)
  out.put(0b11, 2) // frames only; direct_8x8_inference
  const cropRight = wide * 16 - width
  const cropBottom = high * 16 - height
  out.put(cropRight || cropBottom ? 1 : 0, 1)
  if (cropRight || cropBottom) for (const crop of [0, cropRight / 2, 0, cropBottom / 2]) out.unsigned(crop)
  out.put(1, 1) // VUI (annex E): colours only
  out.put(0b00_1_101_0_1, 8) // no aspect ratio, no overscan; video of unspecified format, limited range, with colour description:
  for (let i = 0; i < 3; i++) out.put(1, 8) // BT.709
  out.put(0, 6) // no chroma location, timing, HRD (two), picture structure, restrictions
  return out.finish()
}

function pictureParameters(): Uint8Array {
  const out = bits()
  out.unsigned(0) // pic_parameter_set_id
  out.unsigned(0) // seq_parameter_set_id
  out.put(0, 2) // CAVLC; no field order
  out.unsigned(0) // one slice group
  out.unsigned(0)
  out.unsigned(0)
  out.put(0, 3) // no weighted prediction
  out.signed(QP - 26)
  out.signed(0)
  out.signed(0) // chroma_qp_index_offset
  out.put(0, 3)
  return out.finish()
}

function sliceHeader(out: Bits, idrId: number): void {
  out.unsigned(0) // first_mb_in_slice
  out.unsigned(7) // all slices are I
  out.unsigned(0) // pic_parameter_set_id
  out.put(0, 4) // frame_num
  out.unsigned(idrId)
  out.put(0, 2) // dec_ref_pic_marking
  out.signed(0) // slice_qp_delta
}

/** One 4x4 block of a macroblock: its place in blocks, and its quantised AC coefficients in zigzag order. */
type Block = { x: number; y: number; levels: Int32Array; hasAc: boolean }
/** The blocks of a macroblock's luma (16) or of one of its chroma planes (4), with their DC levels in the order of the bit stream. */
type Coded = { blocks: Block[]; dc: Int32Array; hasAc: boolean }

function pictureEncoder(width: number, height: number): (picture: Picture, idrId: number) => Uint8Array {
  // What a decoder will have, which is what predictions are made from, and the coefficients per block, which choose the code tables.
  const decoded = pictureFor(width, height)
  const counts = { luma: counted(decoded.luma), cb: counted(decoded.cb), cr: counted(decoded.cr) }

  function luma(source: Plane, x: number, y: number): { mode: number; coded: Coded } {
    const { mode, predicted } = best(lumaModes(decoded.luma, x, y), source, x, y)
    const { blocks, dc } = transformed(source, predicted, x, y, 16)
    lumaDcLevels(dc)
    const inOrder = new Int32Array(16)
    for (let i = 0; i < 16; i++) inOrder[i] = dc[ZIGZAG[i]!]!
    scaleLumaDc(dc)
    reconstruct(decoded.luma, predicted, x, y, 16, blocks, dc)
    return { mode, coded: { blocks: LUMA_ORDER.map((i) => blocks[i]!), dc: inOrder, hasAc: blocks.some((block) => block.hasAc) } }
  }

  function chroma(source: Plane, target: Plane, predicted: Uint8Array, x: number, y: number): Coded {
    const { blocks, dc } = transformed(source, predicted, x, y, 8)
    chromaDcLevels(dc)
    const levels = dc.slice()
    scaleChromaDc(dc)
    reconstruct(target, predicted, x, y, 8, blocks, dc)
    return { blocks, dc: levels, hasAc: blocks.some((block) => block.hasAc) }
  }

  function macroblock(out: Bits, picture: Picture, x: number, y: number): void {
    const bright = luma(picture.luma, x, y)
    const [cx, cy] = [x / 2, y / 2]
    const fromCb = chromaModes(decoded.cb, cx, cy)
    const { mode, predicted } = best(fromCb, picture.cb, cx, cy)
    const fromCr = chromaModes(decoded.cr, cx, cy).find((candidate) => candidate.mode === mode)!
    const blue = chroma(picture.cb, decoded.cb, predicted, cx, cy)
    const red = chroma(picture.cr, decoded.cr, fromCr.predicted, cx, cy)
    const chromaCoded = blue.hasAc || red.hasAc ? 2 : [...blue.dc, ...red.dc].some((level) => level !== 0) ? 1 : 0

    out.unsigned(1 + bright.mode + 4 * chromaCoded + (bright.coded.hasAc ? 12 : 0)) // mb_type (table 7-11)
    out.unsigned(mode)
    out.signed(0) // mb_qp_delta
    putBlock(out, bright.coded.dc, 0, contextAt(counts.luma, x / 4, y / 4))
    putAc(out, counts.luma, bright.coded.blocks, bright.coded.hasAc)
    if (chromaCoded > 0) for (const coded of [blue, red]) putBlock(out, coded.dc, 0, CHROMA_DC)
    putAc(out, counts.cb, blue.blocks, chromaCoded === 2)
    putAc(out, counts.cr, red.blocks, chromaCoded === 2)
  }

  return (picture, idrId) => {
    const out = bits()
    sliceHeader(out, idrId)
    for (let y = 0; y < picture.luma.height; y += 16) for (let x = 0; x < picture.luma.width; x += 16) macroblock(out, picture, x, y)
    return out.finish()
  }
}

/** The prediction with the smallest sum of absolute differences. */
function best(candidates: { mode: number; predicted: Uint8Array }[], source: Plane, x: number, y: number): { mode: number; predicted: Uint8Array } {
  let chosen = candidates[0]!
  let least = Infinity
  for (const candidate of candidates) {
    const size = candidate.predicted.length === 256 ? 16 : 8
    let sum = 0
    for (let row = 0, i = 0; row < size; row++) {
      const from = (y + row) * source.width + x
      for (let column = 0; column < size; column++) sum += Math.abs(source.samples[from + column]! - candidate.predicted[i++]!)
    }
    if (sum < least) [chosen, least] = [candidate, sum]
  }
  return chosen
}

/** Transforms what the prediction leaves, block by block in raster order; the DC coefficients are taken out. */
function transformed(source: Plane, predicted: Uint8Array, x: number, y: number, size: 16 | 8): { blocks: Block[]; dc: Int32Array } {
  const blocks: Block[] = []
  const dc = new Int32Array((size / 4) ** 2)
  const block = new Int32Array(16)
  for (let by = 0; by < size; by += 4) {
    for (let bx = 0; bx < size; bx += 4) {
      for (let i = 0; i < 16; i++) {
        const column = bx + (i & 3)
        const row = by + (i >> 2)
        block[i] = source.samples[(y + row) * source.width + x + column]! - predicted[row * size + column]!
      }
      forward4x4(block)
      dc[blocks.length] = block[0]!
      const levels = new Int32Array(16)
      let hasAc = false
      for (let i = 1; i < 16; i++) {
        levels[i] = quantise(block[ZIGZAG[i]!]!, ZIGZAG[i]!)
        if (levels[i] !== 0) hasAc = true
      }
      blocks.push({ x: (x + bx) / 4, y: (y + by) / 4, levels, hasAc })
    }
  }
  return { blocks, dc }
}

/** The order in which a macroblock's luma blocks are written: four quarters of four blocks each (6.4.3). */
const LUMA_ORDER = [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]

function reconstruct(target: Plane, predicted: Uint8Array, x: number, y: number, size: 16 | 8, blocks: Block[], dc: Int32Array): void {
  const residual = new Int32Array(16)
  for (const [n, block] of blocks.entries()) {
    dequantise4x4(block.levels, dc[n]!, residual)
    inverse4x4(residual)
    for (let i = 0; i < 16; i++) {
      const column = block.x * 4 + (i & 3)
      const row = block.y * 4 + (i >> 2)
      const value = predicted[(row - y) * size + column - x]! + residual[i]!
      target.samples[row * target.width + column] = value < 0 ? 0 : value > 255 ? 255 : value
    }
  }
}

/** How many coefficients each 4x4 block has. */
type Counts = { width: number; blocks: Uint8Array }

function counted({ width, height }: Plane): Counts {
  return { width: width / 4, blocks: new Uint8Array((width / 4) * (height / 4)) }
}

/** nC of the block at x, y (9.2.1): the mean of the neighbours to the left and above, as far as they are there. */
function contextAt({ width, blocks }: Counts, x: number, y: number): number {
  const left = x > 0 ? blocks[y * width + x - 1]! : null
  const above = y > 0 ? blocks[(y - 1) * width + x]! : null
  if (left === null || above === null) return left ?? above ?? 0
  return (left + above + 1) >> 1
}

function putAc(out: Bits, counts: Counts, blocks: Block[], coded: boolean): void {
  for (const { x, y, levels } of blocks) counts.blocks[y * counts.width + x] = coded ? putBlock(out, levels, 1, contextAt(counts, x, y)) : 0
}

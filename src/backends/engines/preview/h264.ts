/**
 * A small H.264 encoder (ITU-T H.264): Constrained Baseline, every picture an IDR picture of Intra 16x16 macroblocks, CAVLC, one quality. What every browser
 * and player decodes, without a native library. Every picture can be seeked to; smooth pictures stay small.
 */
import { bits, type Bits } from './cavlc.ts'
import { macroblockCoder } from './macroblock.ts'
import { pictureFor, type Picture } from './yuv-picture.ts'
import { QP } from './dct-quantization.ts'

export type H264 = {
  /** Sequence and picture parameter sets, as NAL units. */
  sps: Uint8Array
  pps: Uint8Array
  /** Encodes the next picture as one NAL unit. */
  encode(picture: Picture): Uint8Array
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
const LEVELS = [
  [20, 396, 11_880],
  [30, 1620, 40_500],
  [31, 3600, 108_000],
  [40, 8192, 245_760],
  [51, 36_864, 983_040],
] as const

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

function pictureEncoder(width: number, height: number): (picture: Picture, idrId: number) => Uint8Array {
  const code = macroblockCoder(pictureFor(width, height))
  return (picture, idrId) => {
    const out = bits()
    sliceHeader(out, idrId)
    for (let y = 0; y < picture.luma.height; y += 16) for (let x = 0; x < picture.luma.width; x += 16) code(out, picture, x, y)
    return out.finish()
  }
}

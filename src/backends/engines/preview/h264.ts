// oxlint-disable typescript/no-non-null-assertion -- every index is bounded by the picture that it runs over
/**
 * The least of H.264 (ITU-T H.264, Constrained Baseline) that every player decodes: macroblocks are samples as they are (I_PCM), or those of the picture before
 * (P_Skip). There is no transform and no entropy coding of samples: a film of which little moves stays small, any other becomes large.
 */

/** Luma and two chroma planes of half the size (4:2:0), in whole macroblocks of 16 by 16. */
export type Picture = { wide: number; high: number; planes: readonly [luma: Uint8Array, cb: Uint8Array, cr: Uint8Array] }

export type H264 = {
  /** Sequence and picture parameter sets, as NAL units. */
  sps: Uint8Array
  pps: Uint8Array
  /** Encodes the next picture as one NAL unit; a key picture needs no other one. The first is one. */
  encode(picture: Picture, isKey: boolean): Uint8Array
}

/** A picture that holds `width` by `height` pixels. */
export function pictureFor(width: number, height: number): Picture {
  const [wide, high] = [Math.ceil(width / 16), Math.ceil(height / 16)]
  return { wide, high, planes: [new Uint8Array(wide * high * 256), new Uint8Array(wide * high * 64), new Uint8Array(wide * high * 64)] }
}

/** An encoder for pictures of one size; width and height are even. `framesPerSecond` only chooses the level. */
export function h264(width: number, height: number, framesPerSecond: number): H264 {
  let before: Picture | null = null
  // Key pictures in a row must differ in idr_pic_id (7.4.3); frame_num counts from the last of them.
  let [keys, number] = [0, 0]
  return {
    sps: nalUnit(0x67, sequenceParameters(width, height, framesPerSecond)),
    pps: nalUnit(0x68, pictureParameters()),
    encode(picture, isKey) {
      const out = bits(picture.wide * picture.high * 400 + 64)
      const last = isKey ? null : before
      number = last ? (number + 1) % 16 : 0
      sliceHeader(out, last ? null : keys++ % 2, number)
      macroblocks(out, picture, last)
      before = { ...picture, planes: [picture.planes[0].slice(), picture.planes[1].slice(), picture.planes[2].slice()] }
      return nalUnit(last ? 0x61 : 0x65, out.finish())
    },
  }
}

const I_PCM = 25
/** In a slice that has predicted macroblocks too, the types of the others begin here (table 7-13). */
const INTRA_IN_P = 5

function macroblocks(out: Bits, picture: Picture, before: Picture | null): void {
  let skipped = 0
  for (let y = 0; y < picture.high; y++) {
    for (let x = 0; x < picture.wide; x++) {
      const samples = samplesOf(picture, x, y)
      if (before && samples.equals(samplesOf(before, x, y))) skipped++
      else {
        if (before) out.unsigned(skipped)
        skipped = 0
        out.unsigned(before ? INTRA_IN_P + I_PCM : I_PCM)
        out.bytes(samples)
      }
    }
  }
  if (skipped > 0) out.unsigned(skipped)
}

/** The samples of a macroblock: luma, then both chroma planes, row by row. */
function samplesOf({ wide, planes }: Picture, x: number, y: number): Buffer {
  return Buffer.concat(
    planes.flatMap((plane, n) => {
      const side = n === 0 ? 16 : 8
      return Array.from({ length: side }, (_, row) => {
        const from = ((y * side + row) * wide + x) * side
        return plane.subarray(from, from + side)
      })
    }),
  )
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

type Bits = {
  put(value: number, count: number): void
  /** Exp-Golomb code (9.1). */
  unsigned(value: number): void
  /** From the next whole byte on. */
  bytes(all: Uint8Array): void
  /** The payload with its trailing bits (7.3.2.11). */
  finish(): Uint8Array
}

function bits(most: number): Bits {
  const out = new Uint8Array(most)
  let at = 0
  function put(value: number, count: number): void {
    for (let bit = count - 1; bit >= 0; bit--, at++) if ((value >> bit) & 1) out[at >> 3]! |= 128 >> (at & 7)
  }
  const align = (): void => void (at = (at + 7) & ~7)
  return {
    put,
    unsigned: (value) => put(value + 1, 2 * Math.floor(Math.log2(value + 1)) + 1),
    bytes(all) {
      align()
      out.set(all, at >> 3)
      at += 8 * all.length
    },
    finish() {
      put(1, 1)
      align()
      return out.subarray(0, at >> 3)
    },
  }
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
  const { wide, high } = pictureFor(width, height)
  const level = LEVELS.find(([, picture, second]) => wide * high <= picture && wide * high * framesPerSecond <= second)?.[0] ?? 52
  const out = bits(64)
  out.put(66, 8) // Baseline,
  out.put(0b1100_0000, 8) // constrained
  out.put(level, 8)
  out.unsigned(0) // seq_parameter_set_id
  out.unsigned(0) // frame_num has 4 bits
  out.unsigned(2) // pictures are shown in the order of decoding
  out.unsigned(1) // max_num_ref_frames
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
  const out = bits(16)
  out.unsigned(0) // pic_parameter_set_id
  out.unsigned(0) // seq_parameter_set_id
  out.put(0, 2) // CAVLC; no field order
  for (let i = 0; i < 3; i++) out.unsigned(0) // one slice group, one reference picture
  out.put(0, 3) // no weighted prediction
  for (let i = 0; i < 3; i++) out.unsigned(0) // quantization, which nothing uses
  out.put(0, 3) // the deblocking filter has nothing to do at this quantization
  return out.finish()
}

/** `idrId` is null for a picture that refers to the one before. */
function sliceHeader(out: Bits, idrId: number | null, number: number): void {
  out.unsigned(0) // first_mb_in_slice
  out.unsigned(idrId === null ? 5 : 7) // all slices are P, or I
  out.unsigned(0) // pic_parameter_set_id
  out.put(number, 4) // frame_num
  if (idrId === null) {
    out.put(0, 3) // as many references as in the picture parameters, in their order; they are forgotten in turn
  } else {
    out.unsigned(idrId)
    out.put(0, 2) // dec_ref_pic_marking
  }
  out.unsigned(0) // slice_qp_delta
}

/**
 * The least of H.264 (ITU-T H.264, Constrained Baseline) that every player decodes: macroblocks are samples as they are (I_PCM), or those of the picture before
 * (P_Skip). There is no transform and no entropy coding of samples: a video of which little moves stays small, any other becomes large.
 */

/** Macroblocks of 16 by 16 pixels, row by row: of each the samples of luma, then of both chroma planes, which have half the size (4:2:0). */
export type Picture = { wide: number; high: number; samples: Buffer }

const MACROBLOCK = 384

/** Where the luma of a pixel is. */
export const lumaAt = ({ wide }: Picture, x: number, y: number): number =>
  ((y >> 4) * wide + (x >> 4)) * MACROBLOCK + (y & 15) * 16 + (x & 15)
/** Where Cb is, by half the place of its pixels; Cr is 64 behind it. */
export const chromaAt = ({ wide }: Picture, x: number, y: number): number =>
  ((y >> 3) * wide + (x >> 3)) * MACROBLOCK + 256 + (y & 7) * 8 + (x & 7)

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
  return { wide, high, samples: Buffer.alloc(wide * high * MACROBLOCK) }
}

/** An encoder for pictures of one size; width and height are even. `framesPerSecond` only chooses the level. */
export function h264(width: number, height: number, framesPerSecond: number): H264 {
  let before: Buffer | null = null
  // Key pictures in a row must differ in idr_pic_id (7.4.3); frame_num counts from the last of them.
  let [keys, number] = [0, 0]
  return {
    sps: nalUnit(0x67, packed(sequenceParameters(width, height, framesPerSecond))),
    pps: nalUnit(0x68, packed(PICTURE_PARAMETERS)),
    encode(picture, isKey) {
      const last = isKey ? null : before
      number = last ? (number + 1) % 16 : 0
      const payload = macroblocks(sliceHeader(last ? null : keys++ % 2, number), picture.samples, last)
      before = Buffer.from(picture.samples)
      return nalUnit(last ? 0x61 : 0x65, payload)
    },
  }
}

/** A NAL unit: its header and the payload, with the byte 3 between two zeros and a byte up to 3, so that no start code appears inside (7.3.1). */
export function nalUnit(header: number, payload: Buffer): Uint8Array {
  // oxlint-disable-next-line no-control-regex -- bytes, as text
  return Buffer.concat([Buffer.of(header), Buffer.from(payload.toString('latin1').replace(/\0\0(?=[\0-\x03])/g, '\0\0\x03'), 'latin1')])
}

/** Bits as text, of a number in so many of them, and of one in an Exp-Golomb code (9.1). */
const fixed = (value: number, count: number): string => value.toString(2).padStart(count, '0')
const unsigned = (value: number): string => '0'.repeat(Math.floor(Math.log2(value + 1))) + (value + 1).toString(2)
/** Bits as whole bytes, filled up by zeros. */
const packed = (bits: string): Buffer => Buffer.from((bits.match(/.{1,8}/g) ?? []).map((byte) => Number.parseInt(byte.padEnd(8, '0'), 2)))
/** The end of a payload (7.3.2.11). */
const STOP = '1'

const I_PCM = 25
/** In a slice that has predicted macroblocks too, the types of the others begin here (table 7-13). */
const INTRA_IN_P = 5

/** A slice: `bits` are its header. Samples begin at whole bytes. */
function macroblocks(bits: string, picture: Buffer, before: Buffer | null): Buffer {
  const parts: Buffer[] = []
  let skipped = 0
  for (let at = 0; at < picture.length; at += MACROBLOCK) {
    const samples = picture.subarray(at, at + MACROBLOCK)
    if (before?.subarray(at, at + MACROBLOCK).equals(samples)) skipped++
    else {
      bits += before ? unsigned(skipped) + unsigned(INTRA_IN_P + I_PCM) : unsigned(I_PCM)
      parts.push(packed(bits), samples)
      bits = ''
      skipped = 0
    }
  }
  return Buffer.concat([...parts, packed(bits + (skipped > 0 ? unsigned(skipped) : '') + STOP)])
}

/** Levels (table A-1): level_idc, macroblocks per picture, macroblocks per second. */
const LEVELS = [
  [20, 396, 11_880],
  [30, 1620, 40_500],
  [31, 3600, 108_000],
  [40, 8192, 245_760],
  [51, 36_864, 983_040],
] as const

function sequenceParameters(width: number, height: number, framesPerSecond: number): string {
  const { wide, high } = pictureFor(width, height)
  const level = LEVELS.find(([, picture, second]) => wide * high <= picture && wide * high * framesPerSecond <= second)?.[0] ?? 52
  const crop = [0, wide * 8 - width / 2, 0, high * 8 - height / 2]
  return [
    fixed(66, 8) + '11000000', // Constrained Baseline
    fixed(level, 8),
    unsigned(0) + unsigned(0), // its id; frame_num has 4 bits
    unsigned(2), // pictures are shown in the order of decoding
    unsigned(1) + '0', // max_num_ref_frames; no gaps in frame_num
    unsigned(wide - 1) + unsigned(high - 1),
    '11', // frames only; direct_8x8_inference
    crop.some((side) => side > 0) ? '1' + crop.map(unsigned).join('') : '0',
    '1', // VUI (annex E): colours only
    '00110101', // no aspect ratio, no overscan; video of unspecified format, limited range, with colour description:
    fixed(1, 8).repeat(3), // BT.709
    '000000', // no chroma location, timing, HRD (two), picture structure, restrictions
    STOP,
  ].join('')
}

/** CAVLC, one slice group, one reference picture, no weighted prediction. Quantization and the deblocking filter have nothing to do. */
const PICTURE_PARAMETERS = [unsigned(0).repeat(2), '00', unsigned(0).repeat(3), '000', unsigned(0).repeat(3), '000', STOP].join('')

/** Of a slice with all macroblocks. `idrId` is null for a picture that refers to the one before. */
function sliceHeader(idrId: number | null, number: number): string {
  // All slices are P, whose references are in their order and are forgotten in turn, or I.
  const [type, more] = idrId === null ? [5, '000'] : [7, unsigned(idrId) + '00']
  return unsigned(0) + unsigned(type) + unsigned(0) + fixed(number, 4) + more + unsigned(0)
}

// oxlint-disable typescript/no-non-null-assertion -- every index is bounded by the block, plane or code table that it runs over
/**
 * Bits and variable-length codes of H.264 (ITU-T H.264): Exp-Golomb codes (9.1) and the CAVLC coding of transform coefficients (9.2).
 * The code tables are the standard's, written as the bits they stand for.
 */
export type Bits = {
  /** Appends the lowest `length` (0 to 24) bits of `value`, the highest first. */
  put(value: number, length: number): void
  /** Unsigned and signed Exp-Golomb codes, `ue(v)` and `se(v)`. */
  unsigned(value: number): void
  signed(value: number): void
  /** Ends with a one and zeros up to a whole byte (rbsp_trailing_bits), and gives all bytes. */
  finish(): Uint8Array
}

/** An empty buffer of bits, which grows. */
export function bits(): Bits {
  let bytes = new Uint8Array(4096)
  let length = 0
  let held = 0
  let heldBits = 0

  function put(value: number, count: number): void {
    held = (held << count) | (value & ((1 << count) - 1))
    heldBits += count
    while (heldBits >= 8) {
      if (length === bytes.length) {
        const larger = new Uint8Array(bytes.length * 2)
        larger.set(bytes)
        bytes = larger
      }
      heldBits -= 8
      bytes[length++] = held >>> heldBits
    }
    held &= (1 << heldBits) - 1
  }

  function unsigned(value: number): void {
    const size = 32 - Math.clz32(value + 1)
    put(0, size - 1)
    put(value + 1, size)
  }

  return {
    put,
    unsigned,
    signed: (value) => unsigned(value > 0 ? 2 * value - 1 : -2 * value),
    finish() {
      put(1, 1)
      put(0, (8 - heldBits) % 8)
      return bytes.slice(0, length)
    },
  }
}

type Code = readonly [value: number, length: number]

function codes(row: string): Code[] {
  return row.split(' ').map((code) => [Number.parseInt(code, 2), code.length])
}

/** coeff_token (table 9-5) by context, then by trailing ones; each row starts where there are as many coefficients as trailing ones. */
const TOKENS = [
  [
    '1 000101 00000111 000000111 0000000111 00000000111 0000000001111 0000000001011 0000000001000 00000000001111 00000000001011 000000000001111 ' +
      '000000000001011 0000000000001111 0000000000001011 0000000000000111 0000000000000100',
    '01 000100 00000110 000000110 0000000110 00000000110 0000000001110 0000000001010 00000000001110 00000000001010 000000000001110 ' +
      '000000000001010 000000000000001 0000000000001110 0000000000001010 0000000000000110',
    '001 0000101 00000101 000000101 0000000101 00000000101 0000000001101 0000000001001 00000000001101 00000000001001 000000000001101 ' +
      '000000000001001 0000000000001101 0000000000001001 0000000000000101',
    '00011 000011 0000100 00000100 000000100 0000000100 00000000100 0000000001100 00000000001100 00000000001000 000000000001100 ' +
      '000000000001000 0000000000001100 0000000000001000',
  ],
  [
    '11 001011 000111 0000111 00000111 00000100 000000111 00000001111 00000001011 000000001111 000000001011 000000001000 0000000001111 ' +
      '0000000001011 0000000000111 00000000001001 00000000000111',
    '10 00111 001010 000110 0000110 00000110 000000110 00000001110 00000001010 000000001110 000000001010 0000000001110 0000000001010 ' +
      '00000000001011 00000000001000 00000000000110',
    '011 001001 000101 0000101 00000101 000000101 00000001101 00000001001 000000001101 000000001001 0000000001101 0000000001001 ' +
      '0000000000110 00000000001010 00000000000101',
    '0101 0100 00110 001000 000100 0000100 000000100 00000001100 00000001000 000000001100 0000000001100 0000000001000 0000000000001 ' +
      '00000000000100',
  ],
  [
    '1111 001111 001011 001000 0001111 0001011 0001001 0001000 00001111 00001011 000001111 000001011 000001000 0000001101 0000001001 ' +
      '0000000101 0000000001',
    '1110 01111 01100 01010 01000 001110 001010 0001110 00001110 00001010 000001110 000001010 000000111 0000001100 0000001000 0000000100',
    '1101 01110 01011 01001 001101 001001 0001101 0001010 00001101 00001001 000001101 000001001 0000001011 0000000111 0000000011',
    '1100 1011 1010 1001 1000 01101 001100 0001100 00001100 00001000 000001100 0000001010 0000000110 0000000010',
  ],
].map((rows) => rows.map(codes))

const CHROMA_DC_TOKENS = ['01 000111 000100 000011 000010', '1 000110 0000011 00000011', '001 0000010 00000010', '000101 0000000'].map(
  codes,
)

/** total_zeros (tables 9-7 and 9-8) by the number of coefficients. */
const TOTAL_ZEROS = [
  '1 011 010 0011 0010 00011 00010 000011 000010 0000011 0000010 00000011 00000010 000000011 000000010 000000001',
  '111 110 101 100 011 0101 0100 0011 0010 00011 00010 000011 000010 000001 000000',
  '0101 111 110 101 0100 0011 100 011 0010 00011 00010 000001 00001 000000',
  '00011 111 0101 0100 110 101 100 0011 011 0010 00010 00001 00000',
  '0101 0100 0011 111 110 101 100 011 0010 00001 0001 00000',
  '000001 00001 111 110 101 100 011 010 0001 001 000000',
  '000001 00001 101 100 011 11 010 0001 001 000000',
  '000001 0001 00001 011 11 10 010 001 000000',
  '000001 000000 0001 11 10 001 01 00001',
  '00001 00000 001 11 10 01 0001',
  '0000 0001 001 010 1 011',
  '0000 0001 01 1 001',
  '000 001 1 01',
  '00 01 1',
  '0 1',
].map(codes)

/** total_zeros of chroma DC (table 9-9 a). */
const CHROMA_DC_TOTAL_ZEROS = ['1 01 001 000', '1 01 00', '1 0'].map(codes)

/** run_before (table 9-10) by the zeros that are left. */
const RUN_BEFORE = [
  '1 0',
  '1 01 00',
  '11 10 01 00',
  '11 10 01 001 000',
  '11 10 011 010 001 000',
  '11 000 001 011 010 101 100',
  '111 110 101 100 011 010 001 0001 00001 000001 0000001 00000001 000000001 0000000001 00000000001',
].map(codes)

function token(context: number, total: number, ones: number): Code {
  if (context === CHROMA_DC) return CHROMA_DC_TOKENS[ones]![total - ones]!
  if (context >= 8) return [total === 0 ? 3 : ((total - 1) << 2) | ones, 6]
  return TOKENS[context < 2 ? 0 : context < 4 ? 1 : 2]![ones]![total - ones]!
}

/** The context of the four DC coefficients of a chroma block. */
export const CHROMA_DC = -1

/** The levels of the block under way and the zeros before each, the highest frequency first. */
const levels = new Int32Array(16)
const runs = new Int32Array(16)

/**
 * Writes one block of coefficients (residual_block_cavlc, 7.3.5.3.2), given in scan order from `start` to before `end`. Levels may be ±2,000.
 * `context` is nC (9.2.1) or `CHROMA_DC`. Returns how many coefficients are not zero, which is what nC of the neighbours is made of.
 */
export function putBlock(out: Bits, coefficients: Int32Array, start: number, end: number, context: number): number {
  let total = 0
  let run = 0
  let zeros = 0
  for (let i = end - 1; i >= start; i--) {
    const level = coefficients[i]!
    if (level === 0) run++
    else {
      if (total > 0) runs[total - 1] = run
      levels[total++] = level
      run = 0
    }
  }
  if (total > 0) runs[total - 1] = run
  for (let i = 0; i < total; i++) zeros += runs[i]!
  let ones = 0
  while (ones < 3 && ones < total && Math.abs(levels[ones]!) === 1) ones++
  putCode(out, token(context, total, ones))
  if (total === 0) return 0
  for (let i = 0; i < ones; i++) out.put(levels[i]! < 0 ? 1 : 0, 1)
  putLevels(out, total, ones)
  putRuns(out, total, zeros, end - start, context)
  return total
}

function putCode(out: Bits, code: Code): void {
  out.put(code[0], code[1])
}

/** The levels after the trailing ones: a prefix in unary and a suffix whose length adapts to what came before (9.2.2). */
function putLevels(out: Bits, total: number, ones: number): void {
  let suffixBits = total > 10 && ones < 3 ? 1 : 0
  for (let i = ones; i < total; i++) {
    const level = levels[i]!
    // After fewer than three trailing ones, the next level cannot be ±1.
    const code = (level > 0 ? 2 * level - 2 : -2 * level - 1) - (i === ones && ones < 3 ? 2 : 0)
    const escape = suffixBits === 0 ? 30 : 15 << suffixBits
    if (code >= escape) {
      out.put(1, 16)
      out.put(code - escape, 12)
    } else if (suffixBits === 0 && code >= 14) {
      out.put(1, 15)
      out.put(code - 14, 4)
    } else {
      out.put(1, (code >> suffixBits) + 1)
      out.put(code, suffixBits)
    }
    if (suffixBits === 0) suffixBits = 1
    if (Math.abs(level) > 3 << (suffixBits - 1) && suffixBits < 6) suffixBits++
  }
}

/** Where the `zeros` between the coefficients lie (9.2.3); the block has `size` places. */
function putRuns(out: Bits, total: number, zeros: number, size: number, context: number): void {
  if (total < size) putCode(out, (context === CHROMA_DC ? CHROMA_DC_TOTAL_ZEROS : TOTAL_ZEROS)[total - 1]![zeros]!)
  for (let i = 0; i < total - 1 && zeros > 0; i++) {
    putCode(out, RUN_BEFORE[Math.min(zeros, 7) - 1]![runs[i]!]!)
    zeros -= runs[i]!
  }
}

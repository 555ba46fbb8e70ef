/** WAV (RIFF, WAVE_FORMAT_PCM): 16 bits, two channels, with a comment that says where it comes from. */
const COMMENT = 'preview\0'

/** Joins left and right, samples from -1 to 1 (what is beyond is clipped), to a file. */
export function wav(left: Float32Array, right: Float32Array, samplesPerSecond: number): Uint8Array {
  const info = 4 + 8 + COMMENT.length
  const bytes = left.length * 4
  const out = Buffer.alloc(44 + 8 + info + bytes)
  out.write('RIFF', 0, 'latin1')
  out.writeUInt32LE(out.length - 8, 4)
  out.write('WAVEfmt ', 8, 'latin1')
  out.writeUInt32LE(16, 16)
  out.writeUInt16LE(1, 20) // PCM
  out.writeUInt16LE(2, 22)
  out.writeUInt32LE(samplesPerSecond, 24)
  out.writeUInt32LE(samplesPerSecond * 4, 28)
  out.writeUInt16LE(4, 32)
  out.writeUInt16LE(16, 34)
  out.write('LIST', 36, 'latin1')
  out.writeUInt32LE(info, 40)
  out.write('INFOICMT', 44, 'latin1')
  out.writeUInt32LE(COMMENT.length, 52)
  out.write(COMMENT, 56, 'latin1')
  const data = 56 + COMMENT.length
  out.write('data', data, 'latin1')
  out.writeUInt32LE(bytes, data + 4)
  for (let i = 0, at = data + 8; i < left.length; i++, at += 4) {
    out.writeInt16LE(level(left[i] ?? 0), at)
    out.writeInt16LE(level(right[i] ?? 0), at + 2)
  }
  return out
}

function level(sample: number): number {
  return Math.round(Math.max(-1, Math.min(1, sample)) * 32_767)
}

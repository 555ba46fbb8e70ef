/** WAV (RIFF, WAVE_FORMAT_PCM): 16 bits, two channels, with a comment that says where it comes from. */

/** Joins left and right, samples from -1 to 1 (what is beyond is clipped), to a file. */
export function wav(left: Float32Array, right: Float32Array, samplesPerSecond: number): Uint8Array {
  const format = Buffer.alloc(16)
  format.writeUInt16LE(1, 0) // PCM
  format.writeUInt16LE(2, 2)
  format.writeUInt32LE(samplesPerSecond, 4)
  format.writeUInt32LE(samplesPerSecond * 4, 8)
  format.writeUInt16LE(4, 12)
  format.writeUInt16LE(16, 14)
  const samples = Buffer.alloc(left.length * 4)
  for (const [side, channel] of [left, right].entries())
    for (const [n, sample] of channel.entries())
      samples.writeInt16LE(Math.round(Math.max(-1, Math.min(1, sample)) * 32_767), n * 4 + side * 2)
  const comment = chunk('ICMT', Buffer.from('preview\0'))
  return chunk('RIFF', Buffer.from('WAVE'), chunk('fmt ', format), chunk('LIST', Buffer.from('INFO'), comment), chunk('data', samples))
}

function chunk(type: string, ...parts: Buffer[]): Buffer {
  const size = Buffer.alloc(4)
  size.writeUInt32LE(parts.reduce((sum, part) => sum + part.length, 0))
  return Buffer.concat([Buffer.from(type), size, ...parts])
}

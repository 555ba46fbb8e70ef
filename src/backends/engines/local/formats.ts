/** The formats that films and sounds are written in, and how. */

export type FormatName = 'mp4' | 'webm' | 'm4a' | 'mp3' | 'wav'

export type Format = {
  contentType: string
  encoders: readonly string[]
  /** Arguments of the picture's encoder; null where there is sound alone. */
  video: readonly string[] | null
  audio: readonly string[]
  container: readonly string[]
  /** Codecs that players expect in this container, so that a stream may be copied into it. */
  copies: ReadonlySet<string>
  /** Whether it can tell players to turn the pictures. */
  turns: boolean
}

const AAC = ['-c:a', 'aac', '-b:a', '160k']
// The index goes to the front, so that a player can begin before all has arrived.
const FRONT = ['-movflags', '+faststart']
const X264 = ['-c:v', 'libx264', '-preset', 'veryfast', '-crf', '20', '-pix_fmt', 'yuv420p']
const VP9 = ['-c:v', 'libvpx-vp9', '-deadline', 'realtime', '-cpu-used', '6', '-row-mt', '1', '-crf', '31', '-b:v', '0', '-pix_fmt', 'yuv420p']

export const FORMATS: Readonly<Record<FormatName, Format>> = {
  mp4: {
    contentType: 'video/mp4',
    encoders: ['libx264', 'aac'],
    video: X264,
    audio: AAC,
    container: ['-f', 'mp4', ...FRONT],
    copies: new Set(['h264', 'hevc', 'av1', 'vp9', 'aac', 'mp3', 'opus']),
    turns: true,
  },
  webm: {
    contentType: 'video/webm',
    encoders: ['libvpx-vp9', 'libopus'],
    video: VP9,
    audio: ['-c:a', 'libopus', '-b:a', '128k'],
    container: ['-f', 'webm'],
    copies: new Set(['vp8', 'vp9', 'av1', 'opus', 'vorbis']),
    turns: false,
  },
  m4a: { contentType: 'audio/mp4', encoders: ['aac'], video: null, audio: AAC, container: ['-f', 'ipod', ...FRONT], copies: new Set(['aac']), turns: false },
  mp3: { contentType: 'audio/mpeg', encoders: ['libmp3lame'], video: null, audio: ['-c:a', 'libmp3lame', '-b:a', '192k'], container: ['-f', 'mp3'], copies: new Set(['mp3']), turns: false },
  wav: { contentType: 'audio/wav', encoders: ['pcm_s16le'], video: null, audio: ['-c:a', 'pcm_s16le'], container: ['-f', 'wav'], copies: new Set(['pcm_s16le']), turns: false },
}

/** How a format is written when there is no picture: mp4 as m4a, webm as a WebM of sound alone. */
export function soundOnly(name: FormatName): Format {
  if (name === 'mp4') return FORMATS.m4a
  return name === 'webm' ? { ...FORMATS.webm, contentType: 'audio/webm', video: null } : FORMATS[name]
}
